package middleware

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// asked has what was recorded about lock acquisitions: spans, and seconds by outcome.
type asked struct {
	spans   *tracetest.InMemoryExporter
	tracers *sdktrace.TracerProvider
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
}

func newAsked() asked {
	spans, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	return asked{spans, sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
}

// once returns the span of the only acquisition. It checks that span and metric have this outcome and took at
// least this long.
func (a asked) once(t *testing.T, outcome string, least time.Duration) tracetest.SpanStub {
	t.Helper()
	spans := a.spans.GetSpans()
	if len(spans) != 1 || spans[0].Name != "lock acquire" {
		t.Fatalf("the spans are %v, want one", spans)
	}
	set := attribute.NewSet(spans[0].Attributes...)
	said, _ := set.Value(telemetry.LockOutcome)
	wait, _ := set.Value("signalbox.lock.wait_ms")
	if said.AsString() != outcome || wait.AsInt64() < least.Milliseconds() || spans[0].EndTime.Sub(spans[0].StartTime) < least {
		t.Errorf("the span says %q after %d ms, want %q after %v at least", said.AsString(), wait.AsInt64(), outcome, least)
	}
	if (spans[0].Status.Code == codes.Error) != (outcome == "error") {
		t.Errorf("%s: status %v", outcome, spans[0].Status)
	}
	var all metricdata.ResourceMetrics
	if err := a.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "signalbox.lock.acquire.duration" {
			for _, p := range h.DataPoints {
				n += int(p.Count)
				if said, _ := p.Attributes.Value(telemetry.LockOutcome); said.AsString() != outcome || p.Sum < least.Seconds() {
					t.Errorf("the metric says %q after %v s", said.AsString(), p.Sum)
				}
			}
		}
	}
	if n != 1 {
		t.Errorf("it was measured %d times", n)
	}
	return spans[0]
}

const loading = "-LOADING Redis is loading the dataset in memory"

// A wait for a lock is one acquisition, even if it asks many times.
func TestWaitIsOneAsking(t *testing.T) {
	t.Parallel()
	masters := []*redistest.Server{redistest.New(t), redistest.New(t), redistest.New(t)}
	for name, locker := range map[string]func(t *testing.T, a asked) (locker lock.Locker, fail func()){
		"Redis": func(t *testing.T, a asked) (lock.Locker, func()) {
			proxy := redistest.NewProxy(t, masters[0].Addr())
			return newLocker(proxy.Client(), lock.Config{MeterProvider: a.meters}), func() { proxy.Reply(redistest.Any, loading, -1) }
		},
		"Redlock": func(t *testing.T, a asked) (lock.Locker, func()) {
			var nodes []*redis.Options
			var proxies []*redistest.Proxy
			for _, s := range masters {
				p := redistest.NewProxy(t, s.Addr())
				proxies, nodes = append(proxies, p), append(nodes, &redis.Options{Addr: p.Addr()})
			}
			r, err := redlock.New(nodes, redlock.Config{NoRestartDelay: true, NodeTimeout: time.Second, MeterProvider: a.meters})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
			return r, func() {
				for _, p := range proxies {
					p.Reply(redistest.Any, loading, -1)
				}
			}
		},
	} {
		for _, c := range []struct {
			name    string
			held    bool
			wait    time.Duration
			then    string // while the lock is waited for, the holder "releases" or the service "fails"
			outcome string
			least   time.Duration
		}{
			{"free", false, time.Minute, "", "acquired", 0},
			{"released", true, time.Minute, "releases", "acquired", 50 * time.Millisecond},
			{"held to the end", true, 100 * time.Millisecond, "", "held", 50 * time.Millisecond},
			{"no time to wait", true, 1, "", "held", 0},
			{"not waited for", true, 0, "", "held", 0},
			{"goes down", true, time.Minute, "fails", "error", 50 * time.Millisecond},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				a := newAsked()
				locker, fail := locker(t, a)
				key := redistest.Name(t)
				ctx, _ := delivery(t, time.Hour)
				var held lock.Lock
				if c.held {
					var err error
					if held, err = another(t, masters, name).TryAcquire(ctx, key); err != nil {
						t.Fatal(err)
					}
				}
				waits := make(chan struct{})
				go func() {
					select {
					case <-waits:
					case <-t.Context().Done():
						return
					}
					time.Sleep(50 * time.Millisecond)
					switch c.then {
					case "releases":
						_ = held.Release(context.Background())
					case "fails":
						fail()
					}
				}()
				ctx, parent := a.tracers.Tracer("test").Start(ctx, "parent")
				ran := false
				err := run(ctx, &signalbox.Job{}, Lock(tellingLocker{locker, waits}, RawKey(key), MaxWait(c.wait), WhenHeld(PolicyFail)), func(context.Context, *signalbox.Job) error {
					ran = true
					return nil
				})
				if ran != (c.outcome == "acquired") || errors.Is(err, lock.ErrHeld) != (c.outcome == "held") {
					t.Errorf("ran %v, %v", ran, err)
				}
				a.once(t, c.outcome, c.least)
				parent.End()
			})
		}
	}
}

