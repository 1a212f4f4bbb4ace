package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// ConsumerMetrics measure deliveries.
type ConsumerMetrics struct {
	points points
	made   instruments[consumerInstruments]
}

type consumerInstruments struct {
	consumed metric.Int64Counter
	active   metric.Int64UpDownCounter
	stuck    metric.Int64UpDownCounter
	wait     metric.Float64Histogram
	process  metric.Float64Histogram
	duration metric.Float64Histogram
	settled  metric.Int64Counter
	rejected metric.Int64Counter
}

// NewConsumerMetrics returns metrics for a provider, or for the global one if mp is nil. It is safe for concurrent use.
// Without a provider it costs next to nothing.
func NewConsumerMetrics(mp metric.MeterProvider, who Who) *ConsumerMetrics {
	c := &ConsumerMetrics{points: points{who: who}}
	c.made.provider = mp
	c.made.build = func(m metric.Meter) *consumerInstruments {
		return &consumerInstruments{
			consumed: counter(m, consumedMessages),
			active:   upDownCounter(m, workerActive),
			stuck:    upDownCounter(m, workerStuck),
			wait:     histogram(m, jobWait),
			process:  histogram(m, processDuration),
			duration: histogram(m, operationDuration),
			settled:  counter(m, jobsSettled),
			rejected: counter(m, fenceRejected),
		}
	}
	return c
}

// A Processing is the measurement of a delivery.
type Processing struct {
	ctx         context.Context // for exemplars
	metrics     *ConsumerMetrics
	made        *consumerInstruments
	queue, kind string
	start       time.Time
}

// KindOther replaces all kinds without a registered handler, since Redis may hold ever new ones.
const KindOther = "_OTHER"

// Delivered counts a delivery. The kind is "" if the job's record can't be read.
func (c *ConsumerMetrics) Delivered(ctx context.Context, queue, kind string) {
	if m := c.made.on(); m != nil {
		m.consumed.Add(ctx, 1, c.points.of(point{queue: queue, kind: kind, operation: opProcess, server: true}).add...)
	}
}

// Stuck adds to the number of handlers that go on though their contexts have ended.
func (c *ConsumerMetrics) Stuck(ctx context.Context, queue, kind string, n int64) {
	if m := c.made.on(); m != nil {
		m.stuck.Add(ctx, n, c.points.of(point{queue: queue, kind: kind}).add...)
	}
}

// Start counts a delivery, as Delivered does, and begins to measure it. wait is how long the job was due when it was
// claimed.
func (c *ConsumerMetrics) Start(ctx context.Context, queue, kind string, wait time.Duration) *Processing {
	m := c.made.get()
	p := &Processing{ctx: ctx, metrics: c, made: m, queue: queue, kind: kind, start: time.Now()}
	job := c.points.of(point{queue: queue, kind: kind})
	c.Delivered(ctx, queue, kind)
	m.active.Add(ctx, 1, job.add...)
	m.wait.Record(ctx, max(wait, 0).Seconds(), job.record...)
	return p
}

// Returned records that the handler has returned.
func (p *Processing) Returned() {
	p.made.active.Add(p.ctx, -1, p.metrics.points.of(point{queue: p.queue, kind: p.kind}).add...)
}

// Ended records how long the processing took. errorType is "" if it didn't fail.
func (p *Processing) Ended(errorType string) {
	p.made.process.Record(p.ctx, time.Since(p.start).Seconds(), p.metrics.points.of(point{
		queue: p.queue, kind: p.kind, operation: opProcess, errorType: errorType, server: true,
	}).record...)
}

// Settled records the settlement.
func (p *Processing) Settled(asked, outcome string, took time.Duration) {
	p.metrics.Settled(p.ctx, p.queue, p.kind, asked, outcome, took)
}

// Expired counts a job that ended because it had not started in time. The kind is "" if the job's record can't be read.
func (c *ConsumerMetrics) Expired(ctx context.Context, queue, kind string) {
	if m := c.made.on(); m != nil {
		m.settled.Add(ctx, 1, c.points.of(point{queue: queue, kind: kind, outcome: settleExpired, about: jobOutcome}).add...)
	}
}

// Settled records the settlement of a delivery. asked and outcome are each a signalbox.Outcome: what Redis was asked
// for, and what happened. took is the time since the handler returned. The kind is "" if the job's record can't be
// read.
func (c *ConsumerMetrics) Settled(ctx context.Context, queue, kind, asked, outcome string, took time.Duration) {
	m := c.made.on()
	if m == nil {
		return
	}
	errorType := ""
	switch outcome {
	case settleSuperseded:
		errorType = ErrorLeaseLost
		m.rejected.Add(ctx, 1, c.points.of(point{queue: queue, kind: kind}).add...)
	case settleUnknown:
		errorType = ErrorUnsettled
	default:
		m.settled.Add(ctx, 1, c.points.of(point{queue: queue, kind: kind, outcome: outcome, about: jobOutcome}).add...)
	}
	m.duration.Record(ctx, took.Seconds(), c.points.of(point{
		queue: queue, operation: settleOperation(asked), errorType: errorType, server: true,
	}).record...)
}
