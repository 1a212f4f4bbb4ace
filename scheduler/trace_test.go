package scheduler

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

const modeHeader = "signalbox-trace-mode"

var everything = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

func traced(t *testing.T) (Config, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() {
		if err := tp.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return Config{Logger: slog.New(slog.DiscardHandler), TracerProvider: tp, Propagator: everything}, spans
}

// tracedSetup is setup with a scheduler that traces. The context has the span of a caller.
func tracedSetup(t *testing.T, change func(*Config)) (context.Context, *Scheduler, *store.Queue, *tracetest.SpanRecorder) {
	t.Helper()
	config, spans := traced(t)
	if change != nil {
		change(&config)
	}
	rdb := redistest.Start(t).Client()
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if config.TracerProvider != nil {
		ctx, _ = config.TracerProvider.Tracer("caller").Start(ctx, "GET /")
	}
	return ctx, s, checked(t, rdb), spans
}

// attributes returns the attributes of a span as text.
func attributes(span sdktrace.ReadOnlySpan) map[string]string {
	m := make(map[string]string)
	for _, kv := range span.Attributes() {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

func spansOf(spans *tracetest.SpanRecorder, name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
}

// expected returns the attributes that every messaging span of a test has.
func expected(s *Scheduler, queue, operation, opType string, more map[string]string) map[string]string {
	host, port := server.Address(s.rdb)
	m := map[string]string{
		"messaging.system": "signalbox", "messaging.operation.name": operation, "messaging.operation.type": opType,
		"messaging.destination.name": queue, "server.address": host, "server.port": fmt.Sprint(port),
	}
	if port == 0 {
		delete(m, "server.port")
	}
	maps.Copy(m, more)
	return m
}

func expectedJob(s *Scheduler, queue, operation, opType, id string) map[string]string {
	return expected(s, queue, operation, opType, map[string]string{
		"messaging.message.id": id, "signalbox.job.kind": "note", "signalbox.job.max_attempts": "25",
	})
}

func traceparent(sc trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%s", sc.TraceID(), sc.SpanID(), sc.TraceFlags())
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func sameMap(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestEnqueueSpan(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, nil)
	r, err := s.Enqueue(ctx, note{}, Queue(q.Name()), Header("k", "v"))
	if err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans", len(ended))
	}
	span := ended[0]
	same(t, "the name", span.Name(), "enqueue "+q.Name())
	same(t, "the kind", span.SpanKind(), trace.SpanKindProducer)
	same(t, "the parent", span.Parent().SpanID(), trace.SpanContextFromContext(ctx).SpanID())
	same(t, "the status", span.Status().Code, codes.Unset)
	same(t, "links", len(span.Links()), 0)
	sameMap(t, "attributes", attributes(span), expectedJob(s, q.Name(), "enqueue", "send", r.ID))
	sameMap(t, "headers", claimAll(t, q)[0].Headers, map[string]string{"k": "v", "traceparent": traceparent(span.SpanContext())})

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Enqueue(cancelled, note{}, Queue(q.Name())); err == nil {
		t.Fatal("no error")
	}
	failed := spans.Ended()[1]
	if failed.Status().Code != codes.Error || failed.Status().Description == "" || len(failed.Events()) != 1 {
		t.Errorf("the failure is not in its span: %+v, %v", failed.Status(), failed.Events())
	}
	same(t, "error.type", attributes(failed)["error.type"], "cancelled")
}
