package worker

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A delivery is one try of this worker to run a job. It has the job, its lease, the context of its handlers, its slot and its times.
// It begins when a claim returns the job. It ends when Redis has answered its settlement.
type delivery struct {
	context.Context               // own
	own             lease.Context // the context that ends when the session ends, or this delivery alone

	claimed  store.Delivery // its job belongs to the handlers, which may change it
	id, kind string         // copies of the job's that nobody changes; token too
	token    int64
	crashes  int // of the job
	session  *session
	slot     *slot
	started  time.Time    // when it was claimed
	watch    *watch       // nil if nothing watches it
	phase    atomic.Int32 // how far it is; kept only if the user's middleware is around its handler
	returned bool         // the handler has returned; guarded by the queue's mu
	handled  bool         // a handler was called; the slot's
	called   atomic.Bool  // the user's handler was called, behind all middleware; kept only if the job has crashed
	stuck    bool         // its handler is reported as stuck; guarded by the queue's mu
	over     time.Time    // when the end of its handler's context was first seen while it ran; zero before that; guarded by the queue's mu
	stack    string       // of its handler, while it is stuck; guarded by the queue's mu

	long longJob // what its handler says, and saves

	inner atomic.Pointer[context.Context] // the context of its handler while that runs; nil if it is the delivery's own

	ends    handlerctx.End     // what waits for its end
	waiters *handlerctx.Waiter // what is to hear of its end, once its handler has returned; nil if nothing is
	end     *signalbox.Settled // what waiters are to hear
}

// begin fills in d, which is zero, for a claimed job, its session and its slot.
func (d *delivery) begin(s *session, sl *slot, claimed store.Delivery, at time.Time) {
	d.own.Begin(s.validity.Context())
	d.Context = &d.own
	d.claimed = claimed
	d.id, d.kind, d.token = claimed.Job.ID, claimed.Job.Kind, claimed.Job.Token
	d.session, d.slot, d.started, d.crashes = s, sl, at, claimed.Job.Crashes
}

// deliveryKey is the context key for the *delivery.
type deliveryKey struct{}

// Value returns the delivery for its own key, and for those of the handler's lease, of its progress and of the log of its locks. For telemetry's key it
// returns the data for traces, for that of the end what waits for it, and for that of the job the job.
func (d *delivery) Value(key any) any {
	switch key.(type) {
	case deliveryKey, lease.ContextKey, telemetry.LockLogKey, handlerctx.ReporterKey:
		return d
	case telemetry.DeliveryKey:
		if d.watch == nil {
			return nil
		}
		return &d.watch.Delivery
	case handlerctx.SaverKey:
		return d.saver()
	case parcelseam.FollowerKey:
		return d.follower()
	case parcelseam.MemberKey:
		return d.member()
	case parcelseam.FlowKey:
		return d.flow()
	case handlerctx.EndKey:
		return &d.ends
	case handlerctx.JobKey:
		return d.claimed.Job
	}
	return d.Context.Value(key)
}

// Key, Token and Until implement [lock.Lease] for the handlers.
func (d *delivery) Key() string {
	q := d.session.queue
	if namespace := q.w.namespace(); namespace != "" {
		return namespace + ":" + q.store.Name() + "/" + d.id
	}
	return q.store.Name() + "/" + d.id
}
func (d *delivery) Token() int64     { return d.token }
func (d *delivery) Until() time.Time { return d.session.validity.Until() }

// Issuer and Holder implement [lock.Origin]. Tokens of jobs come from one counter of each queue. A session grants no token twice.
func (d *delivery) Issuer() string { return "redis-queue" }
func (d *delivery) Holder() string { return d.session.id + "." + strconv.FormatInt(d.token, 10) }

// LockDown implements [telemetry.LockLog] for the handlers.
func (d *delivery) LockDown(called bool, err error) {
	what, msg := "dropped", "signalbox: jobs of a kind are dropped, and their handler is not called"
	if called {
		what, msg = "unlocked", "signalbox: handlers of a kind run without their lock"
	}
	job := signalbox.Job{ID: d.id, Kind: d.kind, Attempt: d.claimed.Job.Attempt, Token: d.token}
	d.session.queue.warn(what+":"+d.kind, msg, d.about(&job, "error", brief(err))...)
}

// String keeps the job's payload out of a printed context.
func (d *delivery) String() string { return "worker: the context of job " + d.id }

// about returns the log attributes of the delivery. job is the job as it was when its handler began.
func (d *delivery) about(job *signalbox.Job, more ...any) []any {
	attrs := []any{"job", job.ID, "kind", job.Kind, "attempt", job.Attempt, "token", job.Token}
	if d.watch != nil {
		attrs = append(attrs, telemetry.LogAttrs(d.watch.SpanContext())...)
	}
	return append(attrs, more...)
}

// A watch passes the events of one delivery to traces and metrics.
type watch struct {
	telemetry.Delivery
	lost atomic.Bool
}

// Event adds an event to the delivery's span. It adds the loss of the lease only once.
func (v *watch) Event(name string) {
	if name != telemetry.EventLeaseLost || v.lost.CompareAndSwap(false, true) {
		v.Delivery.Event(name)
	}
}

// watches reports whether anything uses watches: a provider, or the user's middleware.
func (w *Worker) watches() bool {
	return w.middlemen || w.traces() || !telemetry.MetricsSilent(w.cfg.MeterProvider)
}

// traces reports whether the worker's provider records spans.
func (w *Worker) traces() bool { return !telemetry.Silent(w.cfg.TracerProvider) }

// watch begins to watch a delivery. q.mu is held.
func (q *queue) watch(d *delivery) {
	d.watch = &watch{}
	d.watch.Previous = telemetry.ParseSpan(d.claimed.Span)
	if q.w.traces() && d.claimed.Err == nil && q.w.kinds.of(d.kind) != nil {
		d.session.unnoted = append(d.session.unnoted, d)
		q.claimer.noteSoon()
	}
}

// tell adds an event to the spans of the session's running deliveries. If s is nil, it does so for all sessions. q.mu is held.
func (q *queue) tell(event string, s *session) {
	for d := range q.slots.running() {
		if d.watch != nil && (s == nil || d.session == s) {
			d.watch.Event(event)
		}
	}
}

// settling notes that the delivery is about to be settled. lease is the delivery's context.
func (v *watch) settling(lease context.Context, r *store.Settlement) {
	if v == nil {
		return
	}
	// If the handler returned nil, it still held the lease: middleware.Lock has just checked the time.
	if r.Outcome != store.Completed && errors.Is(context.Cause(lease), lock.ErrLost) {
		v.Event(telemetry.EventLeaseLost) // the clock says so, before any event did
	}
	again := r.Outcome == store.Retry || r.Outcome == store.Delay || r.Outcome == store.Return
	if span := v.SpanContext(); again && span.IsSampled() {
		r.Span = telemetry.FormatSpan(span)
	}
}
