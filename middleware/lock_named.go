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

// jobKey has the ID in the middle: one may end in ":fence", which a lock's key may not.
func jobKey(job *signalbox.Job) string {
	return "signalbox:lock:" + job.ID + ":{" + job.Queue + "}"
}

type namedLock struct {
	locker lock.Locker
	config lockConfig
	next   signalbox.Handler
}

func (n *namedLock) Handle(ctx context.Context, job *signalbox.Job) error {
	l, err := n.acquire(ctx, n.config.key(job))
	if err != nil {
		return n.without(ctx, job, err)
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
		return n.without(ctx, job, err)
	case errors.Is(err, lock.ErrLost):
		return lostDuring(ctx, handled)
	}
	return handled
}

// acquire waits only for a lock that it was told is held. So when the waiting is over
// that is the reason, whatever the locker says, and a service that hangs is not taken
// for one. Traces and metrics tell of both calls as of one.
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

// without does what the policy says about a lock that can't be had.
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
	policy, outcome := n.config.whenDown, telemetry.LockFailed
	if errors.Is(err, lock.ErrHeld) {
		policy, outcome = n.config.whenHeld, telemetry.LockHeld
	}
	trace.SpanFromContext(ctx).AddEvent(telemetry.EventLockUnavailable, trace.WithAttributes(
		telemetry.LockOutcome.String(outcome), telemetry.LockPolicy.String(policy.String())))
	switch policy {
	case Snooze:
		half := n.config.retryIn / 2
		return signalbox.Snooze(half + rand.N(2*half))
	case Drop:
		return nil
	case RunAnyway:
		return n.next.Handle(ctx, job)
	}
	return err
}

// isMistake tells whether no outage has to end but a mistake. Of the nodes of a Redlock, those that
// are set up wrongly are one if the others are too few even when all of them are up.
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
