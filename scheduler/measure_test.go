package scheduler

import (
	"context"
	"log/slog"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A meterReader reads the metrics that were recorded.
type meterReader struct{ *sdkmetric.ManualReader }

// measured sets a meter provider in config, and returns its reader.
func measured(t *testing.T, config *Config) meterReader {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	mp := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() {
		if err := mp.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	config.MeterProvider = mp
	return meterReader{reader}
}

// counts returns the values of a counter, or the number of records of a histogram, by the
// value of an attribute.
func (r meterReader) counts(t *testing.T, name, by string) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	m := make(map[string]int64)
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			if metric.Name != name {
				continue
			}
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					v, _ := p.Attributes.Value(attribute.Key(by))
					m[v.String()] += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					v, _ := p.Attributes.Value(attribute.Key(by))
					m[v.String()] += int64(p.Count)
				}
			default:
				t.Fatalf("%s is a %T", name, data)
			}
		}
	}
	return m
}

// traces returns the traces of the exemplars of all metrics.
func (r meterReader) traces(t *testing.T) map[trace.TraceID]bool {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	ids := make(map[trace.TraceID]bool)
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					for _, e := range p.Exemplars {
						ids[trace.TraceID(e.TraceID)] = true
					}
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					for _, e := range p.Exemplars {
						ids[trace.TraceID(e.TraceID)] = true
					}
				}
			}
		}
	}
	return ids
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	config := Config{Logger: slog.New(slog.DiscardHandler)}
	reader := measured(t, &config)
	rdb := redistest.Start(t).Client()
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	q, other := checked(t, rdb), checked(t, rdb)
	ctx := context.Background()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	for range 3 {
		if _, err := s.Enqueue(ctx, note{}, Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Enqueue(cancelled, note{}, Queue(q.Name())); err == nil {
		t.Fatal("no error")
	}
	items := append(many(1500), Item{Args: benchArgs{}}, Item{Args: benchArgs{}, Options: []EnqueueOption{Queue(other.Name())}})
	if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueMany(cancelled, many(5), Queue(q.Name())); err == nil {
		t.Fatal("no error")
	}
	sent := "messaging.client.sent.messages"
	for _, tc := range []struct {
		name, by string
		want     map[string]int64
	}{
		{sent, "messaging.destination.name", map[string]int64{q.Name(): 3 + 1 + 1501 + 5, other.Name(): 1}},
		{sent, "signalbox.job.kind", map[string]int64{"note": 3 + 1 + 1500 + 5, "bench": 2}},
		{sent, "error.type", map[string]int64{"": 3 + 1502, "cancelled": 6}},
		{"messaging.client.operation.duration", "messaging.operation.name", map[string]int64{"enqueue": 3 + 1 + 2 + 1}},
		{"messaging.client.operation.duration", "error.type", map[string]int64{"": 3 + 2, "cancelled": 2}},
	} {
		if got := reader.counts(t, tc.name, tc.by); !maps.Equal(got, tc.want) {
			t.Errorf("%s by %s: %v, want %v", tc.name, tc.by, got, tc.want)
		}
	}
}

func TestTickMetrics(t *testing.T) {
	t.Parallel()
	config := Config{Logger: slog.New(slog.DiscardHandler)}
	reader := measured(t, &config)
	rdb := redistest.Start(t).Client()
	q := checked(t, rdb)
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	defer stop()
	redistest.Eventually(t, func() bool {
		return reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome")["fired"] > 0
	}, "a tick is counted")
	stop()
	n := int64(len(claimAll(t, q)))
	for name, by := range map[string]string{
		"signalbox.schedule.ticks": "messaging.destination.name", "signalbox.schedule.lag": "messaging.destination.name",
		"messaging.client.sent.messages": "messaging.destination.name", "messaging.client.operation.duration": "messaging.destination.name",
	} {
		if got := reader.counts(t, name, by); !maps.Equal(got, map[string]int64{q.Name(): n}) {
			t.Errorf("%s: %v, want %d", name, got, n)
		}
	}
}
