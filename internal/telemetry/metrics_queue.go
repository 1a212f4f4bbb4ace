package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// A Depth is how much is in a queue.
type Depth struct {
	Queue string
	// Jobs by state. Scheduled ones wait for their time.
	Ready, Scheduled, Running, Dead, Cancelled int64
	// Oldest is for how long the oldest job that could run has been waiting; 0: there is none.
	Oldest time.Duration
}

// depthTimeout bounds reading the depths, which holds up all metrics of the program. A client of go-redis
// without ContextTimeoutEnabled keeps to its own timeouts instead.
const depthTimeout = 2 * time.Second

// ObserveDepths has a provider, or the global one if it is nil, ask for the depths of queues
// whenever metrics are collected, until the returned function is called. That waits
// for a read that is under way.
//
// What read can't read it leaves out, and logs: an error that is passed on to a reader of
// metrics can make it export none at all. Of many instances one should read a queue, and the
// others return nothing for it.
func ObserveDepths(mp metric.MeterProvider, read func(context.Context) []Depth) (stop func()) {
	m := Meter(mp)
	depth, err := m.Int64ObservableGauge(queueDepth.name, metric.WithUnit(queueDepth.unit), metric.WithDescription(queueDepth.description))
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	oldest, err := m.Float64ObservableGauge(queueOldest.name, metric.WithUnit(queueOldest.unit), metric.WithDescription(queueOldest.description))
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	registration, err := m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, depthTimeout)
		defer cancel()
		for _, d := range read(ctx) {
			d.observe(o, depth, oldest)
		}
		return nil
	}, depth, oldest)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() {
		if err := registration.Unregister(); err != nil {
			otel.Handle(err)
		}
	}
}

func (d *Depth) observe(o metric.Observer, depth metric.Int64Observable, oldest metric.Float64Observable) {
	system, queue := semconv.MessagingSystemKey.String(System), semconv.MessagingDestinationName(d.Queue)
	for _, s := range []struct {
		state string
		n     int64
	}{
		{"ready", d.Ready}, {"scheduled", d.Scheduled}, {"running", d.Running}, {"dead", d.Dead}, {"cancelled", d.Cancelled},
	} {
		o.ObserveInt64(depth, s.n, metric.WithAttributeSet(attribute.NewSet(system, queue, QueueState.String(s.state))))
	}
	o.ObserveFloat64(oldest, d.Oldest.Seconds(), metric.WithAttributeSet(attribute.NewSet(system, queue)))
}
