package middleware

import (
	"context"

	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A MetricsOption changes how [Metrics] measures.
type MetricsOption func(*telemetry.MetricsConfig)

// WithMeterProvider sets the provider of the metrics. The default is OpenTelemetry's global
// provider. The caller still has to flush it and to shut it down.
func WithMeterProvider(mp metric.MeterProvider) MetricsOption {
	return func(c *telemetry.MetricsConfig) { c.Provider = mp }
}

// Metrics measures deliveries. A worker runs it around every handler by itself, with the global
// provider unless its Config has another. In a delivery that is measured already it does
// nothing.
//
// It counts
//
//   - deliveries: messaging.client.consumed.messages
//   - how they ended: signalbox.jobs.settled, signalbox.fence.rejected
//   - handlers that run: signalbox.worker.active
//
// It measures how long
//
//   - jobs waited since they were due: signalbox.job.wait.duration
//   - a delivery took until Redis had confirmed how it ended: messaging.process.duration
//   - that confirmation took from the handler's return: messaging.client.operation.duration
//
// Outside of a worker there is no settlement: a delivery ends with its handler.
//
// The attributes are the queue, the kind, the outcome, the server and error.type, as on the
// spans of [Trace]. No ID, payload, header or lock key is in a metric.
func Metrics(opts ...MetricsOption) signalbox.Middleware {
	var c telemetry.MetricsConfig
	for _, opt := range opts {
		opt(&c)
	}
	metrics := telemetry.NewConsumerMetrics(c.Provider, c.Who)
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			if telemetry.MetricsSilent(c.Provider) {
				return next.Handle(ctx, job)
			}
			return measure(ctx, metrics, next, job)
		})
	}
}

// measuredKey is the context key that marks a delivery as measured.
type measuredKey struct{}

func measure(ctx context.Context, metrics *telemetry.ConsumerMetrics, next signalbox.Handler, job *signalbox.Job) error {
	if ctx.Value(measuredKey{}) != nil {
		return next.Handle(ctx, job)
	}
	p := metrics.Start(ctx, job.Queue, job.Kind, job.ClaimedAt.Sub(job.ScheduledAt))
	how, err := panicked, errPanicked // if the handler doesn't return
	defer func() {
		p.Returned()
		failure := ""
		if how.isFailure() {
			failure = errorType(how, err)
		}
		settled := signalbox.OnSettled(ctx, func(s signalbox.Settled) {
			p.Settled(string(s.Asked), string(s.Outcome), s.Ended.Sub(s.Returned))
			p.Ended(failure)
		})
		if !settled { // not called by a worker
			p.Ended(failure)
		}
	}()
	err = next.Handle(context.WithValue(ctx, measuredKey{}, true), job)
	how = outcomeOf(ctx, err)
	return err
}
