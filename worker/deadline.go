package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A tardyError is that of a delivery which came to its worker when the deadline of its job was over. No handler is called.
type tardyError struct {
	deadline time.Time
	last     string // the last error of the job
}

func (e *tardyError) Error() string {
	text := fmt.Sprintf("%v: no worker had the job for another attempt before %s", signalbox.ErrDeadline, e.deadline.UTC().Format(time.RFC3339Nano))
	if e.last != "" {
		text += "; the last error: " + e.last
	}
	return text
}

func (e *tardyError) Unwrap() error { return signalbox.ErrDeadline }

// isTardy reports whether the deadline of the job was over before the delivery came.
func isTardy(err error) bool {
	_, tardy := errors.AsType[*tardyError](err)
	return tardy
}

// timeLeft returns how long it is until the deadline of a delivery's job, by the clock of Redis: 0 or less if that is over.
func (d *delivery) timeLeft(job *signalbox.Job) time.Duration {
	return job.Deadline.Sub(job.ClaimedAt) - time.Since(d.started)
}

// handleInTime calls the handler of a job that has a deadline, with a context that ends then.
func (d *delivery) handleInTime(next signalbox.Handler) error {
	job := d.claimed.Job
	bounded := lease.Bound(d, d.timeLeft(job), signalbox.ErrDeadline)
	defer bounded.End(nil)
	err := next.Handle(bounded, job)
	if err == nil || isDecision(err) || errors.Is(err, signalbox.ErrDeadline) || context.Cause(bounded) != signalbox.ErrDeadline {
		return err
	}
	return fmt.Errorf("%w: %w", signalbox.ErrDeadline, err)
}

// noTimeFor reports whether the job has a deadline, and would be due at or after it if it were put off by delay.
func (d *delivery) noTimeFor(job *signalbox.Job, delay time.Duration) bool {
	return !job.Deadline.IsZero() && d.timeLeft(job) <= max(delay, 0)
}

// outlive makes a job dead that can't be put off any more, since it would be due at or after its deadline. what is what isn't made, and attempts is how many have
// failed. It returns why the job is dead.
func (h *handlers) outlive(r *store.Settlement, d *delivery, job *signalbox.Job, attempts int, what string, err error) error {
	why := fmt.Errorf("%w: the %s would be due at %s or later: %w", signalbox.ErrDeadline, what, job.Deadline.UTC().Format(time.RFC3339Nano), err)
	r.Outcome, r.Delay = store.Dead, 0
	r.Record = h.record(d, job, attempts, why)
	h.q.log.Error("signalbox: a job is dead: there is no time for another attempt before its deadline",
		append(d.about(job, "deadline", job.Deadline, "error", brief(err)), h.stackOf(job.Kind, err)...)...)
	return why
}
