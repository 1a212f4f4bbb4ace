package scheduler

import (
	"context"
	"fmt"
	"maps"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// silent has the configurations that record no spans and metrics, and still pass on the
// traces of callers.
var silent = map[string]Config{
	"no provider": {Propagator: everything},
	"no-op":       {Propagator: everything, TracerProvider: noop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()},
}

// remote returns a context with a span of another process.
func remote(t *testing.T) context.Context {
	t.Helper()
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
}

// A process without tracing passes on the trace of the caller.
func TestCallersTrace(t *testing.T) {
	t.Parallel()
	caller, _ := traced(t)
	local, span := caller.TracerProvider.Tracer("caller").Start(context.Background(), "GET /")
	defer span.End()
	for whose, ctx := range map[string]context.Context{"local": local, "remote": remote(t)} {
		for name, config := range silent {
			t.Run(whose+", "+name, func(t *testing.T) {
				t.Parallel()
				_, s, q, _ := tracedSetup(t, func(c *Config) { *c = config })
				items := many(3)
				items[1].Options = []EnqueueOption{Header("k", "v")}
				items[2].Options = []EnqueueOption{TraceMode(signalbox.TraceNone)}
				if _, err := s.Enqueue(ctx, note{}, Queue(q.Name())); err != nil {
					t.Fatal(err)
				}
				if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); err != nil {
					t.Fatal(err)
				}
				sc := trace.SpanContextFromContext(ctx)
				jobs := claimAll(t, q)
				same(t, "jobs", len(jobs), 4)
				for i, more := range []map[string]string{
					{},
					{modeHeader: "link"},
					{modeHeader: "link", "k": "v"},
					{modeHeader: "none"},
				} {
					want := map[string]string{"traceparent": traceparent(sc)}
					if state := sc.TraceState().String(); state != "" {
						want["tracestate"] = state
					}
					maps.Copy(want, more)
					sameMap(t, fmt.Sprintf("job %d", i), jobs[i].Headers, want)
				}
			})
		}
	}
}

// A tick is not part of a trace around Run, with or without tracing.
func TestTicksWithoutTracing(t *testing.T) {
	t.Parallel()
	for name, config := range silent {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s, q, _ := tracedSetup(t, func(c *Config) { *c = config })
			if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name()), TraceMode(signalbox.TraceLink)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(remote(t))
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			redistest.Eventually(t, func() bool {
				counts, err := q.Looks().Counts(ctx)
				return err == nil && counts.Ready > 0
			}, "a tick is enqueued")
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			for _, j := range claimAll(t, q) {
				sameMap(t, "headers", j.Headers, nil)
			}
		})
	}
}

// Without tracing and metrics, a job costs only its encoding and sending.
func TestOffCost(t *testing.T) {
	for name, config := range silent {
		t.Run(name, func(t *testing.T) {
			s := offlineWith(t, config)
			ctx := context.Background()
			b := &bulk{s: s, ctx: ctx, traced: !s.trace.silent(), measured: !s.metrics.Silent()}
			job := defaults.job(store.NewID(), "note", []byte(`{"N":1}`))
			encoding := testing.AllocsPerRun(100, func() {
				if _, err := store.NewItem(&job, store.When{}); err != nil {
					t.Fatal(err)
				}
			})
			all := testing.AllocsPerRun(100, func() {
				if _, _, err := b.create(&job, nil, &defaults); err != nil {
					t.Fatal(err)
				}
			})
			if all != encoding || b.traced || b.measured || job.Headers != nil {
				t.Errorf("%v allocations, want %v; traced %v, measured %v, headers %v", all, encoding, b.traced, b.measured, job.Headers)
			}
			if n := testing.AllocsPerRun(100, func() {
				ctx, span := s.trace.start(ctx, job.ID, job.Kind, &defaults)
				watch := s.watch()
				watch.sent(ctx, "q", job.Kind, 1, nil)
				watch.took(ctx, "q", nil)
				end(span, nil)
			}); n != 0 {
				t.Errorf("%v allocations around a single job", n)
			}
		})
	}
}
