package middleware

import (
	"context"
	"errors"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
)

// outcome is how a delivery ended according to its handler's error. It is not yet known what becomes of the job, a
// [signalbox.Outcome]: only the worker knows whether the job runs again, and only Redis knows whether the delivery
// still counts. Where both types have the same meaning, they use the same word.
type outcome string

const (
	completed = outcome(signalbox.OutcomeCompleted)
	snoozed   = outcome(signalbox.OutcomeSnoozed)
	cancelled = outcome(signalbox.OutcomeCancelled)

	shutdown outcome = "shutdown" // given back
	failed   outcome = "failed"
	timedOut outcome = "timeout"
	panicked outcome = "panic"
	lost     outcome = "lost"
)

// outcomeOf returns the outcome for the error that a handler returned. ctx is the delivery's context or one derived
// from it. If a method of the error panics, that counts as a panic of the handler.
func outcomeOf(ctx context.Context, err error) (how outcome) {
	if err == nil {
		return completed // without a look at ctx, which might read the clocks
	}
	defer func() {
		if recover() != nil {
			how = panicked
		}
	}()
	cause := context.Cause(ctx) // a handler may return only ctx.Err()
	switch {
	case is[*signalbox.SnoozeError](err): // the handler's decision stands, as for the worker
		return snoozed
	case is[*signalbox.CancelError](err):
		return cancelled
	case errors.Is(err, lock.ErrLost), errors.Is(cause, lock.ErrLost):
		return lost
	case is[*signalbox.PanicError](err):
		return panicked
	case errors.Is(err, signalbox.ErrTimeout), errors.Is(cause, signalbox.ErrTimeout):
		return timedOut
	case errors.Is(cause, signalbox.ErrShutdown): // err may be of another shutdown, which gives no job back
		return shutdown
	case errors.Is(cause, signalbox.ErrCancelled):
		return cancelled
	}
	return failed
}

// is reports whether an error in the tree of err is of type E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isFailure reports whether somebody should look at it.
func (o outcome) isFailure() bool {
	switch o {
	case completed, snoozed, cancelled, shutdown:
		return false
	}
	return true
}
