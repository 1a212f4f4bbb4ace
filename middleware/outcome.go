package middleware

import (
	"context"
	"errors"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
)

// outcome is how a delivery ended, as far as its handler's error tells.
type outcome string

const (
	completed outcome = "completed"
	snoozed   outcome = "snoozed"
	cancelled outcome = "cancelled"
	shutdown  outcome = "shutdown" // given back
	failed    outcome = "failed"
	timedOut  outcome = "timeout"
	panicked  outcome = "panic"
	lost      outcome = "lost"
)

// outcomeOf sorts the error that a handler returned under ctx.
func outcomeOf(ctx context.Context, err error) outcome {
	var (
		snooze *signalbox.SnoozeError
		cancel *signalbox.CancelError
		caught *signalbox.PanicError
	)
	cause := context.Cause(ctx) // a handler may return no more than ctx.Err()
	switch {
	case err == nil:
		return completed
	case errors.Is(err, lock.ErrLost), errors.Is(cause, lock.ErrLost):
		return lost
	case errors.As(err, &snooze):
		return snoozed
	case errors.As(err, &cancel):
		return cancelled
	case errors.As(err, &caught):
		return panicked
	case errors.Is(err, signalbox.ErrTimeout), errors.Is(cause, signalbox.ErrTimeout):
		return timedOut
	case errors.Is(err, signalbox.ErrShutdown), errors.Is(cause, signalbox.ErrShutdown):
		return shutdown
	}
	return failed
}

// isFailure tells whether it is somebody's to look at.
func (o outcome) isFailure() bool {
	switch o {
	case completed, snoozed, cancelled, shutdown:
		return false
	}
	return true
}
