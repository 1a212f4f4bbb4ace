package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// ErrPanicked stands for a panic on its way to who recovers it. Its value stays out of spans: it may
// be anything.
var ErrPanicked = errors.New("handler panicked")

// maxEvents is how many events of a delivery are kept, the last ones: so does the SDK, by default.
const maxEvents = 128

// A Delivery is how a worker and the middleware around its handlers tell each other about one
// delivery. It is in the handlers' context. The methods of a nil one do nothing.
type Delivery struct {
	// Previous is the span context of the attempt before this one, if it is known. It is set
	// before the handler starts.
	Previous trace.SpanContext

	mu       sync.Mutex
	span     trace.SpanContext
	tracer   Tracing
	settled  []func(Settled)
	first    [1]func(Settled) // room for what is the only one as a rule
	measured bool
	events   []event // that Tracing is to hear of
}

type event struct {
	name string
	at   time.Time
}

// Tracing makes the spans of a delivery below its process span. Nobody calls the last three
// without a worker.
type Tracing interface {
	// Handle starts the handler's span, and returns what ends it.
	Handle(ctx context.Context) (context.Context, func(error))
	// Event is called when the handler has returned, for what happened before.
	Event(name string, at time.Time)
	// Settling is called when the worker has decided how the delivery ended, and when the job
	// runs again (the zero time: not, or at once).
	Settling(how Settle, next time.Time)
	// Settled is called once, after Redis has confirmed it, or nobody will know any more.
	Settled(s Settled)
}

// Settled is what became of telling Redis how a delivery ended.
type Settled struct {
	How     Settle
	Took    time.Duration // from the handler's return
	Refused bool          // the delivery was superseded: nothing was changed
	Unknown bool          // nobody knows whether Redis heard of it
}

// FormatSpan is a span context as it is kept with a job, in the form of a traceparent; "" if it
// is not valid.
func FormatSpan(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
}

// ParseSpan reads what FormatSpan wrote. Anything else is no valid span context.
func ParseSpan(text string) trace.SpanContext {
	if text == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
	return trace.SpanContextFromContext(ctx)
}

type deliveryKey struct{}

// ContextWithDelivery returns a context with the delivery.
func ContextWithDelivery(ctx context.Context, d *Delivery) context.Context {
	return context.WithValue(ctx, deliveryKey{}, d)
}

// DeliveryFrom returns the delivery that ctx is of, or nil.
func DeliveryFrom(ctx context.Context) *Delivery {
	d, _ := ctx.Value(deliveryKey{}).(*Delivery)
	return d
}

// Trace takes the delivery's process span, and what makes those below it. It reports
// false, and changes nothing, if there is one already.
func (d *Delivery) Trace(span trace.SpanContext, t Tracing) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.tracer != nil {
		return false
	}
	d.span, d.tracer = span, t
	return true
}

// Traced tells whether the delivery has a process span.
func (d *Delivery) Traced() bool { return d.tracing() != nil }

func (d *Delivery) tracing() Tracing {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tracer
}

// Measure reports whether the caller is the first to measure the delivery: it is measured once.
func (d *Delivery) Measure() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := !d.measured
	d.measured = true
	return first
}

// SpanContext is that of the process span; it is not valid if there is none.
func (d *Delivery) SpanContext() trace.SpanContext {
	if d == nil {
		return trace.SpanContext{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.span
}

// Handle starts the handler's span, and returns what ends it; nil if the delivery is not traced.
func (d *Delivery) Handle(ctx context.Context) (context.Context, func(error)) {
	if t := d.tracing(); t != nil {
		return t.Handle(ctx)
	}
	return ctx, nil
}

// OnSettled has f called once, after Redis has confirmed how the delivery ended, or nobody will
// know any more. Nobody calls it for a nil delivery, or without a worker.
func (d *Delivery) OnSettled(f func(Settled)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settled == nil {
		d.settled = d.first[:0]
	}
	d.settled = append(d.settled, f)
}

// Settling is for Tracing, which hears of the events before.
func (d *Delivery) Settling(how Settle, next time.Time) {
	if t := d.tracing(); t != nil {
		d.tell(t)
		t.Settling(how, next)
	}
}

// tell tells of the events so far.
func (d *Delivery) tell(t Tracing) {
	d.mu.Lock()
	events := d.events
	d.events = nil
	d.mu.Unlock()
	for _, e := range events {
		t.Event(e.name, e.at)
	}
}

// Settled is for Tracing, and calls those of OnSettled.
func (d *Delivery) Settled(s Settled) {
	if d == nil {
		return
	}
	d.mu.Lock()
	t, fs := d.tracer, d.settled
	d.mu.Unlock()
	if t != nil {
		d.tell(t)
		t.Settled(s)
	}
	for _, f := range fs {
		f(s)
	}
}

// Event tells Tracing that something happens to the delivery. It is kept until the handler has
// returned: who says so may hold a lock, and spans are the user's code, which may take long.
func (d *Delivery) Event(name string) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.events) == maxEvents {
		d.events = append(d.events[:0], d.events[1:]...)
	}
	d.events = append(d.events, event{name, time.Now()})
}
