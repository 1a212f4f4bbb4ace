package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// The outcomes of a tick of a cron entry.
const (
	OutcomeFired   = "fired"   // its job was enqueued
	OutcomeSkipped = "skipped" // another process enqueued it first
	OutcomeMissed  = "missed"  // as far as this process knows, no process enqueued its job in time
	OutcomePaused  = "paused"  // it passed without a job, since its entry is paused; one process counts it
	// OutcomeOverlapped is that of a tick that passed without a job, since a job of its entry was live. One process counts it.
	OutcomeOverlapped = "overlapped"
)

// ProducerMetrics measure enqueuing and cron.
type ProducerMetrics struct {
	points points
	made   instruments[producerInstruments]
}

type producerInstruments struct {
	sent     metric.Int64Counter
	duration metric.Float64Histogram
	ticks    metric.Int64Counter
	lag      metric.Float64Histogram
}

// NewProducerMetrics returns metrics for a provider, or for the global one if mp is nil. It is safe for
// concurrent use. Without a provider it costs next to nothing.
func NewProducerMetrics(mp metric.MeterProvider, who Who) *ProducerMetrics {
	p := &ProducerMetrics{points: points{who: who}}
	p.made.provider = mp
	p.made.build = func(m metric.Meter) *producerInstruments {
		return &producerInstruments{
			sent:     counter(m, sentMessages),
			duration: histogram(m, operationDuration),
			ticks:    counter(m, scheduleTicks),
			lag:      histogram(m, scheduleLag),
		}
	}
	return p
}

// Sent counts n jobs of one kind that were sent to a queue, or that failed with err. errorType replaces
// the type of err unless it is "".
func (p *ProducerMetrics) Sent(ctx context.Context, queue, kind string, n int, err error, errorType string) {
	if m := p.made.on(); m != nil && n > 0 {
		m.sent.Add(ctx, int64(n), p.points.of(point{
			queue: queue, kind: kind, operation: opEnqueue, errorType: typeOf(err, errorType), server: true,
		}).add...)
	}
}

// Took records how long one call for jobs of a queue took, and how it ended.
func (p *ProducerMetrics) Took(ctx context.Context, queue string, took time.Duration, err error, errorType string) {
	if m := p.made.on(); m != nil {
		m.duration.Record(ctx, took.Seconds(), p.points.of(point{
			queue: queue, operation: opEnqueue, errorType: typeOf(err, errorType), server: true,
		}).record...)
	}
}

// Tick counts n ticks whose jobs go to a queue. outcome is one of the above.
func (p *ProducerMetrics) Tick(ctx context.Context, queue, outcome string, n int) {
	if m := p.made.on(); m != nil && n > 0 {
		m.ticks.Add(ctx, int64(n), p.points.of(point{queue: queue, outcome: outcome, about: tickOutcome}).add...)
	}
}

// Lag records how long after its time a tick's job was enqueued.
func (p *ProducerMetrics) Lag(ctx context.Context, queue string, late time.Duration) {
	if m := p.made.on(); m != nil {
		m.lag.Record(ctx, max(late, 0).Seconds(), p.points.of(point{queue: queue}).record...)
	}
}

func typeOf(err error, errorType string) string {
	if err == nil || errorType != "" {
		return errorType
	}
	return ErrorType(err)
}
