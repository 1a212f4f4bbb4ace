package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// What became of the row of an outbox.
const (
	RowEnqueued = "enqueued"
	RowLeftOut  = "left_out" // another job has its ID or its unique key
	RowDead     = "dead"     // it can't be enqueued
)

// Why the relays of an outbox repaired what the database or Redis knows of its batches.
const (
	RepairRedis    = "redis_went_back"    // Redis had lost batches, and all of them are sent again
	RepairLost     = "redis_lost"         // Redis had lost batches, and the database doesn't have all of them any more
	RepairDatabase = "database_went_back" // Redis knows of later batches than the database
	RepairFork     = "both_went_back"     // Redis has a batch that the database doesn't know
)

var (
	outboxBacklog = definition{"signalbox.outbox.backlog", "{job}", "Number of rows of an outbox that wait to be enqueued."}
	outboxLag     = definition{"signalbox.outbox.lag", "s", "For how long the oldest row of an outbox has been waiting."}
	outboxDead    = definition{"signalbox.outbox.dead", "{job}", "Number of rows of an outbox that can't be enqueued."}
	outboxRelayed = definition{"signalbox.outbox.relayed", "{job}", "Number of rows that a relay sent to Redis, by what became of them."}
	outboxRepairs = definition{"signalbox.outbox.repairs", "{repair}", "Number of times that the database and Redis did not agree on an outbox's batches, by why."}
)

const (
	namespace    = attribute.Key("signalbox.namespace")      // of the queue
	rowOutcome   = attribute.Key("signalbox.outbox.outcome") // RowEnqueued and the others
	repairReason = attribute.Key("signalbox.outbox.repair")  // RepairRedis and the others
)

// An OutboxDepth is how much of an outbox waits for a queue.
type OutboxDepth struct {
	Namespace, Queue string // both empty: of rows that are of no queue
	Backlog, Dead    int64
	Lag              time.Duration
}

// OutboxMetrics measure a relay.
type OutboxMetrics struct {
	provider metric.MeterProvider
	made     instruments[outboxInstruments]
}

type outboxInstruments struct{ relayed, repairs metric.Int64Counter }

// NewOutboxMetrics returns metrics for a provider, or for the global one if mp is nil.
func NewOutboxMetrics(mp metric.MeterProvider) *OutboxMetrics {
	o := &OutboxMetrics{provider: mp}
	o.made.provider = mp
	o.made.build = func(m metric.Meter) *outboxInstruments {
		return &outboxInstruments{relayed: counter(m, outboxRelayed), repairs: counter(m, outboxRepairs)}
	}
	return o
}

// of returns the attributes of a queue, and more. A relay serves queues of several namespaces. Without a queue, there are none of one.
func of(space, queue string, more ...attribute.KeyValue) metric.MeasurementOption {
	all := append(make([]attribute.KeyValue, 0, 4), semconv.MessagingSystemKey.String(system))
	if queue != "" {
		all = append(all, namespace.String(space), semconv.MessagingDestinationName(queue))
	}
	return metric.WithAttributes(append(all, more...)...)
}

// Relayed counts n rows of a queue. If they are of no queue, namespace and queue are empty.
func (o *OutboxMetrics) Relayed(ctx context.Context, namespace, queue, outcome string, n int) {
	if m := o.made.on(); m != nil && n > 0 {
		m.relayed.Add(ctx, int64(n), of(namespace, queue, rowOutcome.String(outcome)))
	}
}

// Repaired counts a repair.
func (o *OutboxMetrics) Repaired(ctx context.Context, namespace, queue, reason string) {
	if m := o.made.on(); m != nil {
		m.repairs.Add(ctx, 1, of(namespace, queue, repairReason.String(reason)))
	}
}

// ObserveDepths reports what read returns, until stop is called. read must not block.
func (o *OutboxMetrics) ObserveDepths(read func() []OutboxDepth) (stop func()) {
	m := meterOf(o.provider)
	var errs [3]error
	var backlog, dead metric.Int64ObservableGauge
	var lag metric.Float64ObservableGauge
	backlog, errs[0] = m.Int64ObservableGauge(outboxBacklog.name, metric.WithUnit(outboxBacklog.unit), metric.WithDescription(outboxBacklog.description))
	dead, errs[1] = m.Int64ObservableGauge(outboxDead.name, metric.WithUnit(outboxDead.unit), metric.WithDescription(outboxDead.description))
	lag, errs[2] = m.Float64ObservableGauge(outboxLag.name, metric.WithUnit(outboxLag.unit), metric.WithDescription(outboxLag.description))
	for _, err := range errs {
		if err != nil {
			otel.Handle(err)
			return func() {}
		}
	}
	registration, err := m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for _, d := range read() {
			of := of(d.Namespace, d.Queue)
			to.ObserveInt64(dead, d.Dead, of)
			if d.Queue != "" {
				to.ObserveInt64(backlog, d.Backlog, of)
				to.ObserveFloat64(lag, d.Lag.Seconds(), of)
			}
		}
		return nil
	}, backlog, dead, lag)
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
