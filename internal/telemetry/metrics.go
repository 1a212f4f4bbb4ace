package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// A definition has the name, the unit and the description of an instrument.
type definition struct{ name, unit, description string }

// The instruments. Names with "messaging" are from the semantic conventions.
var (
	sentMessages      = definition{"messaging.client.sent.messages", "{message}", "Number of messages that a producer attempted to send to the broker."}
	consumedMessages  = definition{"messaging.client.consumed.messages", "{message}", "Number of messages that were delivered to the application."}
	operationDuration = definition{"messaging.client.operation.duration", "s", "Duration of a messaging operation that a producer or consumer client initiated."}
	processDuration   = definition{"messaging.process.duration", "s", "Duration of processing a message, from its delivery until it is settled."}
	jobWait           = definition{"signalbox.job.wait.duration", "s", "Time from when a job was due until a worker claimed it."}
	jobsSettled       = definition{"signalbox.jobs.settled", "{job}", "Number of deliveries that ended, by how."}
	workerActive      = definition{"signalbox.worker.active", "{job}", "Number of jobs whose handlers run."}
	workerStuck       = definition{"signalbox.worker.stuck", "{job}", "Number of jobs whose handlers go on though their contexts have ended."}
	fenceRejected     = definition{"signalbox.fence.rejected", "{write}", "Number of settlements that were refused, since the job had been taken over."}
	queueDepth        = definition{"signalbox.queue.depth", "{job}", "Number of jobs in a queue, by state."}
	queueGroups       = definition{"signalbox.queue.stopped_groups", "{group}", "Number of groups of a queue that are paused, or held back."}
	flowsOpen         = definition{"signalbox.flows.open", "{flow}", "Number of batches of a queue that aren't over."}
	flowsFailed       = definition{"signalbox.flows.failed", "{flow}", "Number of batches of a queue of which a member has ended without completing, open or remembered."}
	queueStopped      = definition{"signalbox.queue.stopped", "{queue}", "1 if an operator or a limit keeps jobs of a queue from starting, by what does so; else 0."}
	queueOldest       = definition{"signalbox.queue.oldest_job.age", "s", "For how long the oldest job that could run has been waiting."}
	lockAcquire       = definition{"signalbox.lock.acquire.duration", "s", "Duration of asking for a lock, with the waiting, by outcome."}
	lockHeld          = definition{"signalbox.lock.held.duration", "s", "Time from a lock's grant until it was released or lost."}
	lockRenewals      = definition{"signalbox.lock.renewals", "{renewal}", "Number of times that a held lock, or a worker's lease on its jobs, was extended."}
	lockLost          = definition{"signalbox.lock.lost", "{lock}", "Number of locks and workers' leases that ended before they were released, by how."}
	scheduleTicks     = definition{"signalbox.schedule.ticks", "{tick}", "Number of ticks of cron entries, by outcome."}
	scheduleLag       = definition{"signalbox.schedule.lag", "s", "Time from a tick until its job was enqueued."}
)

// Attributes that only metrics have. The others are also on spans. None has a different value for
// each job.
const (
	queueCause  = attribute.Key("signalbox.queue.cause")      // paused, held or limited
	queueState  = attribute.Key("signalbox.queue.state")      // ready, scheduled, running, dead or cancelled
	tickOutcome = attribute.Key("signalbox.schedule.outcome") // OutcomeFired and the others
)

// boundaries are the boundaries of all histograms, in seconds: from 0.1 ms to 1 h.
var boundaries = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
	1, 2.5, 5, 10, 30, 60, 300, 900, 3600,
}

// meterOf returns our meter of a provider, or of the global one if mp is nil.
func meterOf(mp metric.MeterProvider) metric.Meter {
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	return mp.Meter(Scope, metric.WithSchemaURL(semconv.SchemaURL))
}

// instruments makes the instruments of one role at their first use. Until then the program may
// set a provider.
type instruments[T any] struct {
	provider metric.MeterProvider
	build    func(metric.Meter) *T
	once     sync.Once
	built    *T
}

// on returns the instruments, or nil if there is no provider.
func (i *instruments[T]) on() *T {
	if MetricsOff(i.provider) {
		return nil
	}
	return i.get()
}

// get returns the instruments, and makes them first if necessary.
func (i *instruments[T]) get() *T {
	i.once.Do(func() { i.built = i.build(meterOf(i.provider)) })
	return i.built
}

func counter(m metric.Meter, d definition) metric.Int64Counter {
	c, err := m.Int64Counter(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64Counter{}
	}
	return c
}

func upDownCounter(m metric.Meter, d definition) metric.Int64UpDownCounter {
	c, err := m.Int64UpDownCounter(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64UpDownCounter{}
	}
	return c
}

func histogram(m metric.Meter, d definition) metric.Float64Histogram {
	h, err := m.Float64Histogram(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.description),
		metric.WithExplicitBucketBoundaries(boundaries...))
	if err != nil {
		otel.Handle(err)
		return noop.Float64Histogram{}
	}
	return h
}

// A point has the data of a measurement. An empty field becomes no attribute.
type point struct {
	queue, kind, operation, errorType string
	outcome                           string
	about                             attribute.Key // the attribute that has the outcome
	server                            bool          // the server is an attribute
}

// points has the attributes of measurements. Each set is made once.
type points struct {
	who Who

	mu   sync.RWMutex
	made map[point]*options
}

// options are attributes in the form that instruments take.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// maxPoints bounds the sets that are kept, since a program may use ever new queues and kinds.
const maxPoints = 10_000

func (ps *points) of(p point) *options {
	ps.mu.RLock()
	o := ps.made[p]
	ps.mu.RUnlock()
	if o != nil {
		return o
	}
	set := metric.WithAttributeSet(attribute.NewSet(p.attributes(ps.who)...))
	o = &options{add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.made == nil {
		ps.made = make(map[point]*options)
	}
	if len(ps.made) < maxPoints {
		ps.made[p] = o
	}
	return o
}

func (p point) attributes(who Who) []attribute.KeyValue {
	kv := []attribute.KeyValue{semconv.MessagingSystemKey.String(system)}
	if p.queue != "" {
		kv = append(kv, semconv.MessagingDestinationName(p.queue))
	}
	if p.operation != "" {
		kv = append(kv, semconv.MessagingOperationName(p.operation), operationType(p.operation))
	}
	if p.kind != "" {
		kv = append(kv, jobKind.String(clean(p.kind)))
	}
	if p.errorType != "" {
		kv = append(kv, semconv.ErrorTypeKey.String(p.errorType))
	}
	if p.outcome != "" {
		kv = append(kv, p.about.String(p.outcome))
	}
	if p.server && who.Address != "" {
		kv = append(kv, semconv.ServerAddress(who.Address))
		if who.Port != 0 {
			kv = append(kv, semconv.ServerPort(who.Port))
		}
	}
	return kv
}

func operationType(operation string) attribute.KeyValue {
	switch operation {
	case opEnqueue:
		return semconv.MessagingOperationTypeSend
	case opProcess:
		return semconv.MessagingOperationTypeProcess
	}
	return semconv.MessagingOperationTypeSettle
}
