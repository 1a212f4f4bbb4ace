package etcdlock

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

	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// Locks are measured as those of the other lockers are.
func TestMetrics(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	addr, key := sharedEtcd(t).Addr(), newKey()
	tap := newTap()
	client := dial(t, tap.options(), addr)
	r := newLocker(t, client, Config{TTL: time.Minute, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	l := acquire(t, r, key)
	if err := l.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
		t.Fatal(err)
	}
	release(t, l)
	l = acquire(t, r, key)
	if _, err := client.Revoke(t.Context(), leaseOf(l)); err != nil {
		t.Fatal(err)
	}
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Fatal(err)
	}
	tap.loseNext(methodTxn, 1)
	if _, err := r.Acquire(t.Context(), key); err == nil {
		t.Fatal("an acquire without its reply succeeded")
	}
	want := map[string]int{
		"acquire.duration acquired": 2, "acquire.duration held": 1, "acquire.duration error": 1,
		"renewals": 1, "held.duration": 2, "lost expired": 1,
	}
	var got map[string]int
	if !poll(func() bool { got = measured(t, reader, key); return fmt.Sprint(got) == fmt.Sprint(want) }) {
		t.Errorf("measured %v, want %v", got, want)
	}
}

// measured returns the count of each metric, by its outcome if it has one. The key must stand in no attribute.
func measured(t *testing.T, reader sdkmetric.Reader, key string) map[string]int {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	add := func(name string, set attribute.Set, n int) {
		name = strings.TrimPrefix(name, "signalbox.lock.")
		if outcome, ok := set.Value(telemetry.LockOutcome); ok {
			name += " " + outcome.AsString()
		}
		got[name] += n
		if strings.Contains(fmt.Sprint(set.ToSlice()), key) {
			t.Errorf("%s has the key among its attributes: %v", name, set.ToSlice())
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
