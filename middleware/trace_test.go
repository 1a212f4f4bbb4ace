package middleware

import (
	"context"
	"fmt"
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

// traced runs a handler as a worker does and returns the spans by the first word of their names.
func traced(t *testing.T, ctx context.Context, job *signalbox.Job, h signalbox.HandlerFunc) map[string]tracetest.SpanStub {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	d := &telemetry.Delivery{}
	inner := func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			ctx, end := d.Handle(ctx)
			err := errPanicked
			defer func() { end(err) }()
			err = next.Handle(ctx, job)
			return err
		})
	}
	mw := signalbox.Chain(Trace(WithTracerProvider(tp), WithPropagator(propagation.TraceContext{})), Recover(), inner)
	_ = run(telemetry.ContextWithDelivery(ctx, d), job, mw, h)
	d.Settling(telemetry.SettleCompleted, time.Time{})
	d.Settled(telemetry.Settled{How: telemetry.SettleCompleted})
	spans := make(map[string]tracetest.SpanStub)
	for _, s := range exporter.GetSpans() {
		word, _, _ := strings.Cut(s.Name, " ")
		spans[word] = s
	}
	if len(spans) != 3 || len(exporter.GetSpans()) != 3 {
		t.Fatalf("spans: %v", spans)
	}
	if err := tp.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return spans
}

// Without a worker there is nobody to tell when the handler's part begins, and what comes after.
func TestTraceByItself(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	_ = run(t.Context(), &signalbox.Job{Queue: "q", Kind: "k"}, Trace(WithTracerProvider(tp)), func(context.Context, *signalbox.Job) error { return errMine })
	if spans := exporter.GetSpans(); len(spans) != 1 || spans[0].Name != "process q" || spans[0].Status.Code != codes.Error {
		t.Errorf("%+v", spans)
	}
}

func TestTraceJoinsTheCreatorsTrace(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	ctx, enqueue := telemetry.NewMessaging(tp, telemetry.Who{}).StartEnqueue(t.Context(), telemetry.Job{Queue: "mail", ID: "1", Kind: "welcome", MaxAttempts: 25})
	mine := map[string]string{"mine": "1"}
	headers := telemetry.Inject(ctx, propagation.TraceContext{}, mine, telemetry.ModeAuto, nil)
	enqueue.End()
	if len(mine) != 1 || len(headers) != 2 || headers["mine"] != "1" {
		t.Fatalf("headers %v, the caller's %v", headers, mine)
	}
	_ = tp.Shutdown(t.Context())

	due := time.UnixMilli(1_000_000)
	job := &signalbox.Job{
		ID: "1", Kind: "welcome", Queue: "mail", Attempt: 2, MaxAttempts: 25, Headers: headers,
		EnqueuedAt: due, ScheduledAt: due, ClaimedAt: due.Add(1500 * time.Millisecond), Payload: []byte("secret"),
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
	handle, process := spans["handle"], spans["process"]
	if process.Name != "process mail" || process.SpanKind != trace.SpanKindConsumer || process.Parent.SpanID() != enqueue.SpanContext().SpanID() ||
		process.SpanContext.TraceID() != enqueue.SpanContext().TraceID() {
		t.Errorf("process: %+v", process)
	}
	if handle.Name != "handle welcome" || handle.SpanKind != trace.SpanKindInternal || handle.Parent.SpanID() != process.SpanContext.SpanID() ||
		inside.SpanID() != handle.SpanContext.SpanID() {
		t.Errorf("handle: %+v", handle)
	}
	about := attribute.NewSet(process.Attributes...)
	if wait, _ := about.Value(telemetry.JobWait); wait.AsInt64() != 1500 {
		t.Errorf("wait: %v", wait.AsInt64())
	}
	for _, span := range []tracetest.SpanStub{handle, process} {
		set := attribute.NewSet(span.Attributes...)
		for key, want := range map[string]string{
			"messaging.system": "signalbox", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "mail", "messaging.message.id": "1", "signalbox.job.kind": "welcome",
			"signalbox.job.attempt": "2", "signalbox.job.max_attempts": "25",
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
		if process := spans["process"]; process.Parent.IsValid() || len(process.Links) != 0 || process.SpanContext.TraceID() == (trace.TraceID{9}) {
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
		for _, span := range []tracetest.SpanStub{spans["handle"], spans["process"]} {
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

// The value of a panic is in no span, also if the lease was lost before it.
func TestTraceKeepsPanicsToItself(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"secret", fmt.Errorf("secret: %w", lock.ErrLost)} {
		for name, span := range traced(t, t.Context(), &signalbox.Job{Queue: "q", Kind: "k"}, func(context.Context, *signalbox.Job) error { panic(value) }) {
			if name != "ack" && span.Status.Code != codes.Error || strings.Contains(fmt.Sprint(span.Status, span.Events, span.Attributes), "secret") {
				t.Errorf("%s: %v %v", name, span.Status, span.Events)
			}
		}
	}
}

// What a handler decided stands, also if its lease had ended meanwhile: Redis may take it.
func TestTraceOfADecisionUnderALostLease(t *testing.T) {
	t.Parallel()
	for name, decision := range map[string]error{"snooze": signalbox.Snooze(time.Second), "cancel": signalbox.Cancel(errMine)} {
		ctx, v := delivery(t, time.Hour)
		spans := traced(t, ctx, &signalbox.Job{Queue: "q", Kind: "k"}, func(context.Context, *signalbox.Job) error {
			v.End(lock.ErrLost)
			return decision
		})
		for _, span := range []tracetest.SpanStub{spans["handle"], spans["process"]} {
			if span.Status.Code != codes.Unset {
				t.Errorf("%s: %s: status %v", name, span.Name, span.Status)
			}
		}
	}
}
