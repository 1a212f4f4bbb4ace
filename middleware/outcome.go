package middleware

import (
	"context"
	"errors"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
)

// outcome is how a delivery ended by its handler's error. What becomes of the job, a [signalbox.Outcome], is not known yet: only the
// worker knows whether it runs again, and only Redis whether the answer counts. Where both say the same, they use the same word.
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

// outcomeOf returns the outcome for the error that a handler returned. ctx is the delivery's context or one derived from it.
// If a method of the error panics, that counts as a panic of the handler.
func outcomeOf(ctx context.Context, err error) (how outcome) {
	if err == nil {
		return completed // whatever ctx says, which may look at the clock to say it
	}
	defer func() {
		if recover() != nil {
			how = panicked
		}
	}()
	cause := context.Cause(ctx) // a handler may return no more than ctx.Err()
	switch {
	case is[*signalbox.SnoozeError](err): // what it decided stands, as for the worker
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
	}
	return failed
}

// is reports whether an error in the tree of err is of type E.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isFailure reports whether it is somebody's to look at.
func (o outcome) isFailure() bool {
	switch o {
	case completed, snoozed, cancelled, shutdown:
		return false
	}
	return true
}
