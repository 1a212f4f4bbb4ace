package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	jobs "github.com/signalbox-go/signalbox/worker"
)

type chore struct{ kind string }

func (c chore) Kind() string { return c.kind }

// middleware.Lock takes each locker, and no handler changes. A job whose lock is held is snoozed. If the lock is lost,
// the handler's context says so. If the lock's servers are down, the attempt fails.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	for _, locker := range []string{"etcd", "zookeeper", "postgres"} {
		t.Run(locker, func(t *testing.T) {
			t.Parallel()
			s, stop, err := startService(t.Context(), locker, size{members: 1})
			var missing servertest.ErrMissing
			if errors.As(err, &missing) && os.Getenv("SIGNALBOX_TEST_REDIS") != "required" {
				t.Skip(missing)
			}
			defer stop()
			if err != nil {
				t.Fatal(err)
			}
			l, closeLocker, err := s.newLocker()
			if err != nil {
				t.Fatal(err)
			}
			defer closeLocker()
			// Under load nobody may be quick enough to extend the other lock, which is held for the whole test.
			s.TTL = patience
			other, closeOther, err := s.newLocker()
			if err != nil {
				t.Fatal(err)
			}
			defer closeOther()
			useInWorker(t, l, other, stop)
		})
	}
}

// useInWorker uses the locker in a worker. other is on the same servers, which down ends.
func useInWorker(t *testing.T, l, other lock.Locker, down func()) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	rdb, queue := redistest.Start(t).Client(), redistest.Name(t)
	w, err := jobs.New(rdb, jobs.Config{Queues: jobs.Queues{queue: {}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ends := make(chan error)
	w.Use(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			err := next.Handle(ctx, job)
			select {
			case ends <- err:
			case <-ctx.Done():
			}
			return err
		})
	})
	leases, causes := make(chan lock.Lease, 1), make(chan error, 1)
	for _, kind := range []string{"held", "runs", "down"} {
		w.HandleKind(kind, signalbox.HandlerFunc(func(ctx context.Context, _ *signalbox.Job) error {
			lease, _ := lock.FromContext(ctx)
			leases <- lease
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}), jobs.With(middleware.Lock(l, middleware.RawKey(kind), middleware.RetryIn(time.Hour))))
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(running) }()
	enqueue := func(kind string) {
		if _, err := s.Enqueue(ctx, chore{kind}, scheduler.Queue(queue), scheduler.MaxAttempts(1)); err != nil {
			t.Error(err)
		}
	}
	end := func() error {
		select {
		case err := <-ends:
			return err
		case <-ctx.Done():
			t.Fatal("the job didn't end")
			return nil
		}
	}

	holder, err := other.Acquire(ctx, "held")
	if err != nil {
		t.Fatal(err)
	}
	enqueue("held")
	var snooze *signalbox.SnoozeError
	if err := end(); !errors.As(err, &snooze) || !errors.Is(err, lock.ErrHeld) {
		t.Errorf("the lock is held: the job ended with %v, want a snooze that wraps ErrHeld", err)
	}
	if err := holder.Release(ctx); err != nil {
		t.Error(err)
	}

	enqueue("runs")
	select {
	case lease := <-leases:
		if lease == nil || lease.Key() != "runs" || lease.Token() <= 0 {
			t.Errorf("the handler runs under %v", lease)
		}
	case err := <-ends:
		t.Fatalf("the handler was not called: %v", err)
	case <-ctx.Done():
		t.Fatal("the handler was not called")
	}
	down()
	if err := end(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the lock was lost: the job ended with %v", err)
	}
	if cause := <-causes; !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the handler's context ended with %v", cause)
	}

	enqueue("down")
	if err := end(); err == nil || errors.Is(err, lock.ErrHeld) || errors.As(err, &snooze) {
		t.Errorf("the servers are down: the job ended with %v, want a failure", err)
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
