package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// measured runs a worker with a client that heeds no deadlines, and returns what collects its metrics: whether the depth of its queue is among them, and how long that took.
func measured(t *testing.T, r *rig, rdb redis.UniversalClient) func() (depth bool, took time.Duration) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	cfg := r.config(1)
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := r.workerOn(rdb, cfg)
	ran := r.reporter(w)
	r.start(w)
	r.works(ran, "the worker works")
	return func() (depth bool, took time.Duration) {
		t.Helper()
		var all metricdata.ResourceMetrics
		begin := time.Now()
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Error(err)
		}
		took = time.Since(begin)
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				depth = depth || m.Name == "signalbox.queue.depth"
			}
		}
		return depth, took
	}
}

// A Redis that doesn't answer holds up the program's metrics for 2 s, whatever the client's timeouts.
func TestDepthsOfASilentRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	collect := measured(t, r, r.rdb)
	if depth, _ := collect(); !depth {
		t.Error("no depth")
	}
	server.Stop()
	for i := range 3 {
		if depth, took := collect(); depth || took > 2900*time.Millisecond {
			t.Errorf("collection %d took %v, want 2 s at the most; depths: %v", i+1, took, depth)
		}
	}
	server.Cont()
	redistest.Eventually(t, func() bool {
		depth, _ := collect()
		return depth
	}, "the depth is there again")
}

// Metrics are collected every few seconds; that the depths can't be read is logged once a minute.
func TestDepthsThatCantBeReadAreLoggedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	collect := measured(t, r, proxy.Client())
	proxy.Reply(r.isScript("reporter"), "-ERR not now", 3)
	for range 3 {
		if depth, _ := collect(); depth {
			t.Error("depths that can't be read")
		}
	}
	const warning = "the depths of a queue could not be read"
	if n := r.log.count("WARN", warning, "not now"); n != 1 {
		t.Errorf("%d warnings, want 1", n)
	}
	if depth, _ := collect(); !depth {
		t.Error("no depth when they can be read again")
	}
}
