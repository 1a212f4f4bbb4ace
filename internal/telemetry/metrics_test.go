package telemetry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func meters() (*sdkmetric.MeterProvider, *sdkmetric.ManualReader) {
	reader := sdkmetric.NewManualReader()
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), reader
}

// collect returns all metrics by their names.
func collect(t *testing.T, reader *sdkmetric.ManualReader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.Name != Scope || scope.Scope.SchemaURL == "" {
			t.Errorf("the scope is %+v", scope.Scope)
		}
		for _, m := range scope.Metrics {
			got[m.Name] = m
		}
	}
	return got
}

// recordAll records something with each instrument.
func recordAll(t *testing.T, mp *sdkmetric.MeterProvider) {
	who := Who{Address: "redis.test", Port: 6379, ClientID: "worker-1"}
	p := NewProducerMetrics(mp, who)
	p.Sent(t.Context(), "mail", "welcome", 3, nil, "")
	p.Sent(t.Context(), "mail", "welcome", 0, nil, "") // records nothing
	p.Took(t.Context(), "mail", time.Millisecond, errors.New("down"), "")
	p.Tick(t.Context(), "mail", OutcomeFired, 1)
	p.Tick(t.Context(), "mail", OutcomeMissed, 2)
	p.Lag(t.Context(), "mail", -time.Second) // since clocks differ
	c := NewConsumerMetrics(mp, who)
	job := c.Start(t.Context(), "mail", "welcome", 2*time.Second)
	c.Stuck(t.Context(), "mail", "welcome", 1)
	job.Returned()
	job.Settled(settleRetried, settleRetried, time.Millisecond)
	job.Ended(ErrorTimeout)
	c.Settled(t.Context(), "mail", "", settleDead, settleSuperseded, 0)
	l := NewLockMetrics(mp)
	l.Ask().End(t.Context(), LockAcquired)
	l.LeaseRenewed(t.Context(), "mail")
	l.LeaseLost(t.Context(), "mail", LostExpired)
	lost := l.Hold(t.Context(), nil)
	lost.Renewed()
	lost.Released()
	lost.Lost(LostTaken)
	lost.Lost(LostExpired) // it was lost only once
	o := NewOutboxMetrics(mp)
	o.Relayed(t.Context(), "shop", "mail", RowEnqueued, 5)
	o.Relayed(t.Context(), "shop", "mail", RowDead, 0) // records nothing
	o.Repaired(t.Context(), "shop", "mail", RepairRedis)
	t.Cleanup(o.ObserveDepths(func() []OutboxDepth {
		return []OutboxDepth{{Namespace: "shop", Queue: "mail", Backlog: 11, Dead: 2, Lag: 1500 * time.Millisecond}}
	}))
	t.Cleanup(ObserveDepths(mp, func(context.Context) []Depth {
		return []Depth{{Queue: "mail", Ready: 7, Blocked: 4, Dead: 1, PausedGroups: 2, HeldGroups: 3, OpenFlows: 5, FailedFlows: 2, Oldest: 90 * time.Second, Paused: true, Limited: true}}
	}))
}

