package telemetry

import "go.opentelemetry.io/otel/trace"

// LogAttrs returns the attributes of a log record that say which span it belongs to: OpenTelemetry's names for them in logs that are no
// OTLP. It returns none if the span context is not valid.
func LogAttrs(sc trace.SpanContext) []any {
	if !sc.IsValid() {
		return nil
	}
	return []any{"trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String()}
}
