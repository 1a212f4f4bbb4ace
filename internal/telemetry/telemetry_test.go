package telemetry

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestMain(m *testing.M) {
	// From a client whose server is gone: it dials every second, even after its Close.
	redistest.Main(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func recorder(t *testing.T) (trace.Tracer, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	return tracerOf(tp), exporter
}

// messaging is a recorder of messaging spans.
func messaging(who Who) (*Messaging, *tracetest.InMemoryExporter) {
	exporter := tracetest.NewInMemoryExporter()
	return NewMessaging(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)), who), exporter
}

// wantAttributes fails unless the span has exactly these attributes.
func wantAttributes(t *testing.T, span tracetest.SpanStub, want map[string]string) {
	t.Helper()
	got := make(map[string]string)
	for _, kv := range span.Attributes {
		got[string(kv.Key)] = kv.Value.String()
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s has %v, want %v", span.Name, got, want)
	}
}

// A provider of another package may embed the no-op provider and still do something.
func TestSilent(t *testing.T) {
	t.Parallel()
	type tracers struct{ noop.TracerProvider }
	for name, tc := range map[string]struct {
		tp   trace.TracerProvider
		want bool
	}{
		"none": {nil, true}, "no-op": {noop.NewTracerProvider(), true}, "SDK": {sdktrace.NewTracerProvider(), false}, "another": {tracers{}, false},
	} {
		if got := Silent(tc.tp); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestEnqueueSpan(t *testing.T) {
	t.Parallel()
	m, exporter := messaging(Who{Address: "redis.example", Port: 6380})
	_, span := m.StartEnqueue(t.Context(), Job{ID: "1", Kind: "welcome", Queue: "mail", MaxAttempts: 25})
	Fail(span, errors.New("down"), "")
	span.End()
	got := exporter.GetSpans()[0]
	wantAttributes(t, got, map[string]string{
		"messaging.system": "signalbox", "messaging.operation.name": "enqueue", "messaging.operation.type": "send",
		"messaging.destination.name": "mail", "messaging.message.id": "1", "server.address": "redis.example", "server.port": "6380",
		"signalbox.job.kind": "welcome", "signalbox.job.max_attempts": "25", "error.type": "*errors.errorString",
	})
	if got.Name != "enqueue mail" || got.SpanKind != trace.SpanKindProducer || got.Status.Code != codes.Error || len(got.Events) != 1 ||
		got.InstrumentationScope.Name != Scope || !strings.HasPrefix(got.InstrumentationScope.SchemaURL, "https://opentelemetry.io/schemas/") {
		t.Errorf("%+v", got)
	}
}

func TestSendSpan(t *testing.T) {
	t.Parallel()
	m, exporter := messaging(Who{Address: "/run/redis.sock"})
	_, create := m.StartCreate(t.Context(), Job{ID: "1", Kind: "welcome", Queue: "mail", MaxAttempts: 25})
	create.End()
	_, send := m.StartSend(t.Context(), "mail", 1, []trace.Link{{SpanContext: create.SpanContext()}})
	SetSent(send, 2)
	send.End()
	got := exporter.GetSpans()[1]
	wantAttributes(t, got, map[string]string{
		"messaging.system": "signalbox", "messaging.operation.name": "enqueue", "messaging.operation.type": "send",
		"messaging.destination.name": "mail", "messaging.batch.message_count": "2", "server.address": "/run/redis.sock",
	})
	if got.Name != "enqueue mail" || got.SpanKind != trace.SpanKindClient || len(got.Links) != 1 || !got.Links[0].SpanContext.Equal(create.SpanContext()) {
		t.Errorf("%+v", got)
	}
}

func TestTickSpan(t *testing.T) {
	t.Parallel()
	m, exporter := messaging(Who{})
	ctx, around := m.StartEnqueue(t.Context(), Job{Queue: "mail"})
	_, span := m.StartTick(ctx, "nightly", time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)), 7)
	EndTick(span, 1500*time.Microsecond)
	around.End()
	got := exporter.GetSpans()[0]
	wantAttributes(t, got, map[string]string{
		"messaging.system": "signalbox", "signalbox.schedule.tick": "2026-01-02T02:04:05Z",
		"signalbox.schedule.late_ms": "1", "signalbox.schedule.missed": "7",
	})
	if got.Name != "tick nightly" || got.SpanKind != trace.SpanKindInternal || got.Parent.IsValid() {
		t.Errorf("%+v", got)
	}
}