func TestInstruments(t *testing.T) {
	t.Parallel()
	mp, reader := meters()
	recordAll(t, mp)
	const system, space, queue, kind = "messaging.system", "signalbox.namespace", "messaging.destination.name", "signalbox.job.kind"
	const name, typ, errorType, address, port = "messaging.operation.name", "messaging.operation.type", "error.type", "server.address", "server.port"
	want := map[string]struct {
		unit       string
		attributes []string
		value      float64 // sum of all points
	}{
		"messaging.client.sent.messages":      {"{message}", []string{name, typ, system, queue, kind, address, port}, 3},
		"messaging.client.consumed.messages":  {"{message}", []string{name, typ, system, queue, kind, address, port}, 1},
		"messaging.client.operation.duration": {"s", []string{name, typ, system, queue, errorType, address, port}, 3},
		"messaging.process.duration":          {"s", []string{name, typ, system, queue, kind, errorType, address, port}, 1},
		"signalbox.job.wait.duration":         {"s", []string{system, queue, kind}, 1},
		"signalbox.jobs.settled":              {"{job}", []string{system, queue, kind, "signalbox.job.outcome"}, 1},
		"signalbox.worker.active":             {"{job}", []string{system, queue, kind}, 0},
		"signalbox.worker.stuck":              {"{job}", []string{system, queue, kind}, 1},
		"signalbox.fence.rejected":            {"{write}", []string{system, queue}, 1},
		"signalbox.queue.depth":               {"{job}", []string{system, queue, "signalbox.queue.state"}, 12},
		"signalbox.queue.stopped_groups":      {"{group}", []string{system, queue, "signalbox.queue.cause"}, 5},
		"signalbox.flows.open":                {"{flow}", []string{system, queue}, 5},
		"signalbox.flows.failed":              {"{flow}", []string{system, queue}, 2},
		"signalbox.queue.stopped":             {"{queue}", []string{system, queue, "signalbox.queue.cause"}, 2},
		"signalbox.queue.oldest_job.age":      {"s", []string{system, queue}, 90},
		"signalbox.lock.acquire.duration":     {"s", []string{system, "signalbox.lock.outcome"}, 1},
		"signalbox.lock.held.duration":        {"s", []string{system}, 1},
		"signalbox.lock.renewals":             {"{renewal}", []string{system, queue}, 2},
		"signalbox.lock.lost":                 {"{lock}", []string{system, queue, "signalbox.lock.outcome"}, 2},
		"signalbox.schedule.ticks":            {"{tick}", []string{system, queue, "signalbox.schedule.outcome"}, 3},
		"signalbox.schedule.lag":              {"s", []string{system, queue}, 1},
		"signalbox.outbox.relayed":            {"{job}", []string{system, space, queue, "signalbox.outbox.outcome"}, 5},
		"signalbox.outbox.repairs":            {"{repair}", []string{system, space, queue, "signalbox.outbox.repair"}, 1},
		"signalbox.outbox.backlog":            {"{job}", []string{system, space, queue}, 11},
		"signalbox.outbox.dead":               {"{job}", []string{system, space, queue}, 2},
		"signalbox.outbox.lag":                {"s", []string{system, space, queue}, 1.5},
	}
	got := collect(t, reader)
	for name, m := range got {
		w, ok := want[name]
		if !ok {
			t.Errorf("what is %s?", name)
			continue
		}
		sum, attributes := total(t, m)
		slices.Sort(w.attributes)
		if m.Unit != w.unit || m.Description == "" || sum != w.value || !slices.Equal(attributes, w.attributes) {
			t.Errorf("%s: unit %q, %v with %v; want unit %q, %v with %v", name, m.Unit, sum, attributes, w.unit, w.value, w.attributes)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d instruments, want %d: %v", len(got), len(want), slices.Sorted(maps.Keys(got)))
	}
}

// total returns the sum of a metric's values, or of the counts of its histograms, and the
// names of all attributes of its points.
func total(t *testing.T, m metricdata.Metrics) (sum float64, attributes []string) {
	t.Helper()
	names := map[string]bool{}
	add := func(v float64, set attribute.Set) {
		sum += v
		for _, kv := range set.ToSlice() {
			names[string(kv.Key)] = true
			if kv.Value.String() == "worker-1" {
				t.Errorf("%s names the client: %v", m.Name, kv)
			}
		}
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			add(float64(p.Value), p.Attributes)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			add(float64(p.Value), p.Attributes)
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			add(p.Value, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			add(float64(p.Count), p.Attributes)
			if p.Bounds[0] != 0.0001 || p.Bounds[len(p.Bounds)-1] != 3600 || !slices.IsSorted(p.Bounds) {
				t.Errorf("%s: the boundaries are %v, want some from 0.1 ms to 1 h", m.Name, p.Bounds)
			}
			if p.Sum < 0 {
				t.Errorf("%s: a duration is negative", m.Name)
			}
		}
	default:
		t.Errorf("%s is a %T", m.Name, data)
	}
	return sum, slices.Sorted(maps.Keys(names))
}

func TestDepthsOfStoppedAreGone(t *testing.T) {
	t.Parallel()
	mp, reader := meters()
	stop := ObserveDepths(mp, func(ctx context.Context) []Depth {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("nothing bounds the reading")
		}
		return []Depth{{Queue: "mail", Ready: 1}}
	})
	if got := collect(t, reader); len(got) != 6 {
		t.Errorf("%v, want the depth, the age, what blocks the queue, how many groups are paused, and how many batches there are and have failed", got)
	}
	stop()
	if got := collect(t, reader); len(got) != 0 {
		t.Errorf("%v after it was stopped", got)
	}
}

func TestMetricsSilent(t *testing.T) {
	t.Parallel()
	sdk, _ := meters()
	type others struct{ noop.MeterProvider }
	for name, tc := range map[string]struct {
		mp   metric.MeterProvider
		want bool
	}{
		"none": {nil, true}, "no-op": {noop.NewMeterProvider(), true}, "SDK": {sdk, false}, "another": {others{}, false},
	} {
		if got := NewProducerMetrics(tc.mp, Who{}).Silent(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A read that ignores its context delays a collection only up to the limit. Later collections
// don't wait for it.
func TestDepthsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mp, reader := meters()
		var reads atomic.Int32
		free := make(chan struct{})
		stop := ObserveDepths(mp, func(context.Context) []Depth {
			reads.Add(1)
			<-free
			return []Depth{{Queue: "mail", Ready: 1}}
		})
		begin := time.Now()
		if got := collect(t, reader); len(got) != 0 || time.Since(begin) != depthTimeout {
			t.Errorf("%v after %v, want nothing after %v", got, time.Since(begin), depthTimeout)
		}
		begin = time.Now()
		if got := collect(t, reader); len(got) != 0 || time.Since(begin) != 0 || reads.Load() != 1 {
			t.Errorf("%v after %v of %d reads, want nothing at once while the first is under way", got, time.Since(begin), reads.Load())
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			stop()
		}()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stop didn't wait for the read")
		default:
		}
		close(free)
		<-stopped
		stop() // has no effect
		if got := collect(t, reader); len(got) != 0 || reads.Load() != 1 {
			t.Errorf("%v of %d reads after it was stopped", got, reads.Load())
		}
	})
}

