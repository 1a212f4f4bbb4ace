package middleware

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// jobPrefix is the prefix of locks without a name. It differs from KeyPrefix: so no name equals a job's key.
const jobPrefix = "signalbox:job-lock:"

// jobName returns the default name. The ID is not at its end: an ID may end in ":fence", and a lock's key may not.
func jobName(job *signalbox.Job) string { return job.ID + ":{" + job.Queue + "}" }

type namedLock struct {
	locker lock.Locker
	config lockConfig
	next   signalbox.Handler
}

func (n *namedLock) Handle(ctx context.Context, job *signalbox.Job) error {
	key, err := n.key(job)
	if err != nil {
		return err
	}
	l, err := n.acquire(ctx, key)
	if err != nil {
		return n.without(ctx, job, err)
	}
	var drops *droppingLock
	if n.config.whenHeld == PolicyDrop {
		drops = &droppingLock{Lock: l}
		l = drops
	}
	var handled error
	called, mine := false, false
	err = lock.Hold(ctx, l, func(held context.Context) error {
		called = true
		handled = n.next.Handle(held, job)
		mine = l.Context().Err() == nil && ctx.Err() != nil // the lock still lasts, and the job's lease has ended
		if drops != nil {
			drops.done = handled == nil || is[*signalbox.CancelError](handled)
		}
		return handled
	})
	switch {
	case !called:
		return n.without(ctx, job, err)
	case errors.Is(err, lock.ErrLost):
		what := fmt.Sprintf("the lock %q", key)
		if mine {
			what = "the job's lease"
		}
		return lostDuring(ctx, what, handled)
	}
	return handled
}

// key returns the lock's key for the job. It refuses an empty name: all programs that forget a name would share that
// lock.
func (n *namedLock) key(job *signalbox.Job) (string, error) {
	name := n.config.name(job)
	if name == "" {
		return "", fmt.Errorf("%w: middleware.Lock: the lock's name is empty; LockName and LockNameFunc must give one", lock.ErrInvalid)
	}
	return n.config.prefix + name, nil
}

// A droppingLock is a lock that makes others drop their jobs. If its own job is not done, it is released at once,
// whatever the locker's MinHold. Otherwise the job's next delivery would be dropped as well.
type droppingLock struct {
	lock.Lock
	done bool // the job has come to its end
}

func (l *droppingLock) Release(ctx context.Context) error {
	if early, ok := l.Lock.(interface{ ReleaseNow(context.Context) error }); ok && !l.done {
		return early.ReleaseNow(ctx)
	}
	return l.Lock.Release(ctx)
}

// acquire tries once. It waits only if the answer is that another client holds the lock. So if the wait ends in vain,
// the error is lock.ErrHeld, whatever the locker returns then. If the service hangs, the first try has no answer, and
// the error is another one. Traces and metrics count both calls as one.
func (n *namedLock) acquire(ctx context.Context, key string) (l lock.Lock, err error) {
	if n.config.wait > 0 {
		var asks *telemetry.Asks
		ctx, asks = telemetry.JoinAsks(ctx)
		defer func() { asks.End(errors.Is(err, lock.ErrHeld)) }()
	}
	start := time.Now()
	l, err = n.locker.TryAcquire(ctx, key)
	left := n.config.wait - time.Since(start)
	if !errors.Is(err, lock.ErrHeld) || left <= 0 || ctx.Err() != nil {
		return l, err
	}
	waiting, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	l, err = n.locker.Acquire(waiting, key)
	if err != nil && waiting.Err() != nil && !errors.Is(err, lock.ErrHeld) {
		err = fmt.Errorf("%w: %w", lock.ErrHeld, err)
	}
	return l, err
}

// without applies the policy for a lock that can't be had.
func (n *namedLock) without(ctx context.Context, job *signalbox.Job, err error) error {
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return fmt.Errorf("handler not started: %w", err)
	}
	if isMistake(err) {
		return err
	}
	policy, outcome, reason := n.config.whenDown, telemetry.LockFailed, error(&downError{err})
	if errors.Is(err, lock.ErrHeld) {
		policy, outcome, reason = n.config.whenHeld, telemetry.LockHeld, err
		if policy == PolicyDrop && job.Crashes > 0 {
			policy = PolicySnooze // the holder may be the delivery that crashed
		}
	}
	trace.SpanFromContext(ctx).AddEvent(telemetry.EventLockUnavailable, trace.WithAttributes(
		telemetry.LockOutcome.String(outcome), telemetry.LockPolicy.String(policy.String())))
	if outcome == telemetry.LockFailed && (policy == PolicyDrop || policy == PolicyRunAnyway) { // the errors of the other policies are logged anyway
		if log, ok := ctx.Value(telemetry.LockLogKey{}).(telemetry.LockLog); ok {
			log.LockDown(policy == PolicyRunAnyway, reason)
		}
	}
	switch policy {
	case PolicySnooze:
		half := n.config.retryIn / 2
		return &signalbox.SnoozeError{Delay: half + rand.N(2*half), Err: reason}
	case PolicyDrop:
		return nil
	case PolicyRunAnyway:
		return n.next.Handle(ctx, job)
	}
	return err
}

// isMistake reports whether err is a mistake in the configuration, which a later try doesn't heal, instead of an
// outage. With a Redlock, nodes that are set up wrongly are a mistake only if all other nodes together are too few.
func isMistake(err error) bool {
	var quorum *lock.QuorumError
	if !errors.Is(err, lock.ErrInvalid) || !errors.As(err, &quorum) {
		return errors.Is(err, lock.ErrInvalid)
	}
	able := quorum.Held
	for _, node := range quorum.Nodes {
		if !errors.Is(node.Err, lock.ErrInvalid) {
			able++
		}
	}
	return able < quorum.Need
}

// A downError means that it is not known whether the lock is held.
type downError struct{ err error }

func (e *downError) Error() string { return "the lock service is down: " + e.err.Error() }

func (e *downError) Unwrap() error { return e.err }
