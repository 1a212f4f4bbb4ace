package worker_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker that isn't stopping gives no job back, whatever error its handler returns.
func TestTraceOfAnothersShutdown(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	reader := sdkmetric.NewManualReader()
	cfg := r.config(1)
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := r.workerWith(cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		return fmt.Errorf("inner pool: %w", signalbox.ErrShutdown)
	})
	r.addOne(signalbox.Job{MaxAttempts: 1})
	r.start(w)
	dead, process := r.n("dead_letter", 1)[0], r.n("process", 1)[0]
	if got := value(dead, "signalbox.job.outcome").AsString(); got != "dead" {
		t.Errorf("the job is %q", got)
	}
	for _, s := range append(r.named("handle task"), process) {
		if s.Status.Code != codes.Error || value(s, "error.type").AsString() == "" {
			t.Errorf("%s: %v %v", s.Name, s.Status, s.Attributes)
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "messaging.process.duration" {
			if len(h.DataPoints) != 1 || !h.DataPoints[0].Attributes.HasValue("error.type") {
				t.Errorf("measured as %v", h.DataPoints)
			}
		}
	}
}

// If an attempt failed because it didn't get a lock, its span says so.
func TestTraceOfAHeldLock(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	l, key := newLocker(r.rdb), redistest.Name(t)
	if _, err := l.TryAcquire(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	w := r.workerWith(r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil },
		worker.With(middleware.Lock(l, middleware.RawKey(key), middleware.WhenHeld(middleware.PolicyFail))))
	r.addOne(signalbox.Job{MaxAttempts: 1})
	r.start(w)
	if got := value(r.n("process", 1)[0], "error.type").AsString(); got != telemetry.ErrorLockHeld {
		t.Errorf("its error.type is %q", got)
	}
}

// nilError panics when its method is called, like a nil pointer inside an error.
type nilError struct{ err error }

func (e *nilError) Error() string { return e.err.Error() }
func (e *nilError) Unwrap() error { return e.err }

// An error that panics makes the attempt fail. The process continues, whatever code reads the error.
func TestTraceOfABrokenError(t *testing.T) {
	t.Parallel()
	broken := func(signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error {
			var err *nilError
			return err
		})
	}
	for name, with := range map[string]func(r *tracedRig, cfg *worker.Config){
		"traced": func(r *tracedRig, cfg *worker.Config) { cfg.TracerProvider = r.tp },
		"measured": func(_ *tracedRig, cfg *worker.Config) {
			cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			cfg := r.rig.config(1)
			with(r, &cfg)
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil }, worker.With(broken))
			r.addOne(signalbox.Job{MaxAttempts: 1})
			r.start(w)
			r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
		})
	}
}
