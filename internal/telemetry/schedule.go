package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of a tick.
const (
	tickTime   = attribute.Key("signalbox.schedule.tick")    // RFC 3339
	tickLate   = attribute.Key("signalbox.schedule.late_ms") // int, from the tick until its job was enqueued
	tickMissed = attribute.Key("signalbox.schedule.missed")  // int, ticks skipped since the last one that fired
)

const nameTick = "tick"

// SetSent corrects the number of jobs on a span of StartSend: more jobs may have come since, or
// some may not have been sent.
func SetSent(span trace.Span, n int) { span.SetAttributes(semconv.MessagingBatchMessageCount(n)) }

// StartTick starts the span of one tick of a cron entry, a root. missed is the number of ticks
// that were skipped before it.
func (m *Messaging) StartTick(ctx context.Context, entry string, tick time.Time, missed int) (context.Context, trace.Span) {
	return m.tracer.Start(ctx, nameTick+" "+entry, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindInternal),
		trace.WithAttributes(
			semconv.MessagingSystemKey.String(system),
			tickTime.String(tick.UTC().Format(time.RFC3339Nano)),
			tickMissed.Int(missed),
		))
}

// EndTick ends the span of a tick. late is how long after the tick its job was enqueued.
func EndTick(span trace.Span, late time.Duration) {
	span.SetAttributes(tickLate.Int64(late.Milliseconds()))
	span.End()
}
