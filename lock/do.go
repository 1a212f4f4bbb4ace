package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// soonestRenewal is the least pause between renewals, for a lease that is very short or nearly over.
const soonestRenewal = 2 * time.Millisecond

// Do runs fn under the lock of key. It waits for the lock until ctx ends, then does what
// [Hold] does. If the error wraps [ErrHeld], fn was not called.
func Do(ctx context.Context, locker Locker, key string, fn func(context.Context) error) error {
	l, err := locker.Acquire(ctx, key)
	if err != nil {
		return err
	}
	return Hold(ctx, l, fn)
}

// Hold runs fn under l. It takes l over: it extends l at a third of its validity while fn runs,
// and releases it when fn has returned or panicked.
//
// The context of fn has the values of ctx, and carries l for [FromContext]. It ends with
// ctx. It ends with cause [ErrLost] when the lease is lost; like l.Context its Err reads
// the clock. An extension that fails is tried again as long as the lease lasts.
//
// Hold returns when fn has returned. Its error joins those of fn and of the release. If the release
// fails with an error that wraps ErrLost, fn was not alone all the time. After any other error of the
// release the lock may stay until its TTL is over. If the lease or ctx has ended before,
// fn is not called. No goroutine stays behind, except those that make calls: they end within a
// tenth of a second.
func Hold(ctx context.Context, l Lock, fn func(context.Context) error) (err error) {
	joined := lease.Join(ctx, l.Context())
	stop := renew(l, joined.End)
	defer func() {
		// This runs also when fn panics. The order matters: no renewal may outlive the release, and
		// the release ends the lease but not the context of fn.
		lost := l.Context().Err() != nil && errors.Is(context.Cause(l.Context()), ErrLost)
		stop()
		joined.End(context.Canceled)
		released := l.Release(ctx)
		if lost && !errors.Is(released, ErrLost) {
			released = errors.Join(released, fmt.Errorf("lock: %.200q: %w", l.Key(), ErrLost))
		}
		if errors.Is(err, ErrLost) && errors.Is(released, ErrLost) && (errors.Is(err, ErrTaken) || !errors.Is(released, ErrTaken)) {
			return // the error of fn says it already
		}
		err = errors.Join(err, released)
	}()
	if joined.Err() != nil {
		return fmt.Errorf("lock: %.200q: ended before its use: %w", l.Key(), lease.Ended(joined))
	}
	return fn(NewContext(joined, l))
}

// renew extends l until the returned function is called. That function returns when renew's goroutine has
// ended. If an extension finds the lease lost, lost is called.
func renew(l Lock, lost context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(l.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// The next renewal is due at a third of what remains. So after a failure the tries
		// come faster, and the last is shortly before the end.
		timer := time.NewTimer(max(time.Until(l.Until())/3, soonestRenewal))
		defer timer.Stop()
		for {
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			// A call that hangs must leave time for another.
			callCtx, cancelCall := context.WithTimeout(ctx, time.Until(l.Until())/2)
			err := l.Extend(callCtx)
			cancelCall()
			if errors.Is(err, ErrLost) {
				lost(ErrLost)
				return
			}
			timer.Reset(max(time.Until(l.Until())/3, soonestRenewal))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
