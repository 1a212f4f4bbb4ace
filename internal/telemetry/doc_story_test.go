package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A story is what a scheduler, workers and locks emitted.
type story struct {
	spans   tracetest.SpanStubs
	metrics []metricdata.Metrics

	recorder *recorder
	reader   *sdkmetric.ManualReader
	server   *redistest.Server
	tp       *sdktrace.TracerProvider
	mp       *sdkmetric.MeterProvider
	queue    string // begins the names of all queues
	lockKey  string
}

// canary is in every payload.
const canary = "canary-of-the-payload"

// A recorder keeps the spans that ended, and what was known of each at its start.
type recorder struct {
	mu      sync.Mutex
	started map[trace.SpanID][]attribute.Key
	ended   []sdktrace.ReadOnlySpan
}

func (r *recorder) OnStart(_ context.Context, sp sdktrace.ReadWriteSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kv := range sp.Attributes() {
		id := sp.SpanContext().SpanID()
		r.started[id] = append(r.started[id], kv.Key)
	}
}

func (r *recorder) OnEnd(sp sdktrace.ReadOnlySpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, sp)
}

func (r *recorder) Shutdown(context.Context) error   { return nil }
func (r *recorder) ForceFlush(context.Context) error { return nil }

// name is the span's as docs/tracing.md has it.
func (s *story) name(sp tracetest.SpanStub) string {
	if sp.InstrumentationScope.Name != telemetry.Scope {
		return "the caller's"
	}
	word, rest, _ := strings.Cut(sp.Name, " ")
	switch {
	case word == "handle":
		return "handle {kind}"
	case word == "tick":
		return "tick {entry}"
	case word == "enqueue" && sp.SpanKind == trace.SpanKindClient:
		return "enqueue {queue} of a bulk"
	case strings.HasPrefix(rest, s.queue):
		return word + " {queue}"
	}
	return sp.Name
}

func (s *story) ours() tracetest.SpanStubs {
	var ours tracetest.SpanStubs
	for _, sp := range s.spans {
		if sp.InstrumentationScope.Name == telemetry.Scope {
			ours = append(ours, sp)
		}
	}
	return ours
}

// play has everything happen once at least, in parts at the same time.
func play(t *testing.T) *story {
	t.Helper()
	s := &story{
		recorder: &recorder{started: make(map[trace.SpanID][]attribute.Key)},
		reader:   sdkmetric.NewManualReader(),
		server:   redistest.New(t),
		queue:    redistest.Name(t),
		lockKey:  redistest.Name(t) + "-key",
	}
	s.tp = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.recorder))
	s.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	t.Run("story", func(t *testing.T) {
		for name, part := range map[string]func(*part){
			"jobs": jobs, "locks": locks, "taken over": takenOver, "cut off": cutOff, "ticks": ticks, "refused": refused,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				part(&partOf{}.of(t, s, name))
			})
		}
	})
	s.collect(t)
	s.spans = tracetest.SpanStubsFromReadOnlySpans(s.recorder.ended)
	return s
}
