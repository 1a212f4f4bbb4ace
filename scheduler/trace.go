package scheduler

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// tracing makes the producer's spans and puts their context into the jobs.
type tracing struct {
	provider   trace.TracerProvider // nil is the global one
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

func newTracing(config Config) tracing {
	return tracing{
		provider:   config.TracerProvider,
		tracer:     telemetry.Tracer(config.TracerProvider),
		propagator: telemetry.Propagator(config.Propagator),
	}
}

// reserved are the headers that are ours to set. The user may set the global propagator
// after New, so they are asked for each time.
func (t *tracing) reserved() []string {
	return append([]string{"traceparent", "tracestate", "baggage"}, t.propagator.Fields()...)
}

// inject returns the headers with the trace context, if there is one.
func (t *tracing) inject(ctx context.Context, headers map[string]string) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return headers
	}
	return telemetry.Inject(ctx, t.propagator, headers)
}

// start starts the span of enqueuing one job; it is nil if nobody traces.
func (t *tracing) start(ctx context.Context, id, kind string, o *options) (context.Context, trace.Span) {
	if telemetry.Off(t.provider) {
		return ctx, nil
	}
	return telemetry.StartEnqueue(ctx, t.tracer,
		telemetry.Job{ID: id, Kind: kind, Queue: o.queue, MaxAttempts: o.maxAttempts})
}

func end(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		telemetry.Fail(span, err, "")
	}
	span.End()
}

// tickSpans are those of a tick: the root, and the enqueueing of its job below it. They are
// begun before it is known who wins the tick, and ended by the winner alone: a span
// that is not ended is not exported.
type tickSpans struct {
	tick, enqueue trace.Span
}

func (t *tracing) startTick(ctx context.Context, entry string, tick time.Time, job *signalbox.Job) (context.Context, tickSpans) {
	if telemetry.Off(t.provider) {
		return trace.ContextWithSpanContext(ctx, trace.SpanContext{}), tickSpans{}
	}
	var s tickSpans
	ctx, s.tick = telemetry.StartTick(ctx, t.tracer, entry, tick)
	ctx, s.enqueue = telemetry.StartEnqueue(ctx, t.tracer,
		telemetry.Job{ID: job.ID, Kind: job.Kind, Queue: job.Queue, MaxAttempts: job.MaxAttempts})
	return ctx, s
}

func (s tickSpans) end(late time.Duration) {
	if s.tick == nil {
		return
	}
	s.enqueue.End()
	telemetry.EndTick(s.tick, late)
}
