package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// Locks are measured like those of package lock.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	p := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	l := acquire(t, p, "metrics")
	if _, err := p.TryAcquire(t.Context(), "metrics"); !errors.Is(err, lock.ErrHeld) {
		t.Error(err)
	}
	if err := errors.Join(l.Extend(t.Context()), l.Release(t.Context())); err != nil {
		t.Error(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					got[m.Name] += int(p.Count)
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					got[m.Name] += int(p.Value)
				}
			}
		}
	}
	for name, want := range map[string]int{"signalbox.lock.acquire.duration": 2, "signalbox.lock.held.duration": 1, "signalbox.lock.renewals": 1, "signalbox.lock.lost": 0} {
		if got[name] != want {
			t.Errorf("%s is %d; want %d (%v)", name, got[name], want, got)
		}
	}
}
