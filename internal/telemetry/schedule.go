package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of a tick.
const (
	TickTime = attribute.Key("signalbox.schedule.tick")    // RFC 3339
	TickLate = attribute.Key("signalbox.schedule.late_ms") // int, from the tick to its enqueueing
)

const nameTick = "tick"

// unset is the global provider while the user has set none.
var unset = func() trace.TracerProvider {
	p := otel.GetTracerProvider()
	if fmt.Sprintf("%T", p) != "*global.tracerProvider" {
		return nil // it has been set before this package was initialised
	}
	return p
}()

// Off tells that there is nobody to make spans for: tp is nil and no global provider was set.
// A hot path can then do without the cost of spans that go nowhere.
func Off(tp trace.TracerProvider) bool {
	return tp == nil && unset != nil && otel.GetTracerProvider() == unset
}

// StartEnqueueMany starts the span of enqueuing many jobs in one queue.
func StartEnqueueMany(ctx context.Context, t trace.Tracer, queue string) (context.Context, trace.Span) {
	return t.Start(ctx, opEnqueue+" "+queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		semconv.MessagingSystemKey.String(System),
		semconv.MessagingOperationName(opEnqueue),
		semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(queue),
	))
}

// EndEnqueueMany ends that span; err is nil if all went well.
func EndEnqueueMany(span trace.Span, count int, err error) {
	span.SetAttributes(semconv.MessagingBatchMessageCount(count))
	if err != nil {
		Fail(span, err, "")
	}
	span.End()
}

// StartTick starts the span of one tick of a cron entry, a root.
func StartTick(ctx context.Context, t trace.Tracer, entry string, tick time.Time) (context.Context, trace.Span) {
	return t.Start(ctx, nameTick+" "+entry, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(
			semconv.MessagingSystemKey.String(System),
			TickTime.String(tick.UTC().Format(time.RFC3339Nano)),
		))
}

// EndTick ends that span. late is how long after the tick its job was enqueued.
func EndTick(span trace.Span, late time.Duration) {
	span.SetAttributes(TickLate.Int64(late.Milliseconds()))
	span.End()
}
