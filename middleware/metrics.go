package middleware

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A MetricsOption changes how [Metrics] measures.
type MetricsOption func(*metricsConfig)

type metricsConfig struct {
	provider metric.MeterProvider
	who      telemetry.Who
}

// WithMeterProvider says where metrics go. The default is OpenTelemetry's global provider.
// It stays the caller's, to flush and to shut down.
func WithMeterProvider(mp metric.MeterProvider) MetricsOption {
	return func(c *metricsConfig) { c.provider = mp }
}

// WithServer says where jobs are taken from, as metrics tell it: the Redis server's host or
// socket, and its port (0: none). A worker says it by itself.
func WithServer(server string, port int) MetricsOption {
	return func(c *metricsConfig) { c.who.Address, c.who.Port = server, port }
}

// Metrics measures deliveries. A worker runs it around every handler by itself, with the
// global provider unless its Config says otherwise; around a handler that is measured already it
// does nothing.
//
// It counts deliveries (messaging.client.consumed.messages) and how they ended
// (signalbox.jobs.settled, signalbox.fence.rejected), and how many handlers run
// (signalbox.worker.active). It measures how long jobs were due (signalbox.job.wait.duration), how
// long a delivery took until Redis had confirmed how it ended (messaging.process.duration), and
// how long that confirmation took from the handler's return
// (messaging.client.operation.duration). Outside of a worker nothing is settled, and a delivery
// ends with its handler.
//
// The attributes are the queue, the kind, the outcome, the server and error.type, as on the
// spans of [Trace]. No ID, payload, header or lock key is in a metric.
func Metrics(opts ...MetricsOption) signalbox.Middleware {
	var c metricsConfig
	for _, opt := range opts {
		opt(&c)
	}
	metrics := telemetry.NewConsumerMetrics(c.provider, c.who)
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			if telemetry.MetricsSilent(c.provider) {
				return next.Handle(ctx, job)
			}
			return measure(ctx, metrics, next, job)
		})
	}
}

func measure(ctx context.Context, metrics *telemetry.ConsumerMetrics, next signalbox.Handler, job *signalbox.Job) error {
	delivery := telemetry.DeliveryFrom(ctx)
	if delivery != nil && !delivery.Measure() {
		return next.Handle(ctx, job)
	}
	p := metrics.Start(ctx, job.Queue, job.Kind, job.ClaimedAt.Sub(job.ScheduledAt))
	how, err := panicked, errPanicked // unless the handler returns
	defer func() {
		p.Returned()
		failure := ""
		if how.isFailure() {
			failure = errorType(how, err)
		}
		if delivery == nil {
			p.Ended(failure)
			return
		}
		delivery.OnSettled(func(s telemetry.Settled) {
			p.Settled(s)
			p.Ended(failure)
		})
	}()
	err = next.Handle(ctx, job)
	how = outcomeOf(ctx, err)
	return err
}
