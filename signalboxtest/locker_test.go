package signalboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// registerLocked registers a handler that runs under a lock of the user.
func registerLocked(w *worker.Worker, locker lock.Locker, fn func(ctx context.Context) error) {
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ Welcome) error { return fn(ctx) },
		worker.LockBy(locker, func(in Welcome) string { return fmt.Sprintf("user:%d", in.UserID) }))
}

// TestLockInChain: the handler runs under the lock, and the lock is free when it has returned, also after a panic.
func TestLockInChain(t *testing.T) {
	t.Parallel()
	jobs := signalboxtest.New(t)
	w, err := worker.New(jobs.Client(), worker.Config{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	var tokens []int64
	registerLocked(w, jobs.Locker(), func(ctx context.Context) error {
		l, ok := lock.FromContext(ctx)
		if !ok || l.Key() != middleware.KeyPrefix+"user:1" || time.Until(l.Until()) < time.Hour {
			t.Errorf("the handler is under %v", l)
		}
		tokens = append(tokens, l.Token())
		if _, err := jobs.Locker().TryAcquire(ctx, l.Key()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("its lock can be had: %v", err)
		}
		other, err := jobs.Locker().TryAcquire(ctx, middleware.KeyPrefix+"user:2")
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Release(ctx); err != nil {
			t.Error(err)
		}
		panic("planned")
	})
	for range 2 {
		if v := jobs.Work(t.Context(), w, jobs.NewJob(Welcome{UserID: 1})); v.Outcome != signalbox.OutcomeRetried {
			t.Error(v)
		}
	}
	if len(tokens) != 2 || tokens[0] >= tokens[1] {
		t.Errorf("tokens %d: want two that rise", tokens)
	}
}

// TestLocker: what lock.Lock says of a lock's context and of a release.
func TestLocker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locker := signalboxtest.New(t).Locker()
		if _, err := locker.Acquire(t.Context(), ""); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("an empty key: %v", err)
		}
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 7))
		l, err := locker.Acquire(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if l.Context().Err() != nil || l.Context().Value(key{}) != 7 {
			t.Error("the lock's context ends with that of the call, or has none of its values")
		}
		if _, err := locker.Acquire(ctx, "other"); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}

		// A waiter gives up with its context, and another one gets the lock when it is released.
		short, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := locker.Acquire(short, "k"); !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait in vain: %v", err)
		}
		got := make(chan lock.Lock)
		go func() {
			l, err := locker.Acquire(t.Context(), "k")
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		synctest.Wait()
		if err := l.Extend(t.Context()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if l.Context().Err() == nil || !errors.Is(l.Extend(t.Context()), lock.ErrLost) {
			t.Error("the lock goes on after its release")
		}
		next := <-got
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := locker.TryAcquire(t.Context(), "k"); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a second release has freed the lock of another: %v", err)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
