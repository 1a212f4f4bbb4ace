package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// maxLastError bounds the message of a failed attempt that is logged and kept with the job, in bytes.
const maxLastError = 2048

// Handlers run a queue's handlers, in the goroutines of the slots, and decide what becomes of each job. What they decide waits with the session for the
// next call of a lane.
type handlers struct {
	q      *queue
	labels labels      // for the profiler; set before the first delivery
	keeps  atomic.Bool // completed jobs are kept; the keeper reads it from the queue's settings
}

// deliver runs the handler of one delivery.
func (h *handlers) deliver(d *delivery) {
	job := *d.claimed.Job // the handler may change its own
	result := d.settlement(&job)
	err := errGoexit
	defer func() {
		h.conclude(&result, d, &job, err)
		h.finish(d, result)
	}()
	kind := h.labels.kinds[d.kind]
	if kind != nil {
		pprof.SetGoroutineLabels(kind)
	}
	err = h.handle(d)
	if kind != nil {
		pprof.SetGoroutineLabels(h.labels.none)
	}
}

// settlement returns the settlement of the delivery, without its outcome.
func (d *delivery) settlement(job *signalbox.Job) store.Settlement {
	return store.Settlement{
		ID: job.ID, Kind: job.Kind, Attempt: job.Attempt, Token: job.Token, Prio: job.Priority, Suspect: job.Crashes >= store.SuspectAt, Size: d.claimed.Size(), Special: d.claimed.Special(),
	}
}

// conclude decides what becomes of the job, and ends the delivery's context.
func (h *handlers) conclude(r *store.Settlement, d *delivery, job *signalbox.Job, err error) {
	s := d.long.saves.Load()
	saved := s != nil && s.end() || len(job.Saved) > 0
	if f := d.long.follows.Load(); f != nil {
		f.end()
	}
	if saved {
		r.Size = d.claimed.Size()
	}
	why := h.judgeAny(r, d, job, err)
	if r.Outcome == store.Retry || r.Outcome == store.Dead {
		h.holdBackAfter(d, job, err)
	}
	if r.Outcome == store.Completed && (job.Retain > 0 || job.Retain == 0 && h.keeps.Load()) {
		h.keepCompleted(r, d, job, saved)
	}
	if r.Outcome == store.Retry || r.Outcome == store.Dead {
		h.announce(r, d, job, why)
	}
	if endsFlows(r) {
		h.q.keeper.tender.failing.Add(1)
	}
	d.settling(r, err)
	d.own.End(nil) // nothing that the handler has left behind goes on under it
}

// endsFlows reports whether a settlement may cancel the flow that its job is a member of: see scheduler.FailFast.
func endsFlows(r *store.Settlement) bool {
	return r.Special && (r.Outcome == store.Dead || r.Outcome == store.Cancelled)
}

// errGoexit is the error of an attempt whose handler ended its goroutine.
var errGoexit = errors.New("the handler called runtime.Goexit")

// errPutBack says that the job goes back to due: it is not for this worker.
var errPutBack = errors.New("no handler for this kind")

// errNoCodec says the same of a job whose payload this worker can't decode.
var errNoCodec = fmt.Errorf("no codec for this encoding: %w", signalbox.ErrUnknownEncoding)

// handle calls the handler with a context that has the lease. Recover is inside of what traces and measures, which look at the
// handler's error: its methods may panic.
func (h *handlers) handle(d *delivery) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &signalbox.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	if d.claimed.Err != nil {
		h.countUnhandled(d)
		return d.claimed.Err
	}
	ends := !d.claimed.Job.Deadline.IsZero()
	if ends && d.timeLeft(d.claimed.Job) <= 0 {
		h.countUnhandled(d)
		return &tardyError{d.claimed.Job.Deadline, d.claimed.Job.LastError}
	}
	k := h.q.w.kinds.of(d.claimed.Job.Kind)
	if k == nil {
		h.countUnhandled(d)
		return errPutBack
	}
	if encoding := d.claimed.Job.Encoding; encoding != "" && h.q.w.codecs[encoding] == nil {
		h.countUnhandled(d)
		return errNoCodec
	}
	if k.retryFor > 0 && k.begunTooLate(d.claimed.Job) {
		h.countUnhandled(d)
		return errRetryOver
	}
	d.handled = true
	if ends {
		return d.handleInTime(k.chain)
	}
	return k.chain.Handle(d, d.claimed.Job)
}

