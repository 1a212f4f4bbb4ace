package scheduler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// tracing makes the producer's spans and puts their context into the jobs.
type tracing struct {
	provider   trace.TracerProvider // nil is the global one
	spans      *telemetry.Messaging
	propagator propagation.TextMapPropagator
	baggage    []string // names of the members that travel
}

func newTracing(config Config, who telemetry.Who) (tracing, error) {
	for _, name := range config.Baggage {
		if _, err := baggage.NewMember(name, ""); err != nil {
			return tracing{}, fmt.Errorf("%w Baggage: %q can't name a member of the baggage: %w", signalbox.ErrInvalid, shorten(name), err)
		}
	}
	return tracing{
		provider:   config.TracerProvider,
		spans:      telemetry.NewMessaging(config.TracerProvider, who),
		propagator: telemetry.Propagator(config.Propagator),
		baggage:    slices.Clone(config.Baggage),
	}, nil
}

// silent reports whether no spans are recorded. Trace contexts of callers are still passed on.
func (t *tracing) silent() bool { return telemetry.Silent(t.provider) }

// reserved returns the headers that only the scheduler sets. The user may set the global propagator after New, so
// they are read each time.
func (t *tracing) reserved() []string {
	return append(reservedHeaders(), t.propagator.Fields()...)
}

// inject returns the headers with the trace context and the baggage, if there are any.
func (t *tracing) inject(ctx context.Context, headers map[string]string, mode signalbox.TraceMode) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() && (len(t.baggage) == 0 || baggage.FromContext(ctx).Len() == 0) {
		return headers
	}
	return telemetry.Inject(ctx, t.propagator, headers, mode.String(), t.baggage)
}

// start starts the span of enqueuing one job. Without tracing the span is nil.
func (t *tracing) start(ctx context.Context, id, kind string, o *options) (context.Context, trace.Span) {
	if t.silent() {
		return ctx, nil
	}
	return t.spans.StartEnqueue(ctx, telemetry.Job{ID: id, Kind: kind, Queue: o.queue, MaxAttempts: o.maxAttempts})
}

func end(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		telemetry.Fail(span, err, errorType(err))
	}
	span.End()
}

func about(job *signalbox.Job) telemetry.Job {
	return telemetry.Job{ID: job.ID, Kind: job.Kind, Queue: job.Queue, MaxAttempts: job.MaxAttempts}
}

// tickSpans are the spans of a tick: the root, and below it the enqueuing of its job. Each process that tries the
// tick begins them. The process that enqueues the tick ends them. So does one that fails and gives up. A process
// that comes second doesn't: a span that is not ended is not exported.
type tickSpans struct {
	tick, enqueue trace.Span
}

func (t *tracing) startTick(ctx context.Context, entry string, tick time.Time, missed int, job *signalbox.Job) (context.Context, tickSpans) {
	if t.silent() {
		return trace.ContextWithSpanContext(ctx, trace.SpanContext{}), tickSpans{}
	}
	var s tickSpans
	ctx, s.tick = t.spans.StartTick(ctx, entry, tick, missed)
	ctx, s.enqueue = t.spans.StartEnqueue(ctx, about(job))
	return ctx, s
}

// logAttrs returns the attributes that name the tick's span in the log, if it is sampled. Call it after the tick
// was enqueued. Before that, the span may never be exported.
func (s tickSpans) logAttrs() []any {
	if s.tick == nil || !s.tick.SpanContext().IsSampled() {
		return nil
	}
	return telemetry.LogAttrs(s.tick.SpanContext())
}

func (s tickSpans) end(late time.Duration) {
	if s.tick == nil {
		return
	}
	s.enqueue.End()
	telemetry.EndTick(s.tick, late)
}

// fail ends the spans with the reason why the tick could not be enqueued.
func (s tickSpans) fail(err error) {
	end(s.enqueue, err)
	end(s.tick, err)
}

// A stopwatch measures one call of the user's program. The zero value measures nothing.
type stopwatch struct {
	metrics *telemetry.ProducerMetrics
	began   time.Time
}

// watch starts a stopwatch, if there are metrics.
func (s *Scheduler) watch() stopwatch {
	if s.metrics.Silent() {
		return stopwatch{}
	}
	return stopwatch{s.metrics, time.Now()}
}

// sent counts n jobs of one kind that were sent. With an err it counts them as failed.
func (w stopwatch) sent(ctx context.Context, queue, kind string, n int, err error) {
	if w.metrics != nil {
		w.metrics.Sent(ctx, queue, kind, n, err, errorType(err))
	}
}

// took records the time since watch.
func (w stopwatch) took(ctx context.Context, queue string, err error) {
	if w.metrics != nil {
		w.metrics.Took(ctx, queue, time.Since(w.began), err, errorType(err))
	}
}

// kinds counts jobs by kind. It is a list, since there are few kinds.
type kinds []kindCount

type kindCount struct {
	kind string
	n    int
}

func (k kinds) add(kind string) kinds {
	for i := range k {
		if k[i].kind == kind {
			k[i].n++
			return k
		}
	}
	return append(k, kindCount{kind, 1})
}
