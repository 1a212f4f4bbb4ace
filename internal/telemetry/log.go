package telemetry

import "go.opentelemetry.io/otel/trace"

// LogAttrs returns the attributes that say which span a log record belongs to, with OpenTelemetry's names for logs that
// are not OTLP. It returns none if the span context is not valid.
func LogAttrs(sc trace.SpanContext) []any {
	if !sc.IsValid() {
		return nil
	}
	return []any{"trace_id", sc.TraceID().String(), "span_id", sc.SpanID().String()}
}