// kinds are what a worker does with jobs, by their kinds.
type kinds struct {
	named  map[string]*kind
	others *kind // of HandleOthers; nil: there is none
}

// of returns what is done with the jobs of a kind, or nil if there is no handler for them.
func (ks *kinds) of(name string) *kind {
	if k := ks.named[name]; k != nil {
		return k
	}
	return ks.others
}

// countUnhandled counts a delivery that no handler gets.
func (h *handlers) countUnhandled(d *delivery) {
	if d.watch != nil {
		kind := h.q.w.kinds.metric(&d.claimed)
		h.q.w.consumer.Delivered(h.q.base, h.q.store.Name(), kind)
		signalbox.OnSettled(d, func(s signalbox.Settled) {
			h.q.w.consumer.Settled(h.q.base, h.q.store.Name(), kind, string(s.Asked), string(s.Outcome), s.Ended.Sub(s.Returned))
		})
	}
}

// judgeAny calls judge. The methods of err are the user's: if one panics, the attempt counts as panicked.
func (h *handlers) judgeAny(r *store.Settlement, d *delivery, job *signalbox.Job, err error) (why error) {
	why = err
	defer func() {
		if p := recover(); p != nil {
			h.judge(r, d, job, &signalbox.PanicError{Value: "the handler's error, when it was looked at", Stack: debug.Stack()})
		}
	}()
	return h.judge(r, d, job, err)
}

// judge decides what becomes of the job. It returns why: err, or an error that wraps it.
func (h *handlers) judge(r *store.Settlement, d *delivery, job *signalbox.Job, err error) error {
	snooze, snoozed := errors.AsType[*signalbox.SnoozeError](err)
	cancel, cancelled := errors.AsType[*signalbox.CancelError](err)
	r.Survived = d.crashes > 0 && d.called.Load() && !isRefused(err) && !errors.Is(err, signalbox.ErrUnknownEncoding)
	switch {
	case err == nil:
		r.Outcome = store.Completed
	case d.claimed.Newer():
		r.Outcome, r.Delay = store.Delay, putBack()
		h.q.warn("newer", "signalbox: a job was written by a newer release, and is put back", "job", job.ID, "token", job.Token, "error", brief(err), "next_try", r.Delay.String())
	case d.claimed.Err != nil:
		r.Outcome = store.Dead
		h.q.log.Error("signalbox: a job is dead: its record can't be read; it is kept as it is", "job", job.ID, "token", job.Token, "error", brief(err))
	case isTardy(err):
		r.Outcome = store.Dead
		r.Record = h.record(d, job, job.Attempt-1, err)
		h.q.log.Error("signalbox: a job is dead: its deadline was over before a worker had it", d.about(job, "error", brief(err))...)
	case err == errPutBack:
		r.Outcome, r.Delay = store.Delay, putBackSoon(job)
		if job.LastError == "" { // the job says once why it doesn't run
			r.Record = h.record(d, job, job.Attempt-1, fmt.Errorf("put back: worker %s has no handler for kind %q", h.q.w.id, job.Kind))
		}
		h.q.warn("kind:"+job.Kind, "signalbox: no handler is registered for a kind; its jobs are put back until a worker of the queue has one",
			d.about(job, "next_try", r.Delay.String(), "kinds", h.q.w.kinds.names())...)
	case snoozed && d.noTimeFor(job, snooze.Delay):
		return h.outlive(r, d, job, job.Attempt-1, "snooze", err)
	case snoozed:
		r.Outcome, r.Delay = store.Delay, snooze.Delay
		if snooze.Err != nil && !errors.Is(snooze.Err, lock.ErrHeld) { // that another holds a lock is no trouble
			h.q.warn("snooze:"+job.Kind, "signalbox: jobs of a kind are put back, and their handler is not called",
				d.about(job, "next_try", r.Delay.String(), "error", brief(snooze.Err))...)
		}
	case cancelled:
		r.Outcome = store.Cancelled
		r.Record = h.record(d, job, job.Attempt-1, cancel)
		h.q.log.Info("signalbox: a job is cancelled", d.about(job, "error", brief(err))...)
	case d.isCancelled():
		r.Outcome = store.Return // and Redis, which has the mark, ends it
		h.q.log.Info("signalbox: the handler of a job has returned whose cancel was asked for", d.about(job, "error", brief(err))...)
	case isDead(err):
		h.die(r, d, job, err, "signalbox: a job is dead: its error is final")
	case err == errRetryOver:
		r.Outcome = store.Dead // with the error of its last attempt
		h.q.log.Error("signalbox: a job is dead: the time to retry it is over", d.about(job, "error", brief(err))...)
	case d.Err() != nil:
		r.Outcome = store.Return
		h.q.guard.noticeLoss() // while all whose contexts it ended are counted as running
		h.q.log.Info("signalbox: a job is given back", d.about(job, "cause", context.Cause(d))...)
	case errors.Is(err, signalbox.ErrUnknownEncoding):
		r.Outcome, r.Delay = store.Delay, putBackSoon(job)
		if job.LastError == "" {
			r.Record = h.record(d, job, job.Attempt-1, fmt.Errorf("put back: worker %s can't decode the payload, encoding %q", h.q.w.id, job.Encoding))
		}
		h.q.warn("encoding:"+job.Kind+" "+job.Encoding, "signalbox: a payload can't be decoded here; its job is put back until a worker of the queue has the codec and its keys",
			d.about(job, "next_try", r.Delay.String(), "encoding", job.Encoding, "error", brief(err))...)
	case job.Attempt >= payloadAttempts && job.Attempt < job.MaxAttempts && isRefused(err):
		r.Outcome = store.Dead
		r.Record = h.record(d, job, job.Attempt, err)
		h.q.log.Error("signalbox: a job is dead: its payload was refused too often; mend the producer or the handler's type, and enqueue it again",
			d.about(job, "error", brief(err))...)
	case job.Attempt >= job.MaxAttempts:
		h.die(r, d, job, err, "signalbox: a job is dead: its attempts are used up")
	case h.outOfTime(r, d, job, err):
		h.die(r, d, job, err, "signalbox: a job is dead: the time to retry it is over")
	case d.noTimeFor(job, r.Delay):
		return h.outlive(r, d, job, job.Attempt, "retry", err)
	default:
		r.Outcome = store.Retry
		r.Record = h.record(d, job, job.Attempt, err)
		h.q.log.Warn("signalbox: an attempt failed",
			append(d.about(job, "max_attempts", job.MaxAttempts, "retry_in", r.Delay.String(), "error", brief(err)), h.stackOf(job.Kind, err)...)...)
	}
	return err
}

