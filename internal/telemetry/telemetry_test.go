package telemetry

import (
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recorder(t *testing.T) (trace.Tracer, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	return Tracer(tp), exporter
}

func TestEnqueueSpan(t *testing.T) {
	t.Parallel()
	tracer, exporter := recorder(t)
	_, span := StartEnqueue(t.Context(), tracer, Job{ID: "1", Kind: "welcome", Queue: "mail", MaxAttempts: 25})
	Fail(span, errors.New("down"), "")
	span.End()
	got := exporter.GetSpans()[0]
	set := attribute.NewSet(got.Attributes...)
	for key, want := range map[string]string{
		"messaging.system": "signalbox", "messaging.operation.name": "enqueue", "messaging.operation.type": "send",
		"messaging.destination.name": "mail", "messaging.message.id": "1",
		"signalbox.job.kind": "welcome", "signalbox.job.max_attempts": "25", "error.type": "*errors.errorString",
	} {
		if v, _ := set.Value(attribute.Key(key)); v.String() != want {
			t.Errorf("%s is %q, want %q", key, v.String(), want)
		}
	}
	if set.HasValue(JobAttempt) || set.HasValue(JobWait) {
		t.Error("a job that nobody has claimed has an attempt or a wait")
	}
	if got.Name != "enqueue mail" || got.SpanKind != trace.SpanKindProducer || got.Status.Code != codes.Error || len(got.Events) != 1 ||
		got.InstrumentationScope.Name != Scope || !strings.HasPrefix(got.InstrumentationScope.SchemaURL, "https://opentelemetry.io/schemas/") {
		t.Errorf("%+v", got)
	}
}

func TestInjectNothing(t *testing.T) {
	t.Parallel()
	for _, headers := range []map[string]string{nil, {"mine": "1"}} {
		// No span, and no propagator: the global default.
		for _, p := range []propagation.TextMapPropagator{propagation.TraceContext{}, Propagator(nil)} {
			if got := Inject(t.Context(), p, headers); len(got) != len(headers) || (got == nil) != (headers == nil) {
				t.Errorf("%v became %v", headers, got)
			}
		}
	}
}

func TestExtractForgetsTheSpanAround(t *testing.T) {
	t.Parallel()
	tracer, _ := recorder(t)
	ctx, span := tracer.Start(t.Context(), "the worker's")
	defer span.End()
	for _, headers := range []map[string]string{nil, {"traceparent": "nonsense"}} {
		if sc := trace.SpanContextFromContext(Extract(ctx, propagation.TraceContext{}, headers)); sc.IsValid() {
			t.Errorf("%v: %v", headers, sc)
		}
	}
}

func TestAcquireWithoutASpan(t *testing.T) {
	t.Parallel()
	ctx, a := StartAcquire(t.Context())
	if ctx != t.Context() {
		t.Error("a context of its own")
	}
	a.End(LockFailed, 0, errors.New("down")) // must not panic
	noopCtx, _ := noop.NewTracerProvider().Tracer("").Start(t.Context(), "")
	if _, a := StartAcquire(noopCtx); a.span != nil {
		t.Error("a span under one that records nothing")
	}
}
