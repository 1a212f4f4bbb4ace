package telemetry

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// ErrPanicked is recorded for a panic that is not recovered yet. The panic's value stays out of spans, since it may
// contain anything.
var ErrPanicked = errors.New("handler panicked")

// maxEvents is how many events of a delivery are kept. The oldest are dropped. The SDK has the same limit by
// default.
const maxEvents = 128

// A Delivery is the data that a worker and the middleware around its handlers share about one delivery. It is in
// the handlers' context. The methods of a nil Delivery do nothing.
type Delivery struct {
	// Previous is the span context of the attempt before this one, if it is known. It is set before the handler
	// starts.
	Previous trace.SpanContext

	mu     sync.Mutex
	span   trace.SpanContext
	tracer Tracing
	events []event // not yet passed on by Tell
}

type event struct {
	name string
	at   time.Time
}

// Tracing makes the spans of a delivery below its process span.
type Tracing interface {
	// Handle starts the handler's span. It returns the function that ends the span.
	Handle(ctx context.Context) (context.Context, func(error))
}

// FormatSpan returns the text form in which a span context is stored with a job: that of a traceparent. It returns
// "" if the span context is not valid.
func FormatSpan(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String()
}

// ParseSpan parses a text from FormatSpan. For any other text it returns an invalid span context.
func ParseSpan(text string) trace.SpanContext {
	if text == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
	return trace.SpanContextFromContext(ctx)
}

// DeliveryKey is the context key of the *Delivery.
type DeliveryKey struct{}

// DeliveryFrom returns the delivery of ctx, or nil.
func DeliveryFrom(ctx context.Context) *Delivery {
	d, _ := ctx.Value(DeliveryKey{}).(*Delivery)
	return d
}

// Trace sets the delivery's process span, and the maker of the spans below it. If they are set already, Trace
// changes nothing and returns false.
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

// SpanContext returns the span context of the process span. It is invalid if there is no such span.
func (d *Delivery) SpanContext() trace.SpanContext {
	if d == nil {
		return trace.SpanContext{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.span
}

// Handle starts the handler's span. It returns the function that ends the span, or nil if the delivery is not
// traced.
func (d *Delivery) Handle(ctx context.Context) (context.Context, func(error)) {
	if t := d.tracing(); t != nil {
		return t.Handle(ctx)
	}
	return ctx, nil
}

// Tell calls f for each event since the last call, in order, with the time of the event.
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

// Event records an event of the delivery for Tell. It calls nothing else: the caller may hold a lock, and spans are
// the user's code, which may take long.
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
