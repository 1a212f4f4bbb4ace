package middleware

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// A job is dropped because of another job, never because of its own earlier delivery. If a handler
// doesn't complete its job, it releases the lock at once, whatever the MinHold.
func TestDropIsNotForTheNextDeliveryOfTheSameJob(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, c := range map[string]struct {
		end  func() error // of the first delivery
		done bool
	}{
		"completed":   {func() error { return nil }, true},
		"cancelled":   {func() error { return signalbox.Cancel(errMine) }, true},
		"failed":      {func() error { return errMine }, false},
		"snoozed":     {func() error { return signalbox.Snooze(time.Second) }, false},
		"interrupted": {func() error { return signalbox.ErrShutdown }, false},
		"panicked":    {func() error { panic(errMine) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, _ := delivery(t, time.Hour)
			locker := newLocker(rdb, lock.Config{TTL: 24 * time.Hour, MinHold: 24 * time.Hour})
			mw := signalbox.Chain(Recover(), Lock(locker, RawKey(redistest.Name(t)), WhenHeld(PolicyDrop)))
			first := run(ctx, &signalbox.Job{Attempt: 1}, mw, func(context.Context, *signalbox.Job) error { return c.end() })
			again := false
			second := run(ctx, &signalbox.Job{Attempt: 2}, mw, func(context.Context, *signalbox.Job) error {
				again = true
				return nil
			})
			if again == c.done || second != nil {
				t.Errorf("first delivery: %v; the second ran: %v, %v", first, again, second)
			}
			// After the job is completed, others are dropped.
			if err := run(ctx, &signalbox.Job{Attempt: 1}, mw, handlerMustNotRun(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// The process died while it held the lock. The lock was not released, and the job is delivered again.
func TestDropIsNotForAJobThatCrashed(t *testing.T) {
	t.Parallel()
	ctx, _ := delivery(t, time.Hour)
	held := Lock(scriptedLocker{try: says(lock.ErrHeld)}, LockName("k"), WhenHeld(PolicyDrop))
	var snooze *signalbox.SnoozeError
	if err := run(ctx, &signalbox.Job{Crashes: 1}, held, handlerMustNotRun(t)); !errors.As(err, &snooze) {
		t.Errorf("after a crash: %v, want a snooze", err)
	}
	if err := run(ctx, &signalbox.Job{Attempt: 3}, held, handlerMustNotRun(t)); err != nil {
		t.Errorf("a retry, while another job holds the lock: %v, want a drop", err)
	}
}

// With the other policies, MinHold keeps runs apart even after a failure.
func TestMinHoldCountsForFailuresWithoutDrop(t *testing.T) {
	t.Parallel()
	ctx, _ := delivery(t, time.Hour)
	locker := newLocker(redistest.Start(t).Client(), lock.Config{TTL: time.Hour, MinHold: time.Hour})
	mw := Lock(locker, RawKey(redistest.Name(t)), WhenHeld(PolicyFail))
	if err := run(ctx, &signalbox.Job{}, mw, func(context.Context, *signalbox.Job) error { return errMine }); err != errMine {
		t.Error(err)
	}
	if err := run(ctx, &signalbox.Job{}, mw, handlerMustNotRun(t)); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("the second run: %v, want ErrHeld", err)
	}
}

// The delays of snoozed jobs are from half to one and a half of RetryIn, and come near both ends. With
// 300 samples, an outer tenth stays empty once in 10^13 runs.
func TestSnoozesAreSpread(t *testing.T) {
	t.Parallel()
	ctx, _ := delivery(t, time.Hour)
	for _, answer := range []error{lock.ErrHeld, errDown} {
		mw := Lock(scriptedLocker{try: says(answer)}, WhenDown(PolicySnooze), RetryIn(time.Minute))
		shortest, longest := time.Hour, time.Duration(0)
		for range 300 {
			var snooze *signalbox.SnoozeError
			if err := run(ctx, &signalbox.Job{}, mw, handlerMustNotRun(t)); !errors.As(err, &snooze) {
				t.Fatal(err)
			}
			shortest, longest = min(shortest, snooze.Delay), max(longest, snooze.Delay)
		}
		if shortest < 30*time.Second || shortest > 36*time.Second || longest < 84*time.Second || longest >= 90*time.Second {
			t.Errorf("%v: snoozed for %v to %v, want 30 s to 90 s", answer, shortest, longest)
		}
	}
}