func TestInjectNothing(t *testing.T) {
	t.Parallel()
	for _, headers := range []map[string]string{nil, {"mine": "1"}} {
		// There is no span, and no propagator: the global default.
		for _, p := range []propagation.TextMapPropagator{propagation.TraceContext{}, Propagator(nil)} {
			if got := Inject(t.Context(), p, headers, modeLink, nil); len(got) != len(headers) || (got == nil) != (headers == nil) {
				t.Errorf("%v became %v", headers, got)
			}
		}
	}
}

func TestInject(t *testing.T) {
	t.Parallel()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceState: state})
	mine := map[string]string{"mine": "1"}
	got := Inject(trace.ContextWithSpanContext(t.Context(), sc), propagation.TraceContext{}, mine, modeLink, nil)
	want := map[string]string{
		"mine": "1", "traceparent": "00-01000000000000000000000000000000-0200000000000000-00", "tracestate": "vendor=1", ModeHeader: "link",
	}
	if !maps.Equal(got, want) || len(mine) != 1 {
		t.Errorf("got %v, want %v; the caller's are %v", got, want, mine)
	}
}

func TestInjectBaggage(t *testing.T) {
	t.Parallel()
	in := func(s string) baggage.Baggage {
		t.Helper()
		b, err := baggage.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	raw := func(b baggage.Baggage, name, value string) baggage.Baggage {
		t.Helper()
		m, err := baggage.NewMemberRaw(name, value)
		if err == nil {
			b, err = b.SetMember(m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	large := strings.Repeat("x", 5000)
	for name, tc := range map[string]struct {
		all     baggage.Baggage
		members []string
		want    []string // parts of the header, in any order
	}{
		"none named":      {in("a=1,b=2"), nil, nil},
		"one":             {in("a=1,b=2;p=3"), []string{"b"}, []string{"b=2;p=3"}},
		"two":             {in("a=1,b=2,c=3"), []string{"c", "d", "a"}, []string{"a=1", "c=3"}},
		"named twice":     {in("a=1"), []string{"a", "a"}, []string{"a=1"}},
		"not ASCII":       {raw(in("a=1"), "b", "ü 1"), []string{"b"}, []string{"b=%C3%BC%201"}},
		"64 KB":           {raw(in("a=1"), "b", strings.Repeat("x", 64<<10)), []string{"b", "a"}, []string{"a=1"}},
		"encoded too big": {raw(in("a=1"), "b", strings.Repeat("ü", 2000)), []string{"b"}, nil},
		"the first fits":  {raw(raw(in("a=1"), "b", large), "c", large), []string{"c", "b", "a"}, []string{"c=" + large, "a=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := baggage.ContextWithBaggage(t.Context(), tc.all)
			got := Inject(ctx, propagation.Baggage{}, nil, modeLink, tc.members)
			header, there := got["baggage"]
			parts := strings.Split(header, ",")
			if !there {
				parts = nil
			}
			slices.Sort(parts)
			slices.Sort(tc.want)
			if !slices.Equal(parts, tc.want) || len(header) > maxBaggage || got[ModeHeader] != "" {
				t.Errorf("got %.100v, want %.100v", got, tc.want)
			}
		})
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
	ctx, a := StartAcquire(t.Context(), NewLockMetrics(nil))
	if ctx != t.Context() {
		t.Error("a context of its own")
	}
	a.End(LockFailed, 0, errors.New("down")) // must not panic
	noopCtx, _ := noop.NewTracerProvider().Tracer("").Start(t.Context(), "")
	if _, a := StartAcquire(noopCtx, NewLockMetrics(nil)); a.span != nil {
		t.Error("a span under one that records nothing")
	}
}
