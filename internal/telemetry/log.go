package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

// LogAttrs are the attributes of a log record that say which span of ctx it belongs to; none
// without a span. OpenTelemetry's names for them in logs that are no OTLP.
func LogAttrs(ctx context.Context) []any { return SpanLogAttrs(trace.SpanContextFromContext(ctx)) }

// SpanLogAttrs is LogAttrs of a span context.
func SpanLogAttrs(sc trace.SpanContext) []any {
	if !sc.IsValid() {
		return nil
	}
	return []any{"trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String()}
}