// A read that heeds its context returns in time, with what it has by then.
func TestDepthsOfAReadThatIsCutShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mp, reader := meters()
		t.Cleanup(ObserveDepths(mp, func(ctx context.Context) []Depth {
			<-ctx.Done()
			return []Depth{{Queue: "mail", Ready: 1}}
		}))
		begin := time.Now()
		if got := collect(t, reader); len(got) != 6 || time.Since(begin) > depthTimeout {
			t.Errorf("%v after %v, want the depth, the age, what blocks the queue, how many groups are paused, and how many batches there are and have failed", got, time.Since(begin))
		}
	})
}

// Two collections at the same time share a read.
func TestDepthsForTwoReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		readers := []*sdkmetric.ManualReader{sdkmetric.NewManualReader(), sdkmetric.NewManualReader()}
		mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(readers[0]), sdkmetric.WithReader(readers[1]))
		var reads atomic.Int32
		t.Cleanup(ObserveDepths(mp, func(context.Context) []Depth {
			reads.Add(1)
			<-time.After(time.Second)
			return []Depth{{Queue: "mail", Ready: 1}}
		}))
		var both sync.WaitGroup
		for _, reader := range readers {
			both.Go(func() {
				if got := collect(t, reader); len(got) != 6 {
					t.Errorf("%v, want the depth, the age, what blocks the queue, how many groups are paused, and how many batches there are and have failed", got)
				}
			})
		}
		both.Wait()
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads, want 1", n)
		}
	})
}

// The result of a read that came too late is dropped. The next collection reads again.
func TestDepthsAfterALateRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mp, reader := meters()
		took := time.Hour
		t.Cleanup(ObserveDepths(mp, func(context.Context) []Depth {
			<-time.After(took)
			return []Depth{{Queue: "mail", Ready: int64(took)}}
		}))
		if got := collect(t, reader); len(got) != 0 {
			t.Errorf("%v from a read that takes an hour", got)
		}
		<-time.After(took)
		synctest.Wait()
		took = depthTimeout - 1
		got := collect(t, reader)
		if len(got) != 6 {
			t.Fatalf("%v, want the depth, the age, what blocks the queue, how many groups are paused, and how many batches there are and have failed", got)
		}
		if sum, _ := total(t, got["signalbox.queue.depth"]); sum != float64(took) {
			t.Errorf("the depth is %v, want that of the second read", sum)
		}
	})
}

// Nothing is allocated without a provider, and nothing for attributes that were used before.
func TestMetricsAllocations(t *testing.T) {
	if !MetricsOff(nil) || MetricsOff(noop.NewMeterProvider()) {
		t.Fatal("off without a global provider, and only then")
	}
	ctx := t.Context()
	off, on := NewProducerMetrics(nil, Who{}), NewProducerMetrics(noop.NewMeterProvider(), Who{})
	consumer, locks := NewConsumerMetrics(nil, Who{}), NewLockMetrics(nil)
	for name, f := range map[string]func(){
		"off": func() {
			off.Sent(ctx, "mail", "welcome", 1, nil, "")
			off.Took(ctx, "mail", time.Second, nil, "")
			off.Tick(ctx, "mail", OutcomeFired, 1)
			consumer.Settled(ctx, "mail", "welcome", "completed", "completed", 0)
			locks.LeaseRenewed(ctx, "mail")
			locks.Ask().End(ctx, LockAcquired)
			locks.Hold(ctx, nil).Released()
		},
		"on": func() {
			on.Sent(ctx, "mail", "welcome", 1, nil, "")
			on.Took(ctx, "mail", time.Second, nil, ErrorTimeout)
		},
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Ever new queues are measured, and don't fill the memory.
func TestPointsAreBounded(t *testing.T) {
	t.Parallel()
	var ps points
	for i := range maxPoints + 10 {
		if o := ps.of(point{queue: time.Duration(i).String()}); len(o.add) != 1 || len(o.record) != 1 {
			t.Fatal("no attributes")
		}
	}
	if len(ps.made) != maxPoints {
		t.Errorf("%d are kept, want %d", len(ps.made), maxPoints)
	}
}
