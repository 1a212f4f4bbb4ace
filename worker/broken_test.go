package worker_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// unwilling is an error that panics when its contents are read.
type unwilling struct{}

func (unwilling) Error() string { return "unwilling" }
func (unwilling) Is(error) bool { panic("unwilling") }

// If the error of an attempt panics, the attempt's spans still end, and it is counted.
func TestBrokenErrorsAreToldOf(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]error{"no message": (*nilError)(nil), "no type": unwilling{}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			reader := sdkmetric.NewManualReader()
			cfg := r.config(1)
			cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return broken })
			r.addOne(signalbox.Job{MaxAttempts: 1})
			run := r.start(w)
			r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
			run.stop()
			for _, span := range append(r.n("process", 1), r.named("handle task")...) {
				if span.Status.Code != codes.Error {
					t.Errorf("%s has status %v", span.Name, span.Status)
				}
			}
			if n := len(r.named("handle task")); n != 1 {
				t.Errorf("%d spans of the handler, want 1", n)
			}
			var all metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			counted := map[string]int64{}
			for _, m := range all.ScopeMetrics[0].Metrics {
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						counted[m.Name] += p.Value
					}
				case metricdata.Histogram[float64]:
					for _, p := range data.DataPoints {
						counted[m.Name] += int64(p.Count)
					}
				}
			}
			for _, name := range []string{"signalbox.jobs.settled", "messaging.process.duration", "messaging.client.consumed.messages"} {
				if counted[name] != 1 {
					t.Errorf("%s counts %d, want 1", name, counted[name])
				}
			}
			if counted["signalbox.worker.active"] != 0 {
				t.Errorf("%d handlers are said to run", counted["signalbox.worker.active"])
			}
		})
	}
}

// Handlers don't continue the trace in the context of Run, whether their worker traces or not.
func TestRunInATrace(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]map[string]string{"no headers": nil, "some": {"mine": "1"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			cfg := r.rig.config(1)
			cfg.TracerProvider = noop.NewTracerProvider()
			w := r.workerWith(cfg)
			got := make(chan trace.SpanContext, 1)
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
				got <- trace.SpanContextFromContext(ctx)
				return nil
			})
			r.addOne(signalbox.Job{Headers: headers})
			ctx, span := r.tp.Tracer("").Start(t.Context(), "of Run")
			defer span.End()
			ctx, cancel := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			if sc := get(t, got, "the job runs"); sc.IsValid() {
				t.Errorf("the handler is in the trace %v", sc.TraceID())
			}
			cancel()
			if err := get(t, ended, "Run returns"); err != nil {
				t.Error(err)
			}
		})
	}
}

// If a handler ends its goroutine, the worker reports that like a panic, and the spans end.
func TestGoexitIsToldOf(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	w := r.workerWith(r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		runtime.Goexit()
		return nil
	})
	id := r.addOne(signalbox.Job{MaxAttempts: 1})
	run := r.start(w)
	r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	run.stop()
	handle := r.named("handle task")
	if len(handle) != 1 {
		t.Fatalf("%d spans of the handler, want 1", len(handle))
	}
	for _, span := range append(r.n("process", 1), handle...) {
		if got := value(span, "error.type").AsString(); got != "panic" || span.Status.Code != codes.Error {
			t.Errorf("%s: error.type %q, %v", span.Name, got, span.Status)
		}
	}
	if said := r.job(id).LastError; !strings.Contains(said, "Goexit") {
		t.Errorf("its last error is %q", said)
	}
}
