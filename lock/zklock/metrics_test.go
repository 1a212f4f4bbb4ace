package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox/lock"
)

// The metrics are those of the other lockers.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reader, key := sdkmetric.NewManualReader(), newKey()
	l := locker(t, Config{TTL: time.Second, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	k := acquire(t, l, key)
	if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	if err := k.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, k)
	forgotten := acquire(t, l, key)
	lost(t, forgotten)
	read := func() string {
		got := map[string]uint64{}
		add := func(name string, set attribute.Set, n uint64) {
			if outcome, ok := set.Value("signalbox.lock.outcome"); ok {
				name += " " + outcome.AsString()
			}
			got[strings.TrimPrefix(name, "signalbox.lock.")] += n
		}
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Fatal(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, metric := range scope.Metrics {
				switch data := metric.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						add(metric.Name, p.Attributes, uint64(p.Value))
					}
				case metricdata.Histogram[float64]:
					for _, p := range data.DataPoints {
						add(metric.Name, p.Attributes, p.Count)
					}
				}
			}
		}
		return fmt.Sprint(got)
	}
	const want = "map[acquire.duration acquired:2 acquire.duration held:1 held.duration:2 lost expired:1 renewals:1]"
	eventually(t, "all is measured", func() bool { return read() == want || strings.Contains(read(), "lost") })
	if got := read(); got != want {
		t.Errorf("measured %s; want %s", got, want)
	}
}
