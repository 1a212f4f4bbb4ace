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
	name               func(*signalbox.Job) string // nil: the job's own
	prefix             string                      // of the lock's key, before the name
	whenHeld, whenDown Policy
	wait, retryIn      time.Duration
	err                error // a mistake in the options
}

// KeyPrefix stands before the names of [LockName] and [LockNameFunc] in Redis: the lock named
// "digest" is the key "signalbox:lock:digest". So no lock has the key of something else in the application.
// A hash tag in the name stays one: "{tenant}:digest" is in the slot of "tenant". To take part in the lock, another
// program locks the whole key, with package lock or another library.
const KeyPrefix = "signalbox:lock:"

// LockName names the lock. All handlers with this name and a locker on the same Redis exclude
// each other, whatever their job. The lock's key is [KeyPrefix] and the name. The name must not be empty;
// the locker may refuse other keys.
func LockName(name string) LockOption {
	return named(func(*signalbox.Job) string { return name }, KeyPrefix)
}

// LockNameFunc is [LockName] with a name that depends on the job. The function must not change the job, and is called
// concurrently. worker.LockBy names a lock after the job's arguments.
func LockNameFunc(name func(*signalbox.Job) string) LockOption {
	if name == nil {
		return mistaken("LockNameFunc is nil")
	}
	return named(name, KeyPrefix)
}

// RawKey is [LockName] without a prefix: the lock is exactly this key. It is for a lock that is shared with
// programs that don't know the prefix. The application must have nothing else at this key.
func RawKey(key string) LockOption {
	return named(func(*signalbox.Job) string { return key }, "")
}

// RawKeyFunc is [LockNameFunc] without a prefix.
func RawKeyFunc(key func(*signalbox.Job) string) LockOption {
	if key == nil {
		return mistaken("RawKeyFunc is nil")
	}
	return named(key, "")
}

func named(name func(*signalbox.Job) string, prefix string) LockOption {
	return func(c *lockConfig) { c.name, c.prefix = name, prefix }
}

func mistaken(what string) LockOption {
	return func(c *lockConfig) {
		c.err = errors.Join(c.err, fmt.Errorf("%w: middleware.Lock: %s", signalbox.ErrInvalid, what))
	}
}

// Lock runs handlers under a lock. If the lock is lost while a handler runs, the handler's
// context ends. If the handler then returns an error, that wraps [lock.ErrLost] too. A nil, a
// Snooze and a Cancel still count as what they are: the work is done, and to do it again would not undo it.
//
// With a nil locker the lock is the job's own lease. The worker holds that anyway, so it costs no
// call. A handler does not start if its context has ended. If the job has been taken over,
// Redis refuses the outcome of the handler. A worker wraps every handler in Lock(nil) by default.
// Without a locker there are no options.
//
// With a locker, a [*lock.Redis] or the one of package lock/redlock, it is a named lock beside the lease:
// for one handler by worker.With, for all by worker.Use. It is held while the handler
// runs, as by [lock.Hold]: it is extended at a third of its validity, and released afterwards.
// The handler's context ends if the named lock or the lease is lost. [lock.FromContext] returns the named
// lock. If the release fails, the handler has not failed: the lock ends with its TTL.
//
// If the lock can't be had, [WhenHeld] and [WhenDown] say what becomes of the job. By default
// the job is snoozed if another holds the lock, and the attempt fails if
// the lock service is down. If the handler's context ended meanwhile, as in a shutdown,
// neither applies, and the error wraps the context's cause. The
// [signalbox.SnoozeError] of a snooze says why: it wraps [lock.ErrHeld] if another holds the lock.
//
// The default key is "signalbox:job-lock:id:{queue}". It excludes other runs of the same job, by another locker than the
// job's lease. Each key leaves a token counter in Redis for 7
// days, some 205 bytes with a key of 20. So with many jobs, name something that they share.
//
// A mistake in the options fails every attempt with an error that wraps
// [signalbox.ErrInvalid]. On the current span, such as that of [Trace], a lost lock is the event
// "signalbox.lock.lost". A lock that couldn't be had is the event "signalbox.lock.unavailable".
func Lock(locker lock.Locker, opts ...LockOption) signalbox.Middleware {
	if locker == nil {
		if len(opts) != 0 {
			return refuse(fmt.Errorf("%w: middleware.Lock has options but no locker: they are for a named lock", signalbox.ErrInvalid))
		}
		return ownLease
	}
	c := lockConfig{whenHeld: PolicySnooze, whenDown: PolicyFail, retryIn: defaultRetryIn}
	for _, opt := range opts {
		opt(&c)
	}
	if err := c.check(); err != nil {
		return refuse(err)
	}
	if c.name == nil {
		c.name, c.prefix = jobName, jobPrefix
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
			return lostDuring(ctx, "the job's lease", err)
		}
		return err
	})
}

// lostDuring returns the error of a handler that was possibly not alone, since what was lost.
func lostDuring(ctx context.Context, what string, err error) error {
	trace.SpanFromContext(ctx).AddEvent(telemetry.EventLockLost)
	switch {
	case outcomeOf(context.Background(), err) == lost:
		return fmt.Errorf("%s was lost while the handler ran: %w", what, err)
	case outcomeOf(context.Background(), err) != failed:
		return err // it stands, or says enough
	}
	return fmt.Errorf("%s was lost while the handler ran: %w: %w", what, lock.ErrLost, err)
}
