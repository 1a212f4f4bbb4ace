package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// measured runs a worker with a client that ignores deadlines. It returns a function that collects its metrics.
func measured(t *testing.T, r *rig, rdb redis.UniversalClient) func() (depth bool, took time.Duration) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	cfg := r.config(1)
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := r.workerOn(rdb, cfg)
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "the worker works")
	return collector(t, reader)
}

// collector returns a function that collects metrics. That function returns whether a queue's depth is among them, and how long it took.
func collector(t *testing.T, reader *sdkmetric.ManualReader) func() (depth bool, took time.Duration) {
	return func() (depth bool, took time.Duration) {
		t.Helper()
		begin := time.Now()
		depth = hasDepth(t, reader)
		return depth, time.Since(begin)
	}
}

// hasDepth reports whether collected metrics have a queue's depth.
func hasDepth(t *testing.T, reader sdkmetric.Reader) (depth bool) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Error(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			depth = depth || m.Name == "signalbox.queue.depth"
		}
	}
	return depth
}

// If Redis doesn't answer, collecting the program's metrics takes 2 s longer at most, whatever the client's timeouts are.
func TestDepthsOfASilentRedis(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(t *testing.T, r *rig) func() (depth bool, took time.Duration){
		"a worker": func(t *testing.T, r *rig) func() (bool, time.Duration) { return measured(t, r, r.rdb) },
		"another process": func(t *testing.T, r *rig) func() (bool, time.Duration) {
			reader := sdkmetric.NewManualReader()
			stop, err := worker.ReportDepths(t.Context(), r.rdb, worker.ReportConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}, r.name())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			return collector(t, reader)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			r := newRigOn(t, server.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout, o.ContextTimeoutEnabled = time.Minute, false }))
			collect := begin(t, r)
			if depth, _ := collect(); !depth {
				t.Error("no depth")
			}
			server.Stop()
			for i := range 3 {
				if depth, took := collect(); depth || took > 20*time.Second {
					t.Errorf("collection %d took %v, want 2 s at the most; depths: %v", i+1, took, depth)
				}
			}
			server.Cont()
			redistest.Eventually(t, func() bool {
				depth, _ := collect()
				return depth
			}, "the depth is there again")
		})
	}
}

// A worker stops while Redis hangs. To report that it no longer reports the depths, it doesn't wait for the client's timeouts. It is
// idle, so it makes no other call at that time.
func TestEndOfReportingIsBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout, o.ContextTimeoutEnabled = 2*patience, false })
	reader := sdkmetric.NewManualReader()
	cfg := r.config(1)
	cfg.DrainTimeout, cfg.MeterProvider = -1, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := r.workerOn(rdb, cfg)
	r.reporter(w)
	run := r.start(w)
	r.idle()
	collect := collector(t, reader)
	redistest.Eventually(t, func() bool {
		depth, _ := collect()
		return depth
	}, "the worker reports the depth")
	proxy.Pause()
	defer proxy.Resume()
	run.cancel()
	if err := run.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
}

// The process that reports the depths ends. The next process that collects metrics takes over, even after the context of the first ended.
func TestDepthsAreHandedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.addOne(signalbox.Job{})
	reports := func() (depth func() bool, end func()) {
		reader := sdkmetric.NewManualReader()
		ctx, cancel := context.WithCancel(context.Background())
		stop, err := worker.ReportDepths(ctx, r.rdb, worker.ReportConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), Logger: slog.New(r.log)}, r.name())
		if err != nil {
			t.Fatal(err)
		}
		return func() bool { return hasDepth(t, reader) }, func() { cancel(); stop() }
	}
	first, endFirst := reports()
	second, endSecond := reports()
	if !first() || second() {
		t.Error("it is not the first one that reports, alone")
	}
	endFirst()
	if !second() {
		t.Error("nobody reports when the first one has ended")
	}
	endSecond()
}

// A queue's batches are counted with its jobs: those that aren't over, and those of which a member hasn't completed.
func TestBatchesAreCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	batch := func() *scheduler.Batch {
		b, err := r.scheduler().Batch(t.Context(), r.name())
		must(err)
		return b
	}
	must(batch().Seal(t.Context())) // without members it is over
	batch()
	bad, err := batch().Add(t.Context(), task{})
	must(err)
	_, err = r.queue.Do(t.Context(), store.DeleteJobs(), []string{bad.ID})
	must(err)

	reader := sdkmetric.NewManualReader()
	stop, err := worker.ReportDepths(t.Context(), r.rdb, worker.ReportConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}, r.name())
	must(err)
	defer stop()
	var all metricdata.ResourceMetrics
	must(reader.Collect(t.Context(), &all))
	got := make(map[string]int64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if gauge, ok := m.Data.(metricdata.Gauge[int64]); ok && len(gauge.DataPoints) == 1 {
				got[m.Name] = gauge.DataPoints[0].Value
			}
		}
	}
	if got["signalbox.flows.open"] != 2 || got["signalbox.flows.failed"] != 1 {
		t.Errorf("%v, want 2 open and 1 that has failed", got)
	}
}

// Metrics are collected every few seconds. The log reports at most once a minute that the depths can't be read, and once that they can
// be read again.
func TestDepthsThatCantBeReadAreLoggedOnce(t *testing.T) {
	t.Parallel()
	redistest.Eventually(t, func() bool {
		r := newRig(t)
		wrong := depthsLogged(t, r)
		if r.log.count("the depths of a queue could not be read", "deadline exceeded") > 0 {
			return false // the machine stood still for 2 s: a read that should succeed has failed
		}
		for _, w := range wrong {
			t.Error(w)
		}
		return true
	}, "no read takes longer than its limit")
}

// depthsLogged has a worker whose depths can't be read now and then, twice in a minute. It returns what is wrong.
func depthsLogged(t *testing.T, r *rig) (wrong []string) {
	t.Helper()
	says := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	collect := measured(t, r, proxy.Client())
	for i := range 2 {
		proxy.Reply(r.isScript("reporter"), "-ERR not now", 3)
		for range 3 {
			if depth, _ := collect(); depth {
				says("depths that can't be read")
			}
		}
		if n := r.log.count("read again"); n != i {
			says("the log says %d times that they are read again, want %d", n, i)
		}
		for range 2 {
			if depth, _ := collect(); !depth {
				says("no depth when they can be read again")
			}
		}
	}
	const warning = "the depths of a queue could not be read"
	if n := r.log.count("WARN", warning, "not now"); n != 1 {
		says("%d warnings, want 1", n)
	}
	if n := r.log.count("INFO", "the depths of a queue are read again", "queue="+r.name()); n != 1 {
		says("the log says %d times that they are read again, want 1", n)
	}
	return wrong
}
