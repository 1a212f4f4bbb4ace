package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// ErrPanicked stands for a panic that is not recovered yet. The value of the panic stays out of spans, since it may
// be anything.
var ErrPanicked = errors.New("handler panicked")

// maxEvents is how many events of a delivery are kept, the last ones: so does the SDK, by default.
const maxEvents = 128

// A Delivery is what a worker and the middleware around its handlers share about one
// delivery. It is in the handlers' context. The methods of a nil Delivery do nothing.
type Delivery struct {
	// Previous is the span context of the attempt before this one, if it is known. It is set
	// before the handler starts.
	Previous trace.SpanContext

	mu     sync.Mutex
	span   trace.SpanContext
	tracer Tracing
	events []event // that Tell passes on
}

type event struct {
	name string
	at   time.Time
}

// Tracing makes the spans of a delivery below its process span.
type Tracing interface {
	// Handle starts the handler's span, and returns what ends it.
	Handle(ctx context.Context) (context.Context, func(error))
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

// DeliveryKey is the key under which a context has its *Delivery.
type DeliveryKey struct{}

// DeliveryFrom returns the delivery that ctx is of, or nil.
func DeliveryFrom(ctx context.Context) *Delivery {
	d, _ := ctx.Value(DeliveryKey{}).(*Delivery)
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

// Traced reports whether the delivery has a process span.
func (d *Delivery) Traced() bool { return d.tracing() != nil }

func (d *Delivery) tracing() Tracing {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tracer
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

// Tell calls f for each event since the last call, with the time when it was, in order.
func (d *Delivery) Tell(f func(name string, at time.Time)) {
	if d == nil {
		return
	}
	d.mu.Lock()
	events := d.events
	d.events = nil
	d.mu.Unlock()
	for _, e := range events {
		f(e.name, e.at)
	}
}

// Event notes that something happens to the delivery, for Tell. The caller may hold a lock, and spans are the
// user's code, which may take long. So nothing is called now.
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
