package lock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock/internal/held"
)

// Measures are what was measured, also for the tests of all lockers: the count of each metric, by its outcome if it has one.
type Measures struct {
	t      *testing.T
	reader *sdkmetric.ManualReader
	*sdkmetric.MeterProvider
	secret string // stands in no attribute
}

// Measuring begins to measure.
func Measuring(t *testing.T, secret string) *Measures {
	reader := sdkmetric.NewManualReader()
	return &Measures{t, reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), secret}
}

func (m *Measures) Read() map[string]int {
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

func (m *Measures) Want(want map[string]int) {
	m.t.Helper()
	if got := m.Read(); fmt.Sprint(got) != fmt.Sprint(want) {
		m.t.Errorf("measured %v, want %v", got, want)
	}
}

// heldFor is the sum of the times that locks were held.
func (m *Measures) heldFor() time.Duration {
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

// A lock that nobody extends is lost at the end of its validity, though nobody asks.
func TestMetricsOfAnExpiredLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := Measuring(t, "")
		locker := newRedis(fakeRedis{run: func(s *redis.Script, _ []any) (any, error) {
			if s == acquireScript {
				return []any{int64(1), "7"}, nil
			}
			return int64(0), nil
		}}, Config{TTL: 10 * time.Second, MeterProvider: m})
		l, err := locker.Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want := map[string]int{"acquire.duration acquired": 1, "held.duration": 1, "lost expired": 1}
		m.Want(want)
		if held := m.heldFor(); held < 9*time.Second || held > 10*time.Second {
			t.Errorf("it was held for %v, want its validity", held)
		}
		_ = l.Release(t.Context())
		m.Want(want)
	})
}

// While nobody measures, a lock costs what it did.
func TestMetricsOff(t *testing.T) {
	locker := newRedis(fakeRedis{run: func(*redis.Script, []any) (any, error) { return []any{int64(1), "7"}, nil }})
	l, err := locker.TryAcquire(t.Context(), "key")
	if err != nil {
		t.Fatal(err)
	}
	l.(*redisLock).Validity.End(nil)
	if n := testing.AllocsPerRun(100, func() {
		locker.metrics.Ask().End(t.Context(), telemetry.LockAcquired)
		locker.metrics.Hold(t.Context(), held.HowLost).Renewed()
	}); n != 0 {
		t.Errorf("%v allocations for metrics that nobody wants", n)
	}
}