// maxStack bounds the stack of a panic in a log record, in bytes.
const maxStack = 8192

// stackOf returns the log attribute with the stack of a panic: once a minute for each kind, since handlers that
// panic do so again and again.
func (h *handlers) stackOf(kind string, err error) []any {
	panicked, ok := errors.AsType[*signalbox.PanicError](err)
	if !ok {
		return nil
	}
	h.q.mu.Lock()
	again := sayAgain(h.q.throttled, "stack:"+kind)
	h.q.mu.Unlock()
	if !again {
		return []any{"stack", "left out: one of this kind was logged within the last minute"}
	}
	return []any{"stack", cut(string(panicked.Stack), maxStack)}
}

// brief returns an error's message, bounded as in the job's record.
func brief(err error) string { return cut(err.Error(), maxLastError) }

// cut returns the beginning of a text, of at most n bytes, and says how long the whole was.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(s[:n], ""), len(s))
}

// putBack returns how long a job waits whose record this release can't read: a deployment may be under way.
func putBack() time.Duration {
	return 30*time.Second + rand.N(30*time.Second)
}

// putBackSoon returns how long a job of an unknown kind waits: a quarter of its age, from half a second to half a
// minute, and up to as much again. Another worker of the queue may handle the kind, and should have the
// job soon; one that nobody handles must not go round and round.
func putBackSoon(job *signalbox.Job) time.Duration {
	d := min(max(job.ClaimedAt.Sub(job.EnqueuedAt)/4, 500*time.Millisecond), 30*time.Second)
	return d + rand.N(d)
}

// record returns the delivery's record after that many failed attempts, or nil if there is none to write. If this one has failed, the record
// keeps it.
func (h *handlers) record(d *delivery, job *signalbox.Job, attempts int, err error) []byte {
	var record []byte
	var failed error
	if attempts < job.Attempt { // it was cancelled, or put back
		record, failed = d.claimed.Failed(attempts, brief(err))
	} else {
		record, failed = d.claimed.FailedAttempt(brief(err), h.attempt(d, job, err))
	}
	if failed != nil {
		h.q.log.Error("signalbox: a record was not updated", d.about(job, "error", brief(failed))...)
		return nil // the old one stays
	}
	return record
}

