package telemetry

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Propagator is p, or the global one if p is nil. The global one does nothing until the
// user sets it.
func Propagator(p propagation.TextMapPropagator) propagation.TextMapPropagator {
	if p == nil {
		return otel.GetTextMapPropagator()
	}
	return p
}

// Inject returns headers with the trace context of ctx in it. The caller's map is left
// alone: it is copied if there is something to add.
func Inject(ctx context.Context, p propagation.TextMapPropagator, headers map[string]string) map[string]string {
	added := propagation.MapCarrier{}
	p.Inject(ctx, added)
	if len(added) == 0 {
		return headers
	}
	out := make(map[string]string, len(headers)+len(added))
	maps.Copy(out, headers)
	maps.Copy(out, added)
	return out
}

// Extract returns ctx with the trace context that the headers carry, and none if they
// carry none or a malformed one: whatever span ctx had is not the job's creator.
func Extract(ctx context.Context, p propagation.TextMapPropagator, headers map[string]string) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if len(headers) == 0 {
		return ctx
	}
	return p.Extract(ctx, propagation.MapCarrier(headers))
}
