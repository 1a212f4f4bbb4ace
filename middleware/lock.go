package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A LockOption changes how [Lock] makes a named lock.
type LockOption func(*lockConfig)

type lockConfig struct {
	key                func(*signalbox.Job) string
	whenHeld, whenDown Policy
	wait, retryIn      time.Duration
	err                error // a mistake in the options
}

// Key names the lock: all handlers with this key and a locker on the same Redis exclude
// each other, whatever their job. The rules for keys are the locker's.
func Key(key string) LockOption {
	return KeyFunc(func(*signalbox.Job) string { return key })
}

// KeyFunc names the lock after the job. It must not change the job, and is called
// concurrently.
func KeyFunc(key func(*signalbox.Job) string) LockOption {
	return func(c *lockConfig) {
		if key == nil {
			c.err = fmt.Errorf("%w: middleware.Lock: KeyFunc is nil", signalbox.ErrInvalid)
		}
		c.key = key
	}
}

// Lock runs handlers under a lock. If that is lost while a handler runs, the handler's
// context ends, and an ordinary error of it wraps [lock.ErrLost] too. What it said by nil, a
// Snooze or a Cancel stands: the work is done, and to do it again would not undo it.
//
// With a nil locker it is the job's own lease, which the worker holds anyway: it costs no
// call. A handler does not start if its context has ended. If the job has been taken over,
// Redis refuses what the handler said. A worker wraps every handler in it by default.
// It takes no options.
//
// With a locker, a [*lock.Redis] or a [*lock.Redlock], it is a named lock beside the lease:
// for one handler by worker.With, for all by worker.Use. It is held while the handler
// runs, as by [lock.Hold]: extended at a third of its validity and released afterwards.
// The handler's context ends if either is lost, and [lock.FromContext] gives the named
// one. A release that fails is not the handler's failure: the lock then ends with its TTL.
//
// If the lock can't be had, [WhenHeld] and [WhenDown] say what becomes of the job: unless
// told otherwise it is snoozed while another holds the lock, and the attempt fails while
// the lock service is down. If the handler's context ended meanwhile, as in a shutdown,
// neither applies, and the error wraps its cause.
//
// The default key is "signalbox:lock:id:{queue}": other runs of the same job are excluded
// by another locker than its lease. Each key leaves a token counter in Redis for 7
// days, some 100 bytes; with many jobs, name something that they share.
//
// A mistake in the options fails every attempt with an error that wraps
// [signalbox.ErrInvalid]. On the current span, such as that of [Trace], a lost lock is the event
// "signalbox.lock.lost", and one that couldn't be had "signalbox.lock.unavailable".
func Lock(locker lock.Locker, opts ...LockOption) signalbox.Middleware {
	if locker == nil {
		if len(opts) != 0 {
			return refuse(fmt.Errorf("%w: middleware.Lock has options but no locker: they are for a named lock", signalbox.ErrInvalid))
		}
		return ownLease
	}
	c := lockConfig{whenHeld: Snooze, whenDown: Fail, retryIn: defaultRetryIn}
	for _, opt := range opts {
		opt(&c)
	}
	if err := c.check(); err != nil {
		return refuse(err)
	}
	if c.key == nil {
		c.key = jobKey
	}
	return func(next signalbox.Handler) signalbox.Handler {
		return &namedLock{locker: locker, config: c, next: next}
	}
}

// refuse fails every delivery: a middleware can't return its mistakes, and to run the
// handler without the lock would be worse.
func refuse(err error) signalbox.Middleware {
	return func(signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return err })
	}
}

func ownLease(next signalbox.Handler) signalbox.Handler {
	return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
		if _, ok := lock.FromContext(ctx); !ok {
			return fmt.Errorf("%w: the context carries no lease; the handler must be called by a worker, or under lock.NewContext", signalbox.ErrInvalid)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("handler not started: %w", context.Cause(ctx))
		}
		err := next.Handle(ctx, job)
		if err == nil && !trace.SpanFromContext(ctx).IsRecording() {
			return nil // it stands, and there is nobody to tell: to look at the clocks is a system call
		}
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), lock.ErrLost) {
			return lostDuring(ctx, err)
		}
		return err
	})
}

// lostDuring is the error of a handler that was possibly not alone.
func lostDuring(ctx context.Context, err error) error {
	trace.SpanFromContext(ctx).AddEvent(telemetry.EventLockLost)
	if outcomeOf(context.Background(), err) != failed {
		return err // it stands, or says enough
	}
	return fmt.Errorf("while the handler ran: %w: %w", lock.ErrLost, err)
}
