package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// maxLastError bounds the message of a failed attempt that is kept with the job, in bytes.
const maxLastError = 2048

// serve runs the deliveries of one slot until the queue closes it.
func (q *queue) serve(place int) {
	for d := range q.slots[place].work {
		q.deliver(place, d)
	}
}

// deliver runs the handler of one delivery.
func (q *queue) deliver(place int, d delivery) {
	result := store.Settlement{
		ID: d.Job.ID, Kind: d.Job.Kind, Attempt: d.Job.Attempt, Token: d.Job.Token, Prio: d.Job.Priority, Suspect: d.Job.Crashes >= store.SuspectAt,
	}
	job := *d.Job // the handler may change its own
	err := errGoexit
	defer func() {
		q.judgeAny(&result, d, &job, err)
		d.watch.settling(d.session.validity.Context(), &result, d.Err == nil && err != errPutBack)
		q.finish(d, place, result)
		if err == errGoexit {
			q.handlers.Go(func() { q.serve(place) }) // in place of this goroutine, which ends
		}
	}()
	err = q.handle(d)
}

// errGoexit is what a handler that ends its goroutine is taken to have returned.
var errGoexit = errors.New("the handler called runtime.Goexit")

// errPutBack says that the job goes back to due: it is not for this worker.
var errPutBack = errors.New("no handler for this kind")

// handle calls the handler. Recover is inside of what traces and measures, which look at the
// handler's error: its methods may panic.
func (q *queue) handle(d delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &signalbox.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if d.Err != nil {
		q.countUnhandled(d)
		return d.Err
	}
	k := q.w.kinds[d.Job.Kind]
	if k == nil {
		q.countUnhandled(d)
		return errPutBack
	}
	// middleware.Lock refuses to start it if the lease has ended.
	ctx := lock.NewContext(d.session.validity.Context(), &lease{
		queue: d.Job.Queue, id: d.Job.ID, token: d.Job.Token, validity: d.session.validity,
	})
	if d.watch != nil {
		ctx = telemetry.ContextWithDelivery(ctx, &d.watch.Delivery)
	}
	return k.chain.Handle(ctx, d.Job)
}

// countUnhandled counts a delivery that gets to no handler.
func (q *queue) countUnhandled(d delivery) {
	if d.watch != nil {
		kind := q.w.metricKind(&d.Delivery)
		q.w.consumer.Delivered(q.base, q.store.Name(), kind)
		d.watch.OnSettled(func(s telemetry.Settled) { q.w.consumer.Settled(q.base, q.store.Name(), kind, s) })
	}
}

// judgeAny is judge of an error that may be broken: its methods are the user's, and may panic.
func (q *queue) judgeAny(r *store.Settlement, d delivery, job *signalbox.Job, err error) {
	defer func() {
		if p := recover(); p != nil {
			q.judge(r, d, job, &signalbox.PanicError{Value: "the handler's error, when it was looked at", Stack: debug.Stack()})
		}
	}()
	q.judge(r, d, job, err)
}

// judge decides what becomes of the job.
func (q *queue) judge(r *store.Settlement, d delivery, job *signalbox.Job, err error) {
	snooze, snoozed := errors.AsType[*signalbox.SnoozeError](err)
	cancel, cancelled := errors.AsType[*signalbox.CancelError](err)
	switch {
	case err == nil:
		r.Outcome = store.Completed
	case d.Newer():
		r.Outcome, r.Delay = store.Delay, putBack()
		q.warn("newer", "signalbox: a job was written by a newer release, and is put back", "job", job.ID, "token", job.Token, "error", err, "next_try", r.Delay)
	case d.Err != nil:
		r.Outcome = store.Dead
		q.log.Error("signalbox: a job is dead: its record can't be read; it is kept as it is", "job", job.ID, "token", job.Token, "error", err)
	case err == errPutBack:
		r.Outcome, r.Delay = store.Delay, putBack()
		q.warn("kind:"+job.Kind, "signalbox: no handler is registered for a kind; its jobs are put back", d.about(job, "next_try", r.Delay)...)
	case snoozed:
		r.Outcome, r.Delay = store.Delay, snooze.Delay
	case cancelled:
		r.Outcome = store.Cancelled
		r.Record = q.record(d, job, job.Attempt-1, cancel)
		q.log.Info("signalbox: a job is cancelled", d.about(job, "error", err)...)
	case d.session.over():
		r.Outcome = store.Return
		q.log.Info("signalbox: a job is given back", d.about(job, "cause", context.Cause(d.session.validity.Context()))...)
	case job.Attempt >= job.MaxAttempts:
		r.Outcome = store.Dead
		r.Record = q.record(d, job, job.Attempt, err)
		q.log.Error("signalbox: a job is dead: its attempts are used up",
			append(d.about(job, "error", err), stackOf(err)...)...)
	default:
		r.Outcome, r.Delay = store.Retry, q.retryIn(d, job, err)
		r.Record = q.record(d, job, job.Attempt, err)
		q.log.Warn("signalbox: an attempt failed",
			append(d.about(job, "max_attempts", job.MaxAttempts, "retry_in", r.Delay, "error", err), stackOf(err)...)...)
	}
}

// stackOf is the log attribute with the stack of a panic.
func stackOf(err error) []any {
	panicked, ok := errors.AsType[*signalbox.PanicError](err)
	if !ok {
		return nil
	}
	return []any{"stack", string(panicked.Stack)}
}

// putBack is how long a job waits that no worker here can run: a deployment may be under way.
func putBack() time.Duration {
	return 30*time.Second + rand.N(30*time.Second)
}

// record is the delivery's record after that many failed attempts.
func (q *queue) record(d delivery, job *signalbox.Job, attempts int, err error) []byte {
	msg := err.Error()
	if len(msg) > maxLastError {
		msg = strings.ToValidUTF8(msg[:maxLastError], "") + "..."
	}
	record, err := d.Failed(attempts, msg)
	if err != nil {
		q.log.Error("signalbox: a record was not updated", d.about(job, "error", err)...)
		return nil // the old one stays
	}
	return record
}

// retryIn asks the kind's policy. One that panics doesn't take the process down.
func (q *queue) retryIn(d delivery, job *signalbox.Job, err error) (in time.Duration) {
	defer func() {
		if p := recover(); p != nil {
			q.log.Error("signalbox: a retry policy panicked; the default is used", d.about(job, "panic", p)...)
			in = DefaultRetry(job.Attempt, err)
		}
	}()
	return max(q.w.kinds[job.Kind].retry(job.Attempt, err), 0)
}

// finish frees the slot and leaves the settlement for the next call.
func (q *queue) finish(d delivery, place int, r store.Settlement) {
	s := d.session
	q.mu.Lock()
	if d.watch != nil {
		d.watch.over = true
	}
	if r.Outcome == store.Completed {
		s.completed = append(s.completed, r)
	} else {
		s.others = append(s.others, r)
	}
	s.running--
	s.unconfirmed++
	q.slots[place].session, q.slots[place].watch = nil, nil
	q.free = append(q.free, place)
	q.summon()
	q.mu.Unlock()
}
