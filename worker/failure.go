package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// RetryFor bounds the time in which jobs of this kind are retried: no second or later attempt begins more than d after the job was
// enqueued, by the clock of Redis. A job whose next attempt would begin later is dead at once. The time that a job with scheduler.After or
// scheduler.At waits for its first attempt counts, so d must be longer than that. The first attempt is made in any case. 0, the default, is no bound
// but the job's attempts.
//
// From the second attempt on, the bound holds for each delivery, whatever the job has waited for: a retry, a Snooze, the end of a worker
// that shut down or crashed, or an operator. A delivery that begins later makes the job dead, and the handler isn't called. While a job has
// no failed attempt, its snoozes and crashes are not bounded.
func RetryFor(d time.Duration) Option { return func(k *kind) { k.retryFor = d } }

// Terminal makes errors final: a job of this kind whose attempt fails with an error for which is returns true is dead, as after
// [signalbox.Dead]. is also sees panics, as [*signalbox.PanicError], and arguments that were refused, as
// [*signalbox.PayloadError]. It doesn't see Snooze and Cancel, nor the errors of a delivery whose context has ended because the worker shuts
// down or has lost the job: those aren't failed attempts. If Terminal is given several times, one that returns true is enough.
func Terminal(is func(error) bool) Option {
	return func(k *kind) { k.terminal = append(k.terminal, is) }
}

// An ErrorHandler sees the error of each failed attempt, and returns the one that counts: err itself, or
//
//   - nil: the job is completed
//   - [signalbox.Snooze], [signalbox.Cancel], [signalbox.Dead], [signalbox.RetryAfter]: what these say
//   - another error: it takes err's place in the log and in the job
//
// It is called in the handler's goroutine, outside of all middleware but that for traces and metrics, so it sees what middleware
// doesn't: panics, as [*signalbox.PanicError]. What [Terminal] has made final is a [*signalbox.DeadError]. It doesn't see Snooze and Cancel, nor the errors of a
// delivery whose context has ended because the worker shuts down or has lost the job: those aren't failed attempts. If it panics, the
// attempt has failed by that panic.
type ErrorHandler func(ctx context.Context, job *signalbox.Job, err error) error

// A Failure is a failed attempt, or the death of a job, for Config.OnRetry and Config.OnDead.
type Failure struct {
	// Job is the job as it was claimed. Its Payload and Headers are those that the handler had. If its record can't be read, it has
	// little more than an ID and a queue.
	Job signalbox.Job
	// Err is why. It wraps [signalbox.ErrCrashed] if the job's workers died.
	Err error
	// RetryIn is how long the job waits for its next attempt. It is 0 if the job is dead.
	RetryIn time.Duration
}

// policed returns the middleware for the kind's failures: none unless something is configured.
func (w *Worker) policed(k *kind) []signalbox.Middleware {
	var mw []signalbox.Middleware
	if f := w.cfg.ErrorHandler; f != nil {
		mw = append(mw, onFailure(f))
	}
	for _, is := range k.terminal {
		mw = append(mw, onFailure(func(_ context.Context, _ *signalbox.Job, err error) error {
			if isDead(err) || !is(err) {
				return err
			}
			return signalbox.Dead(err)
		}))
	}
	return mw
}

// onFailure passes the errors of failed attempts to f.
func onFailure(f ErrorHandler) signalbox.Middleware {
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			given := *job // the handler may change its own
			err := next.Handle(ctx, job)
			if err == nil || isDecision(err) || ctx.Err() != nil && context.Cause(ctx) != signalbox.ErrDeadline {
				return err
			}
			return f(ctx, &given, err)
		})
	}
}

// isDecision reports whether an error is no failed attempt.
func isDecision(err error) bool {
	_, snoozed := errors.AsType[*signalbox.SnoozeError](err)
	_, cancelled := errors.AsType[*signalbox.CancelError](err)
	return snoozed || cancelled || errors.Is(err, signalbox.ErrUnknownEncoding)
}

// isDead reports whether an error ends the job as dead.
func isDead(err error) bool {
	_, dead := errors.AsType[*signalbox.DeadError](err)
	return dead
}

// longestRetryAfter bounds what an error can ask for.
const longestRetryAfter = 24 * time.Hour

// RetryAllAfter holds back other jobs when an attempt of this kind fails with an error that has a method RetryAfter() time.Duration: until then no job of the
// job's group starts, or none of its queue if it has no group, as after [signalbox.RetryAllAfter]. Use it if such an error, like a 429 of an API, speaks for
// all of them. Without it only the job waits: the queue may have jobs that don't use that API at all.
func RetryAllAfter() Option { return func(k *kind) { k.retryAll = true } }

// retryAfter returns the delay that an error asks for, or 0, and whether it asks so for other jobs, too.
func retryAfter(err error) (in time.Duration, all bool) {
	if e, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		in = min(max(e.RetryAfter(), 0), longestRetryAfter)
		ours, _ := e.(*signalbox.RetryAfterError)
		return in, in > 0 && ours != nil && ours.All
	}
	return 0, false
}

// errRetryOver is the error of an attempt that is not made: the time to retry the job was over before a worker had it.
var errRetryOver = errors.New("the time to retry the job was over before a worker had it")

// begunTooLate reports whether an attempt must not be made any more, of a kind that is retried for some time only.
func (k *kind) begunTooLate(job *signalbox.Job) bool {
	return job.Attempt > 1 && job.ClaimedAt.Sub(job.EnqueuedAt) > k.retryFor
}

// outOfTime sets the delay until the next attempt, and reports whether that would begin too late.
func (h *handlers) outOfTime(r *store.Settlement, d *delivery, job *signalbox.Job, err error) bool {
	r.Delay = h.retryIn(d, job, err)
	most := h.q.w.kinds.of(job.Kind).retryFor
	elapsed := max(job.ClaimedAt.Sub(job.EnqueuedAt), 0) + time.Since(d.started)
	if most == 0 || r.Delay <= most-elapsed { // a sum with the delay could overflow
		return false
	}
	r.Delay = 0
	return true
}

// die makes a job dead after a failed attempt. why is the log's message.
func (h *handlers) die(r *store.Settlement, d *delivery, job *signalbox.Job, err error, why string) {
	r.Outcome = store.Dead
	r.Record = h.record(d, job, job.Attempt, err)
	h.q.log.Error(why, append(d.about(job, "error", brief(err)), h.stackOf(job.Kind, err)...)...)
}

// announce has OnRetry or OnDead called when Redis has confirmed the settlement.
func (h *handlers) announce(r *store.Settlement, d *delivery, job *signalbox.Job, err error) {
	f := h.q.w.cfg.OnDead
	if r.Outcome == store.Retry {
		f = h.q.w.cfg.OnRetry
	}
	if f == nil {
		return
	}
	failure := Failure{Job: *job, Err: err, RetryIn: r.Delay}
	signalbox.OnSettled(d, func(s signalbox.Settled) {
		if s.Outcome == s.Asked {
			h.q.w.hooks.add(func() { f(h.q.base, failure) })
		}
	})
}

// announceCrash has OnDead called for a job whose workers died.
func (q *queue) announceCrash(job *signalbox.Job) {
	f := q.w.cfg.OnDead
	if f == nil {
		return
	}
	failure := Failure{Job: *job, Err: fmt.Errorf("%w, %d times", signalbox.ErrCrashed, job.Crashes)}
	failure.Job.Namespace = q.w.namespace()
	q.w.hooks.add(func() { f(q.base, failure) })
}
