package middleware

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
)

const (
	defaultRetryIn = time.Second
	minRetryIn     = 10 * time.Millisecond
)

// A LockOption changes how [Lock] makes a named lock.
type LockOption func(*lockConfig)

type lockConfig struct {
	key     func(*signalbox.Job) string
	retryIn time.Duration
}

// Key names the lock: all handlers with this key and a locker on the same Redis exclude
// each other, whatever their job. The rules for keys are the locker's.
func Key(key string) LockOption {
	return KeyFunc(func(*signalbox.Job) string { return key })
}

// KeyFunc names the lock after the job. It must not change the job, and is called
// concurrently.
func KeyFunc(key func(*signalbox.Job) string) LockOption {
	return func(c *lockConfig) { c.key = key }
}

// RetryIn is the mean delay after which a job that found its lock held is run again; with
// jitter it is from half to one and a half of it. The default is 1 s, the least 10 ms.
func RetryIn(d time.Duration) LockOption { return func(c *lockConfig) { c.retryIn = d } }

// Lock runs handlers under a lock.
//
// With a nil locker it is the job's own lease, which the worker holds anyway: it costs no
// call. A handler does not start if its context has ended. If the lease was lost while it
// ran, an ordinary error of it wraps [lock.ErrLost] too; what it said by nil, a Snooze or a
// Cancel stands, and Redis refuses it if the job has been taken over. A worker wraps every
// handler in it by default.
//
// With a locker it is a named lock beside the lease. It is held while the handler runs,
// as by [lock.Hold]: extended at a third of its validity and released afterwards. The
// handler's context ends if either is lost, and [lock.FromContext] gives the named
// one. If another holds the lock, the handler is not called: the job is snoozed with
// jitter (see [RetryIn]), which frees its slot and uses no attempt. If the lock
// service fails, that is a failed attempt. If the lock was lost while the handler ran,
// the error wraps lock.ErrLost; one of the release alone is not the handler's and is
// dropped: the lock then ends with its TTL.
//
// The default key is "signalbox:lock:id:{queue}": other runs of the same job are excluded
// by another locker than its lease. Each key leaves a token counter in Redis for 7
// days, some 100 bytes; with many jobs, name something that they share.
func Lock(locker lock.Locker, opts ...LockOption) signalbox.Middleware {
	c := lockConfig{retryIn: defaultRetryIn}
	for _, opt := range opts {
		opt(&c)
	}
	if locker == nil && c.key != nil {
		return refuse(fmt.Errorf("%w: middleware.Lock has a key but no locker", signalbox.ErrInvalid))
	}
	if locker == nil {
		return ownLease
	}
	if c.key == nil {
		c.key = jobKey
	}
	c.retryIn = max(c.retryIn, minRetryIn)
	return func(next signalbox.Handler) signalbox.Handler {
		return &namedLock{locker: locker, config: c, next: next}
	}
}

// jobKey has the ID in the middle: one may end in ":fence", which a lock's key may not.
func jobKey(job *signalbox.Job) string {
	return "signalbox:lock:" + job.ID + ":{" + job.Queue + "}"
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
		if err != nil && ctx.Err() != nil && errors.Is(context.Cause(ctx), lock.ErrLost) && outcomeOf(context.Background(), err) == failed {
			return lostDuring(err)
		}
		return err
	})
}

// lostDuring is the error of a handler that was possibly not alone. A Snooze or Cancel of
// such a one does not count; what it says is kept for the log.
func lostDuring(err error) error {
	var snooze *signalbox.SnoozeError
	var cancel *signalbox.CancelError
	switch {
	case err == nil:
		return fmt.Errorf("while the handler ran: %w", lock.ErrLost)
	case errors.As(err, &snooze), errors.As(err, &cancel):
		return fmt.Errorf("while the handler ran: %w: %s", lock.ErrLost, err.Error())
	}
	return fmt.Errorf("while the handler ran: %w: %w", lock.ErrLost, err)
}

type namedLock struct {
	locker lock.Locker
	config lockConfig
	next   signalbox.Handler
}

func (n *namedLock) Handle(ctx context.Context, job *signalbox.Job) error {
	l, err := n.locker.TryAcquire(ctx, n.config.key(job))
	if errors.Is(err, lock.ErrHeld) {
		half := n.config.retryIn / 2
		return signalbox.Snooze(half + rand.N(2*half))
	}
	if err != nil {
		return err
	}
	var handled error
	called := false
	err = lock.Hold(ctx, l, func(ctx context.Context) error {
		called = true
		handled = n.next.Handle(ctx, job)
		return handled
	})
	switch {
	case !called:
		return err
	case errors.Is(err, lock.ErrLost) && !errors.Is(handled, lock.ErrLost):
		return lostDuring(handled)
	}
	return handled
}
