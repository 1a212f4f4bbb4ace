package worker

import (
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A delivery is one that this worker has: the job, its lease, the context of its handlers, its slot and its times. It begins
// with the reply of a claim, and is over when Redis has answered its settlement.
type delivery struct {
	signalbox.DeliveryContext // of the handlers; it ends with the session

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

	settle func(signalbox.Settled) error // tells all who wait for the end; nil: nobody does
	end    *signalbox.Settled            // what they are told
}

func newDelivery(s *session, d store.Delivery, at time.Time) *delivery {
	return &delivery{
		DeliveryContext: signalbox.DeliveryContext{Context: s.validity.Context()},
		claimed:         d, queue: d.Job.Queue, id: d.Job.ID, kind: d.Job.Kind, token: d.Job.Token,
		session: s, started: at,
	}
}

// deliveryKey is the key under which the context of a delivery has its *delivery.
type deliveryKey struct{}

// Value returns the delivery for deliveryKey.
func (d *delivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return d
	}
	return d.DeliveryContext.Value(key)
}

// Key, Token and Until make it the [lock.Lease] of its handlers.
func (d *delivery) Key() string      { return d.queue + "/" + d.id }
func (d *delivery) Token() int64     { return d.token }
func (d *delivery) Until() time.Time { return d.session.validity.Until() }

// about returns the attributes of log records about the delivery. job is the handler's as it was.
func (d *delivery) about(job *signalbox.Job, more ...any) []any {
	attrs := []any{"job", job.ID, "kind", job.Kind, "attempt", job.Attempt, "token", job.Token}
	if d.watch != nil {
		attrs = append(attrs, telemetry.SpanLogAttrs(d.watch.SpanContext())...)
	}
	return append(attrs, more...)
}
