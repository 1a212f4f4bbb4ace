package scheduler

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func traced(t *testing.T) (Config, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() {
		if err := tp.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return Config{Logger: slog.New(slog.DiscardHandler), TracerProvider: tp, Propagator: propagation.TraceContext{}}, spans
}

func TestSpans(t *testing.T) {
	t.Parallel()
	config, spans := traced(t)
	rdb := redistest.Start(t).Client()
	q := checked(t, rdb)
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if _, err := s.Enqueue(ctx, note{}, Queue(q.Name()), Header("k", "v")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueMany(ctx, many(2), Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans", len(ended))
	}
	for i, j := range claimAll(t, q) {
		span := ended[min(i, 1)]
		if span.Name() != "enqueue "+q.Name() || span.SpanKind() != trace.SpanKindProducer {
			t.Errorf("span %q, %v", span.Name(), span.SpanKind())
		}
		if !strings.Contains(j.Headers["traceparent"], span.SpanContext().SpanID().String()) {
			t.Errorf("job %d: headers %v, span %v", i, j.Headers, span.SpanContext().SpanID())
		}
		if i == 0 && j.Headers["k"] != "v" {
			t.Error("the caller's header is lost")
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Enqueue(cancelled, note{}, Queue(q.Name())); err == nil {
		t.Fatal("no error")
	}
	if last := spans.Ended()[2]; last.Status().Description == "" {
		t.Errorf("the failure is not in its span: %+v", last.Status())
	}
}

func TestTickSpans(t *testing.T) {
	t.Parallel()
	config, spans := traced(t)
	srv := redistest.Start(t)
	q := checked(t, srv.Client())
	var stops []func()
	for range 2 {
		s, err := New(srv.Client(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, run(t, s))
	}
	redistest.Eventually(t, func() bool { return len(spans.Ended()) >= 4 }, "two ticks are traced")
	for _, stop := range stops {
		stop()
	}
	headers := map[string]string{}
	for _, j := range claimAll(t, q) {
		parts := strings.Split(j.Headers["traceparent"], "-")
		headers[parts[1]] = parts[2]
	}
	ended := spans.Ended()
	if len(ended) != 2*len(headers) {
		t.Errorf("%d spans for %d ticks", len(ended), len(headers))
	}
	for i := 0; i+1 < len(ended); i += 2 {
		enqueue, tick := ended[i], ended[i+1]
		if tick.Name() != "tick e" || tick.Parent().IsValid() || enqueue.Parent().SpanID() != tick.SpanContext().SpanID() {
			t.Errorf("spans %q, %q: parents %v, %v", tick.Name(), enqueue.Name(), tick.Parent(), enqueue.Parent())
		}
		if got := headers[tick.SpanContext().TraceID().String()]; got != enqueue.SpanContext().SpanID().String() {
			t.Errorf("the job's parent is %v, not the enqueue span", got)
		}
	}
}
