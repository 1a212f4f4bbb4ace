package worker

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A delivery is one that this worker has: the job, its lease, the context of its handlers, its slot and its times. It begins
// with the reply of a claim, and is over when Redis has answered its settlement.
type delivery struct {
	signalbox.DeliveryContext               // of the handlers
	own                       lease.Context // ends it: with the session, or this delivery alone

	claimed  store.Delivery // its job is the handlers', who may change it
	queue    string         // these are the job's, too, but nobody changes them
	id, kind string
	token    int64
	session  *session
	slot     *slot
	started  time.Time    // when it was claimed
	phase    atomic.Int32 // how far it is, if middleware of the user's is around its handler
	watch    *watch       // nil: nobody watches
	returned bool         // the handler has returned; guarded by the queue's mu
	over     time.Time    // when the end of its context was seen while it ran; zero: not yet; guarded by the queue's mu

	settle func(signalbox.Settled) error // tells all who wait for the end; nil: nobody does
	end    *signalbox.Settled            // what they are told
}

// begin makes d, which is zero, the delivery of what was claimed for a session and a slot.
func (d *delivery) begin(s *session, sl *slot, claimed store.Delivery, at time.Time) {
	d.own.Begin(s.validity.Context())
	d.Context = &d.own
	d.claimed = claimed
	d.queue, d.id, d.kind, d.token = claimed.Job.Queue, claimed.Job.ID, claimed.Job.Kind, claimed.Job.Token
	d.session, d.slot, d.started = s, sl, at
}

// deliveryKey is the key under which the context of a delivery has its *delivery.
type deliveryKey struct{}

// Value returns the delivery, also where its handler's lease or the log of its locks is asked for, and what traces it.
func (d *delivery) Value(key any) any {
	switch key.(type) {
	case deliveryKey, lease.ContextKey, telemetry.LockLogKey:
		return d
	case telemetry.DeliveryKey:
		if d.watch == nil {
			return nil
		}
		return &d.watch.Delivery
	}
	return d.DeliveryContext.Value(key)
}

// Key, Token and Until make it the [lock.Lease] of its handlers.
func (d *delivery) Key() string      { return d.queue + "/" + d.id }
func (d *delivery) Token() int64     { return d.token }
func (d *delivery) Until() time.Time { return d.session.validity.Until() }

// LockDown makes it the [telemetry.LockLog] of its handlers.
func (d *delivery) LockDown(called bool, err error) {
	what, msg := "dropped", "signalbox: jobs of a kind are dropped, and their handler is not called"
	if called {
		what, msg = "unlocked", "signalbox: handlers of a kind run without their lock"
	}
	job := signalbox.Job{ID: d.id, Kind: d.kind, Attempt: d.claimed.Job.Attempt, Token: d.token}
	d.session.queue.warn(what+":"+d.kind, msg, d.about(&job, "error", brief(err))...)
}

// String keeps the job's payload out of what prints a handler's context.
func (d *delivery) String() string { return "worker: the context of job " + d.id }

// about returns the attributes of log records about the delivery. job is the handler's as it was.
func (d *delivery) about(job *signalbox.Job, more ...any) []any {
	attrs := []any{"job", job.ID, "kind", job.Kind, "attempt", job.Attempt, "token", job.Token}
	if d.watch != nil {
		attrs = append(attrs, telemetry.LogAttrs(d.watch.SpanContext())...)
	}
	return append(attrs, more...)
}
