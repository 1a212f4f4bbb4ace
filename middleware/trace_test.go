package middleware

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// traced runs a handler and returns the spans, in the order of their ends.
func traced(t *testing.T, ctx context.Context, job *signalbox.Job, h signalbox.HandlerFunc) tracetest.SpanStubs {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	mw := signalbox.Chain(Recover(), Trace(WithTracerProvider(tp), WithPropagator(propagation.TraceContext{})))
	_ = run(ctx, job, mw, h)
	spans := exporter.GetSpans()
	if err := tp.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return spans
}

func TestTraceJoinsTheCreatorsTrace(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	ctx, enqueue := telemetry.StartEnqueue(t.Context(), telemetry.Tracer(tp), telemetry.Job{Queue: "mail", ID: "1", Kind: "welcome", MaxAttempts: 25})
	mine := map[string]string{"mine": "1"}
	headers := telemetry.Inject(ctx, propagation.TraceContext{}, mine)
	enqueue.End()
	if len(mine) != 1 || len(headers) != 2 || headers["mine"] != "1" {
		t.Fatalf("headers %v, the caller's %v", headers, mine)
	}
	_ = tp.Shutdown(t.Context())

	due := time.UnixMilli(1_000_000)
	job := &signalbox.Job{
		ID: "1", Kind: "welcome", Queue: "mail", Attempt: 2, MaxAttempts: 25, Headers: headers,
		ScheduledAt: due, ClaimedAt: due.Add(1500 * time.Millisecond), Payload: []byte("secret"),
	}
	delivered, v := delivery(t, time.Hour)
	// Whatever span the worker's own context has is not the creator.
	delivered = trace.ContextWithSpanContext(delivered, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{9}, SpanID: trace.SpanID{9}, TraceFlags: trace.FlagsSampled,
	}))
	var inside trace.SpanContext
	spans := traced(t, delivered, job, func(ctx context.Context, _ *signalbox.Job) error {
		inside = trace.SpanContextFromContext(ctx)
		v.End(lock.ErrLost)
		if ctx.Err() == nil {
			t.Error("the context lost touch with its parent")
		}
		return nil
	})
	if len(spans) != 2 {
		t.Fatalf("%d spans", len(spans))
	}
	handle, process := spans[0], spans[1]
	if process.Name != "process mail" || process.SpanKind != trace.SpanKindConsumer || process.Parent.SpanID() != enqueue.SpanContext().SpanID() ||
		process.SpanContext.TraceID() != enqueue.SpanContext().TraceID() {
		t.Errorf("process: %+v", process)
	}
	if handle.Name != "handle welcome" || handle.SpanKind != trace.SpanKindInternal || handle.Parent.SpanID() != process.SpanContext.SpanID() ||
		inside.SpanID() != handle.SpanContext.SpanID() {
		t.Errorf("handle: %+v", handle)
	}
	for _, span := range spans {
		set := attribute.NewSet(span.Attributes...)
		for key, want := range map[string]string{
			"messaging.system": "signalbox", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "mail", "messaging.message.id": "1", "signalbox.job.kind": "welcome",
			"signalbox.job.attempt": "2", "signalbox.job.max_attempts": "25", "signalbox.job.wait_ms": "1500",
		} {
			if got, _ := set.Value(attribute.Key(key)); got.String() != want {
				t.Errorf("%s: %s is %q, want %q", span.Name, key, got.String(), want)
			}
		}
		if span.Status.Code != codes.Unset || len(span.Events) != 0 {
			t.Errorf("%s: status %v, events %v", span.Name, span.Status, span.Events)
		}
	}
}

func TestTraceStartsItsOwnTrace(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]map[string]string{
		"no headers": nil,
		"no trace":   {"mine": "1"},
		"malformed":  {"traceparent": "00-zz-zz-01", "tracestate": strings.Repeat("\x00,=", 1000)},
		"empty":      {"traceparent": "", "tracestate": ""},
		"all zero":   {"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"},
	} {
		ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{9}, SpanID: trace.SpanID{9}, TraceFlags: trace.FlagsSampled,
		}))
		spans := traced(t, ctx, &signalbox.Job{Headers: headers}, func(context.Context, *signalbox.Job) error { return nil })
		if len(spans) != 2 || spans[1].Parent.IsValid() || spans[1].SpanContext.TraceID() == (trace.TraceID{9}) {
			t.Errorf("%s: %+v", name, spans)
		}
	}
}

func TestTraceOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		h         signalbox.HandlerFunc
		errorType string // "" is no error
	}{
		{"success", func(context.Context, *signalbox.Job) error { return nil }, ""},
		{"snooze", func(context.Context, *signalbox.Job) error { return signalbox.Snooze(time.Second) }, ""},
		{"cancel", func(context.Context, *signalbox.Job) error { return signalbox.Cancel(errMine) }, ""},
		{"shutdown", func(context.Context, *signalbox.Job) error { return signalbox.ErrShutdown }, ""},
		{"timeout", func(context.Context, *signalbox.Job) error { return signalbox.ErrTimeout }, "timeout"},
		{"lost", func(context.Context, *signalbox.Job) error { return lock.ErrLost }, "signalbox.lease_lost"},
		{"panic", thePanickingHandler, "panic"},
		{"failure", func(context.Context, *signalbox.Job) error { return &time.ParseError{} }, "*time.ParseError"},
	} {
		spans := traced(t, t.Context(), &signalbox.Job{Queue: "q", Kind: "k"}, c.h)
		if len(spans) != 2 {
			t.Fatalf("%s: %d spans", c.name, len(spans))
		}
		for _, span := range spans {
			set := attribute.NewSet(span.Attributes...)
			got, _ := set.Value("error.type")
			failed := c.errorType != ""
			if failed && got.AsString() != c.errorType || !failed && set.HasValue("error.type") {
				t.Errorf("%s: %s: error.type %q, want %q", c.name, span.Name, got.AsString(), c.errorType)
			}
			if (span.Status.Code == codes.Error) != failed || (len(span.Events) == 1) != failed {
				t.Errorf("%s: %s: status %v, events %v", c.name, span.Name, span.Status, span.Events)
			}
		}
	}
}
