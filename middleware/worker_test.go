package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

type note struct{ kind string }

func (n note) Kind() string { return n.kind }

// Each handler of this worker is under a lock for all handlers and a lock of its own. The locks are held by another
// client, or are on a Redis that is down. The test checks what becomes of the jobs.
func TestPoliciesInAWorker(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	server := redistest.Start(t)
	rdb, queue, key := server.Client(), redistest.Name(t), redistest.Name(t)
	up := newLocker(rdb)
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Refuse(true)
	down := newLocker(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 }))
	holder, err := up.Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}

	var said bytes.Buffer // read when the worker has ended
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{queue: {Concurrency: 10}}, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	type end struct {
		kind string
		err  error
	}
	ends := make(chan end)
	w.Use(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			err := next.Handle(ctx, job)
			select {
			case ends <- end{job.Kind, err}:
			case <-ctx.Done():
			}
			return err
		})
	}, middleware.Lock(up)) // for all handlers, with the default key

	forAll := func(job *signalbox.Job) string { return "signalbox:job-lock:" + job.ID + ":{" + queue + "}" }
	ran := make(chan string, 10)
	for kind, own := range map[string]signalbox.Middleware{
		"drop":   middleware.Lock(up, middleware.RawKey(key), middleware.WhenHeld(middleware.PolicyDrop)),
		"fail":   middleware.Lock(up, middleware.RawKey(key), middleware.WhenHeld(middleware.PolicyFail)),
		"snooze": middleware.Lock(down, middleware.RawKey(key), middleware.WhenDown(middleware.PolicySnooze), middleware.RetryIn(time.Hour)),
		"held":   middleware.Lock(up, middleware.RawKey(key), middleware.RetryIn(time.Hour)),
		"anyway": middleware.Lock(down, middleware.RawKey(key), middleware.WhenDown(middleware.PolicyRunAnyway)),
		"wait":   middleware.Lock(up, middleware.RawKey(key), middleware.MaxWait(time.Minute)),
	} {
		w.HandleKind(kind, signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			ran <- kind
			want := forAll(job) // the innermost lock that is held
			if kind == "wait" {
				want = key
			}
			if lease, ok := lock.FromContext(ctx); !ok || lease.Key() != want {
				t.Errorf("%s runs under %v", kind, lease)
			}
			return nil
		}), worker.With(own))
		if _, err := s.Enqueue(ctx, note{kind}, scheduler.Queue(queue), scheduler.MaxAttempts(1)); err != nil {
			t.Fatal(err)
		}
	}

	running, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error)
	go func() { stopped <- w.Run(running) }()
	got := map[string]error{}
	for len(got) < 6 {
		select {
		case e := <-ends:
			got[e.kind] = e.err
		case <-ctx.Done():
			t.Fatalf("ended so far: %v", got)
		}
		if len(got) == 5 { // all except the job that waits
			if err := holder.Release(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	close(ran)
	called := map[string]bool{}
	for kind := range ran {
		called[kind] = true
	}
	var snooze *signalbox.SnoozeError
	if got["drop"] != nil || got["anyway"] != nil || got["wait"] != nil || !errors.Is(got["fail"], lock.ErrHeld) || !errors.As(got["snooze"], &snooze) {
		t.Errorf("the jobs' ends: %v", got)
	}
	for _, line := range strings.Split(said.String(), "\n") {
		down, asks := strings.Contains(line, "the lock service is down"), strings.Contains(line, "kind=snooze") || strings.Contains(line, "kind=anyway")
		if down != asks || down && !strings.Contains(line, "connection refused") {
			t.Errorf("the log has %s", line)
		}
	}
	if !strings.Contains(said.String(), "the lock service is down") {
		t.Errorf("the log doesn't say that the lock service is down:\n%s", said.String())
	}
	if len(called) != 2 || !called["anyway"] || !called["wait"] {
		t.Errorf("called: %v", called)
	}
	q := store.New(rdb, "", queue)
	c, err := q.Looks().Counts(context.Background())
	if err != nil || c.Total.Completed != 3 || c.Due != 2 || c.Dead != 1 || c.Ready+c.Running != 0 {
		t.Errorf("the queue: %+v, %v", c, err)
	}
	if err := check.Queue(context.Background(), q.Site()); err != nil {
		t.Error(err)
	}
}

// A job that is dropped, or runs without its lock, because the lock service is down, ends like others. Only the log
// shows it: once a minute for each kind.
func TestLogOfALockThatIsDown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server := redistest.Start(t)
	rdb, queue, key := server.Client(), redistest.Name(t), redistest.Name(t)
	up := newLocker(rdb)
	if _, err := up.Acquire(ctx, key); err != nil {
		t.Fatal(err)
	}
	proxy := redistest.NewProxy(t, server.Addr())
	proxy.Refuse(true)
	down := newLocker(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 }))

	var said bytes.Buffer // read when the worker has ended
	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{queue: {}}, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	s, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for kind, own := range map[string]signalbox.Middleware{
		"drop":        middleware.Lock(down, middleware.RawKey(key), middleware.WhenDown(middleware.PolicyDrop)),
		"anyway":      middleware.Lock(down, middleware.RawKey(key), middleware.WhenDown(middleware.PolicyRunAnyway)),
		"held.drop":   middleware.Lock(up, middleware.RawKey(key), middleware.WhenHeld(middleware.PolicyDrop)),
		"held.anyway": middleware.Lock(up, middleware.RawKey(key), middleware.WhenHeld(middleware.PolicyRunAnyway)),
	} {
		w.HandleKind(kind, signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }), worker.With(own))
		for range 3 {
			if _, err := s.Enqueue(ctx, note{kind}, scheduler.Queue(queue)); err != nil {
				t.Fatal(err)
			}
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	stopped := make(chan error)
	go func() { stopped <- w.Run(running) }()
	q := store.New(rdb, "", queue)
	redistest.Eventually(t, func() bool {
		c, err := q.Looks().Counts(ctx)
		return err == nil && c.Total.Completed == 12
	}, "the jobs are done")
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		`msg="signalbox: jobs of a kind are dropped, and their handler is not called" .*kind=drop `,
		`msg="signalbox: handlers of a kind run without their lock" .*kind=anyway `,
	} {
		line := regexp.MustCompile(`level=WARN ` + want + `attempt=1 token=[1-9]\d* error="the lock service is down: .*connection refused`)
		if n := len(line.FindAllString(said.String(), -1)); n != 1 {
			t.Errorf("the log has %d times, want once: %s", n, line)
		}
	}
	if n := strings.Count(said.String(), " of a kind "); n != 2 || t.Failed() {
		t.Errorf("%d lines about a kind, want 2:\n%s", n, said.String())
	}
}

// newLocker is lock.New with an optional Config, which must be valid.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
