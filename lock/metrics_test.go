package lock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// measures are what was measured: the count of each metric, by its outcome if it has one.
type measures struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
	*sdkmetric.MeterProvider
	secret string // stands in no attribute
}

func measuring(t *testing.T, secret string) *measures {
	reader := sdkmetric.NewManualReader()
	return &measures{t, reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), secret}
}

func (m *measures) read() map[string]int {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		m.t.Fatal(err)
	}
	got := map[string]int{}
	add := func(name string, set attribute.Set, n int) {
		name = strings.TrimPrefix(name, "signalbox.lock.")
		if outcome, ok := set.Value(telemetry.LockOutcome); ok {
			name += " " + outcome.AsString()
		}
		got[name] += n
		if m.secret != "" && strings.Contains(fmt.Sprint(set.ToSlice()), m.secret) {
			m.t.Errorf("%s has the key among its attributes: %v", name, set.ToSlice())
		}
	}
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(metric.Name, p.Attributes, int(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(metric.Name, p.Attributes, int(p.Count))
				}
			}
		}
	}
	return got
}

func (m *measures) want(want map[string]int) {
	m.t.Helper()
	if got := m.read(); fmt.Sprint(got) != fmt.Sprint(want) {
		m.t.Errorf("measured %v, want %v", got, want)
	}
}

// heldFor is the sum of the times that locks were held.
func (m *measures) heldFor() time.Duration {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		m.t.Fatal(err)
	}
	for _, metric := range all.ScopeMetrics[0].Metrics {
		if data, ok := metric.Data.(metricdata.Histogram[float64]); ok && metric.Name == "signalbox.lock.held.duration" {
			return time.Duration(data.DataPoints[0].Sum * float64(time.Second))
		}
	}
	m.t.Fatal("no lock was held")
	return 0
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	masters := masters(t, 3)
	for name, locker := range map[string]func(*measures) Locker{
		"Redis": func(m *measures) Locker { return New(rdb, MeterProvider(m)) },
		"Redlock": func(m *measures) Locker {
			return redlockOn(t, masters, RedlockConfig{MeterProvider: m, NodeTimeout: time.Second})
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := redistest.Name(t)
			m := measuring(t, key)
			locker := locker(m)
			l, err := locker.Acquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			m.want(map[string]int{"acquire.duration acquired": 1})
			if _, err := locker.TryAcquire(t.Context(), key); !errors.Is(err, ErrHeld) {
				t.Error(err)
			}
			for range 2 {
				if err := l.Extend(t.Context()); err != nil {
					t.Error(err)
				}
			}
			for range 2 { // the second changes nothing
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := locker.Acquire(ended, key); err == nil {
				t.Error("acquired with a context that has ended")
			}
			want := map[string]int{
				"acquire.duration acquired": 1, "acquire.duration held": 1, "acquire.duration error": 1,
				"held.duration": 1, "renewals": 2,
			}
			m.want(want)

			// Taken, and found at an extension or at the release.
			for _, find := range []func(Lock) error{
				func(l Lock) error { return l.Extend(t.Context()) },
				func(l Lock) error { return l.Release(t.Context()) },
			} {
				l, err := locker.Acquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				take(t, l, rdb, masters, key)
				if err := find(l); !errors.Is(err, ErrTaken) {
					t.Errorf("%v, want an ErrTaken", err)
				}
				<-l.Context().Done()
				_ = l.Release(t.Context())
				want["acquire.duration acquired"]++
				want["held.duration"]++
				want["lost taken"]++
				redistest.Eventually(t, func() bool { return maps.Equal(m.read(), want) }, "measured is %v", want)
				give(t, l, rdb, masters, key)
			}
		})
	}
}

// take has another holder take the key.
func take(t *testing.T, l Lock, rdb redis.UniversalClient, servers []*redistest.Server, key string) {
	t.Helper()
	if _, one := l.(*redisLock); one {
		if err := rdb.Set(t.Context(), key, "another", time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		return
	}
	everywhere(t, servers, func(_ int, rdb redis.UniversalClient) {
		if err := rdb.Set(t.Context(), key, "another", time.Minute).Err(); err != nil {
			t.Error(err)
		}
	})
}

// give undoes it.
func give(t *testing.T, l Lock, rdb redis.UniversalClient, servers []*redistest.Server, key string) {
	t.Helper()
	if _, one := l.(*redisLock); one {
		rdb.Del(t.Context(), key)
		return
	}
	everywhere(t, servers, func(_ int, rdb redis.UniversalClient) { rdb.Del(t.Context(), key) })
}

// A lock that nobody extends is lost at the end of its validity, though nobody asks.
func TestMetricsOfAnExpiredLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := measuring(t, "")
		locker := New(fakeRedis{run: func(s *redis.Script, _ []any) (any, error) {
			if s == acquireScript {
				return []any{int64(1), "7"}, nil
			}
			return int64(0), nil
		}}, TTL(10*time.Second), MeterProvider(m))
		l, err := locker.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want := map[string]int{"acquire.duration acquired": 1, "held.duration": 1, "lost expired": 1}
		m.want(want)
		if held := m.heldFor(); held < 9*time.Second || held > 10*time.Second {
			t.Errorf("it was held for %v, want its validity", held)
		}
		_ = l.Release(t.Context())
		m.want(want)
	})
}

// While nobody measures, a lock costs what it did.
func TestMetricsOff(t *testing.T) {
	locker := New(fakeRedis{run: func(*redis.Script, []any) (any, error) { return []any{int64(1), "7"}, nil }})
	l, err := locker.TryAcquire(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	if holding := l.(*redisLock).holding.Load(); holding != nil {
		t.Error("it is measured")
	}
	l.(*redisLock).validity.End(nil)
	if n := testing.AllocsPerRun(100, func() {
		locker.metrics.Ask().End(t.Context(), telemetry.LockAcquired)
		locker.metrics.Hold(t.Context(), howLost).Renewed()
	}); n != 0 {
		t.Errorf("%v allocations for metrics that nobody wants", n)
	}
}