// another returns a locker on the same servers.
func another(t *testing.T, masters []*redistest.Server, name string) lock.Locker {
	t.Helper()
	if name == "Redis" {
		return newLocker(masters[0].Client())
	}
	var nodes []*redis.Options
	for _, s := range masters {
		nodes = append(nodes, &redis.Options{Addr: s.Addr()})
	}
	r, err := redlock.New(nodes, redlock.Config{NoRestartDelay: true, NodeTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// If the wait ends without an answer, the lock counts as held, since it was held at the last answer. The policy
// for that case applies, and the span says the same.
func TestWaitForASilentServiceIsHeld(t *testing.T) {
	t.Parallel()
	a := newAsked()
	server := redistest.Start(t)
	proxy, key := redistest.NewProxy(t, server.Addr()), redistest.Name(t)
	if _, err := newLocker(server.Client()).TryAcquire(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	ctx, _ := delivery(t, time.Hour)
	ctx, parent := a.tracers.Tracer("test").Start(ctx, "parent")
	defer parent.End()
	locker := pausingLocker{newLocker(proxy.Client(), lock.Config{MeterProvider: a.meters}), proxy}
	err := run(ctx, &signalbox.Job{}, Lock(locker, RawKey(key), MaxWait(200*time.Millisecond), WhenHeld(PolicyFail)), handlerMustNotRun(t))
	proxy.Resume()
	if !errors.Is(err, lock.ErrHeld) {
		t.Error(err)
	}
	if s := a.once(t, "held", 100*time.Millisecond); len(s.Events) != 0 {
		t.Errorf("events %v", s.Events)
	}
}

// pausingLocker gets no answer from Redis while it waits.
type pausingLocker struct {
	lock.Locker
	proxy *redistest.Proxy
}

func (l pausingLocker) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	l.proxy.Pause()
	return l.Locker.Acquire(ctx, key)
}

// Locks that are acquired under a lock that was waited for have spans of their own.
func TestAskingUnderALockThatWasWaitedFor(t *testing.T) {
	t.Parallel()
	a := newAsked()
	locker, key := newLocker(redistest.Start(t).Client(), lock.Config{MeterProvider: a.meters}), redistest.Name(t)
	ctx, _ := delivery(t, time.Hour)
	ctx, parent := a.tracers.Tracer("test").Start(ctx, "parent")
	defer parent.End()
	err := run(ctx, &signalbox.Job{}, Lock(locker, RawKey(key), MaxWait(time.Minute)), func(ctx context.Context, _ *signalbox.Job) error {
		lease, _ := lock.FromContext(ctx)
		l, _ := lease.(lock.Lock)
		for _, ctx := range []context.Context{ctx, l.Context()} {
			if _, err := locker.TryAcquire(ctx, key); !errors.Is(err, lock.ErrHeld) {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	var outcomes []string
	for _, s := range a.spans.GetSpans() {
		set := attribute.NewSet(s.Attributes...)
		v, _ := set.Value(telemetry.LockOutcome)
		outcomes = append(outcomes, v.AsString())
	}
	if len(outcomes) != 3 || outcomes[0] != "acquired" || outcomes[1] != "held" || outcomes[2] != "held" {
		t.Errorf("%v", outcomes)
	}
}
