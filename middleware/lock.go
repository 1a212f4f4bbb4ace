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

// KeyPrefix stands before the names of [LockName] and [LockNameFunc] in Redis. The lock named "digest" is the key
// "signalbox:lock:digest". So a lock never uses the key of other data of the application. A hash tag in the name keeps
// its meaning: "{tenant}:digest" is in the slot of "tenant". To take part in the lock, another program locks the whole
// key, with package lock or another library.
const KeyPrefix = "signalbox:lock:"

// LockName names the lock. All handlers with this name and a locker on the same Redis exclude each other, whatever
// their job. The lock's key is [KeyPrefix] and the name. The name must not be empty. The locker may refuse some names.
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

// RawKey is [LockName] without a prefix: the lock's key is exactly this key. Use it for a lock that is shared with
// programs that don't know the prefix. The application must have no other data at this key.
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

// Lock runs handlers under a lock. If the lock is lost while a handler runs, the handler's context ends. If the handler
// then returns an error, Lock's error wraps [lock.ErrLost] as well. A nil, a Snooze and a Cancel keep their meaning:
// the work is done, and to do it again would not undo it.
//
// With a nil locker the lock is the job's own lease. The worker holds that anyway, so it costs no call. A handler does
// not start if its context has ended. If the job has been taken over, Redis refuses the outcome of the handler. A
// worker wraps every handler in Lock(nil) by default. Without a locker, options are refused.
//
// With a locker, such as a [*lock.Redis] or one of lock/redlock, lock/etcdlock, lock/zklock or lock/pglock, the lock is a named lock in addition to the lease.
// Pass it to worker.With for one handler, or to worker.Use for all. The lock is held while the handler runs, as by
// [lock.Hold]: it is extended after each third of its validity, and released afterwards. The handler's context ends if
// the named lock or the lease is lost. [lock.FromContext] returns the named lock. A failed release is not a failure of
// the handler: the lock ends with its TTL.
//
// If the lock can't be had, [WhenHeld] and [WhenDown] say what becomes of the job. By default the job is snoozed if
// another client holds the lock, and the attempt fails if the lock service is down. If the handler's context ended
// meanwhile, as in a shutdown, neither applies: the error wraps the context's cause. The [signalbox.SnoozeError] of a
// snooze has the reason: it wraps [lock.ErrHeld] if another client holds the lock.
//
// The default key is "signalbox:job-lock:id:{queue}". It excludes other runs of the same job, with another locker than
// that of the job's lease. Each key leaves a token counter in Redis for 7 days: some 205 bytes for a key of 20 bytes.
// So with many jobs, name the lock after something that they share.
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

// refuse returns a middleware that fails every delivery with err. A middleware can't return an error itself, and to run
// the handler without the lock would be worse.
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
			return nil // the result stands, and no span needs the event; reading the clocks can be a system call
		}
		if ctx.Err() != nil && errors.Is(context.Cause(ctx), lock.ErrLost) {
			return lostDuring(ctx, "the job's lease", err)
		}
		return err
	})
}

// lostDuring returns the handler's error, after the lock or lease was lost that what names. An ordinary error gets
// ErrLost and that name in front.
func lostDuring(ctx context.Context, what string, err error) error {
	trace.SpanFromContext(ctx).AddEvent(telemetry.EventLockLost)
	switch {
	case outcomeOf(context.Background(), err) == lost:
		return fmt.Errorf("%s was lost while the handler ran: %w", what, err)
	case outcomeOf(context.Background(), err) != failed:
		return err // the result stands, or the error says enough
	}
	return fmt.Errorf("%s was lost while the handler ran: %w: %w", what, lock.ErrLost, err)
}