// attempt returns what a record keeps of an attempt that has failed, or of one that has completed the job if err is nil.
func (h *handlers) attempt(d *delivery, job *signalbox.Job, err error) *store.Attempt {
	a := &store.Attempt{Number: job.Attempt, At: job.ClaimedAt, Ran: time.Since(d.started), Worker: h.q.w.id}
	if err != nil {
		a.Error = err.Error()
	}
	if panicked, ok := errors.AsType[*signalbox.PanicError](err); ok {
		a.Stack = string(fromPanic(panicked.Stack))
	}
	if d.watch != nil {
		if span := d.watch.SpanContext(); span.IsValid() {
			a.TraceID, a.SpanID = span.TraceID().String(), span.SpanID().String()
		}
	}
	return a
}

// fromPanic returns a stack from the call that panicked on: what stands before it is the panic's own, and would fill what is kept.
func fromPanic(stack []byte) []byte {
	_, rest, found := bytes.Cut(stack, []byte("\npanic("))
	if !found {
		return stack
	}
	_, rest, _ = bytes.Cut(rest, []byte("\n")) // the call of panic
	_, rest, _ = bytes.Cut(rest, []byte("\n")) // its place
	return rest
}

// retryIn asks the kind's policy. One that panics doesn't take the process down.
func (h *handlers) retryIn(d *delivery, job *signalbox.Job, err error) (in time.Duration) {
	defer func() {
		if p := recover(); p != nil {
			h.q.log.Error("signalbox: a retry policy panicked; the default is used", d.about(job, "panic", cut(fmt.Sprint(p), maxLastError))...)
			in = DefaultRetry(job.Attempt, err)
		}
	}()
	if isRefused(err) {
		return payloadRetry(job.Attempt, err)
	}
	if in, _ = retryAfter(err); in > 0 {
		return in
	}
	return max(h.q.w.kinds.of(job.Kind).retry(job.Attempt, err), 0)
}

// isRefused reports whether the attempt failed since the payload is not what the handler takes.
func isRefused(err error) bool {
	_, ok := errors.AsType[*signalbox.PayloadError](err)
	return ok
}

// finish frees the slot and leaves the settlement for the next call.
func (h *handlers) finish(d *delivery, r store.Settlement) {
	ran := time.Since(d.started)
	s := d.session
	h.q.mu.Lock()
	d.returned = true
	if d.stuck {
		h.q.guard.setStuck(d, false)
		h.q.keeper.tellStuck()
	}
	if f := d.long.follows.Load(); f != nil && r.Outcome == store.Completed && len(f.end()) > 0 {
		s.thens = append(s.thens, store.Completion{Session: s.id, Settle: r, FollowUps: f.end()})
	} else if r.Outcome == store.Completed && r.Keep == nil {
		s.completed = append(s.completed, r)
	} else {
		s.others = append(s.others, r)
	}
	if d.handled {
		h.q.keeper.ran.Add(ran)
	}
	s.running--
	s.unconfirmed++
	h.q.dispatch.unsent++
	if h.q.dispatch.stopping {
		h.q.drain.returned = time.Now()
	}
	h.q.dispatch.release(d.slot)
	h.q.dispatch.summon()
	h.q.mu.Unlock()
}

// handled is the innermost middleware: it makes the handler's own span, if the delivery is traced. It shows the guard the handler's
// context, if that is another than the delivery's. It notes that the handler of a job that has crashed is called.
func handled(next signalbox.Handler) signalbox.Handler {
	return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
		d, plain := ctx.(*delivery)
		if !plain {
			if d, _ = ctx.Value(deliveryKey{}).(*delivery); d != nil {
				own := ctx // ctx itself would be allocated in every delivery
				d.inner.Store(&own)
				defer d.inner.Store(nil)
			}
		}
		if d != nil && d.crashes > 0 {
			d.called.Store(true)
		}
		ctx, end := telemetry.DeliveryFrom(ctx).Handle(ctx)
		if end == nil {
			return next.Handle(ctx, job)
		}
		err := telemetry.ErrPanicked // unless it returns
		defer func() { end(err) }()
		err = next.Handle(ctx, job)
		return err
	})
}
