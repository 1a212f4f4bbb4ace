// Package scheduler puts jobs into queues: now, later, or on a cron.
//
// Make one [Scheduler] for each process, with your Redis client. [Scheduler.Enqueue] enqueues one job,
// [Scheduler.EnqueueMany] many, and [Scheduler.EnqueueSeq] those of an iterator. Any number of goroutines may call them. They
// don't need [Scheduler.Run].
// [Scheduler.Cron] registers an entry, which Run fires. The scheduler never closes the client.
//
// # Enqueuing
//
// A job is its args, encoded as JSON, and its options. An option that has no meaning in a call doesn't compile there:
//
//	a JobOption       goes into every call: Queue, Priority, Timeout, Group ...
//	a BulkOption      into Enqueue, EnqueueMany and EnqueueSeq: At, After, IfAbsent, Unique, UniqueBy, Replace, Debounce, Throttle, WaitForRoom, WaitReplicas, WaitAOF
//	an EnqueueOption  into Enqueue, or an Item of the others: ID, EffectKey, Again
//	a CronOption      into Cron: In, Missed, Lateness, Overlap, Jitter, Starting, Ending, ArgsAt
//	a BatchOption     into Batch: FlowID, OnSuccess, OnEnd, OnFailure, FlowTimeout, SealWithin
//
// [JobOptions] is a list that is a JobOption: it passes on what several calls have in common.
//
// Defaults for all jobs of a kind belong to the type of their args: see [signalbox.Defaults]. If an option is given in
// several places, the item's counts first, then the call's, then the kind's.
//
// All times, also those of [At] and [After], go by the clock of Redis.
//
// An ID names one live job of its queue. What an enqueue does depends on the job that has the same [ID]:
//
//   - It is scheduled, ready or running: the enqueue leaves it as it is and returns its state.
//   - It is dead or cancelled, or has completed and is kept: the new job takes its place, and the result says so. With
//     [IfAbsent] the old one stays.
//   - It has completed and isn't kept, as by default: its record is deleted, so the ID is free.
//
// So an ID prevents two equal jobs that wait at the same time. It doesn't prevent the same work later. To have an
// effect only once, record [signalbox.Job.EffectKey] with the effect.
//
// Jobs that several goroutines enqueue at the same time share calls to Redis. Each queue has at most two calls in
// flight. A lone Enqueue is sent at once. When there is nothing to send, there is no goroutine.
//
// A misspelt queue is no error. A minute after its first job for a queue, a scheduler checks once whether a worker has
// ever worked that queue, and logs a warning if not.
//
// # When it fails
//
// With [WaitReplicas] or [WaitAOF], a [*NotDurableError] says that the job is enqueued, and not on as many replicas or disks as asked. Any other
// error is one of four kinds:
//
//   - [signalbox.ErrInvalid]: an argument or an option is wrong. The error names every mistake, and nothing was
//     enqueued.
//   - [ErrUncertain]: the job was sent to Redis, and no answer came. It may be enqueued, now or a little later.
//     The error is an [*UncertainError]. To make the call again, add the option that its Again returns.
//   - [signalbox.ErrQueueFull]: the job is not enqueued, since the queue has its maximum length. See [WaitForRoom].
//   - any other: the job is not enqueued. It was refused, or never sent: a refused connection, no
//     free connection in the client's pool, a closed client.
//
// A call that is made again with [UncertainError.Again] has only one kind of error, an [*UncertainError], since the
// call before it may have enqueued the job. If an argument is wrong, the error wraps ErrInvalid as well.
//
// A call ends when its context does. If the context has no deadline, Config.EnqueueTimeout bounds the call, 5 s by
// default. Until then the scheduler repeats the call by itself: after a broken connection, after a lost reply, and
// after the replies LOADING, TRYAGAIN, CLUSTERDOWN, MOVED and ASK. Redis recognises a repeated call by its number, even
// if the job has completed since.
//
// # Batches
//
// [Scheduler.Batch] makes a [Batch]: jobs whose ends are counted together, and others that run when all have completed, when all have ended, or when the first has failed. The script in Redis that ends a job counts it. docs/flows.md is the guide.
//
// # Cron
//
// Any number of processes may run the same entries. There is no leader. One script marks a tick as taken and enqueues
// its job. So a tick is enqueued once, however many processes try. Redis goes by its own clock: it refuses a tick that
// is in the future, or older than [Grace]. If no process could enqueue a tick in time, because Redis was away or no
// process ran, the tick is missed. The option [Missed] says whether it is made up for. The log says how many were not. If
// processes have different specs for one entry, the one fires that came last. docs/scheduling.md is the guide.
//
// When Redis' clock jumps, ticks go by the old time until the jump has lasted 10 s. The log says so. docs/guarantees/cron.md
// has the whole rule.
//
// # Tracing
//
// Spans and metrics go to the global providers of OpenTelemetry, or to those of [Config]. Without a provider they cost
// nothing.
//
//   - An Enqueue has a PRODUCER span "enqueue {queue}". If a propagator is set, the span's context goes into the
//     job's headers, and the worker's spans become part of the trace. [TraceMode] says how.
//   - Each job of an EnqueueMany has its own span "create {queue}". Each queue has one span "enqueue {queue}",
//     which links to them. An EnqueueSeq has such spans for each of its chunks.
//   - A tick of a cron entry is the root of a trace, "tick {entry}". It comes from the process that enqueued the tick,
//     or from one that tried to and gave up.
//
// Only the members of the baggage that [Config] names travel with a job, since headers stay in Redis as long as the job
// does. docs/tracing has every span and metric.
package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/deadline"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

const defaultEnqueueTimeout = 5 * time.Second

// Config configures a [Scheduler]. The zero value is usable.
type Config struct {
	// Namespace separates environments that share a Redis: queues of the same name in two namespaces are different
	// queues. 1 to 200 bytes of printable ASCII without spaces, braces and colons. Default "default".
	Namespace string
	// Logger gets the scheduler's log records. The default is [slog.Default].
	Logger *slog.Logger
	// EnqueueTimeout bounds a call whose context has no deadline: an Enqueue, and each chunk of an EnqueueMany or EnqueueSeq. It is 1
	// ms to 1 h. The default, 0, is 5 s. It should be longer than the client's read timeout. Otherwise the call gives
	// up before a slow reply comes.
	EnqueueTimeout time.Duration
	// Codec encodes the args of all jobs of this scheduler. Workers need it in their Config first. The default is JSON.
	// The args of a cron entry are encoded for each tick, so nobody may change what they point to.
	Codec signalbox.Codec
	// TracerProvider makes the spans. The default is the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics. The default is the global one.
	MeterProvider metric.MeterProvider
	// Propagator writes the trace context into the jobs' headers. The default is the
	// global one, which writes nothing until the program sets it.
	Propagator propagation.TextMapPropagator
	// Baggage names the members of the baggage that travel with the jobs of a trace. The propagator gets no others,
	// since headers stay in Redis. The members are taken in this order. A member is left out if it would bring them
	// above 8 KiB. The default is none.
	Baggage []string
}

// A Scheduler enqueues jobs. It is safe for concurrent use.
type Scheduler struct {
	rdb       redis.UniversalClient
	namespace string
	log       *slog.Logger
	trace     tracing
	metrics   *telemetry.ProducerMetrics
	timeout   time.Duration    // of calls whose context has no deadline
	now       func() time.Time // use only differences of its times
	lookUpFor time.Duration    // at most, for the states of jobs that were met
	codec     signalbox.Codec  // nil: JSON

	mu     sync.RWMutex
	queues map[destination]*combiner

	// singles pools requests of one job. Each scheduler has a pool of its own: a channel that was made in a bubble of
	// testing/synctest can't be used in another.
	singles sync.Pool

	rooms    rooms
	roomLook time.Duration // how often a call that waits for room looks without being told
	watches  watches
	endLook  time.Duration // how often it is looked without a message whether jobs have ended that calls wait for

	cron   crontab
	unseen lookout
}

// New returns a scheduler over rdb: a client of a single Redis, of Sentinel or of a Cluster. A
// *redis.Ring and a *redis.AutoPipeliner are refused. New does not connect. The error names every wrong
// argument and field, and wraps [signalbox.ErrInvalid].
func New(rdb redis.UniversalClient, config Config) (*Scheduler, error) {
	err := server.CheckClient(rdb)
	if t := config.EnqueueTimeout; t != 0 && (t < time.Millisecond || t > time.Hour) {
		err = errors.Join(err, fmt.Errorf("%w EnqueueTimeout: %v; want 1ms to 1h, or 0 for %v", signalbox.ErrInvalid, t, defaultEnqueueTimeout))
	}
	host, port := server.Address(rdb)
	who := telemetry.Who{Address: host, Port: port}
	s, encErr := encoder(config, who)
	if err := errors.Join(err, encErr); err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	deadline.Warn(rdb, s.log)
	s.rdb = rdb
	s.metrics = telemetry.NewProducerMetrics(config.MeterProvider, who)
	s.timeout = cmp.Or(config.EnqueueTimeout, defaultEnqueueTimeout)
	s.now = monotonic()
	s.queues = make(map[destination]*combiner)
	s.singles.New = newSingle
	s.cron = newCrontab()
	s.unseen = newLookout(s.log)
	s.roomLook = roomLook
	s.endLook = endLook
	s.lookUpFor = maxLookUp
	return s, nil
}

// encoder returns a scheduler that only makes jobs. The error names every wrong field that this needs.
func encoder(config Config, who telemetry.Who) (*Scheduler, error) {
	var err error
	if nsErr := layout.ValidateNamespace(config.Namespace); nsErr != nil {
		err = errors.Join(err, fmt.Errorf("Config.Namespace: %w", nsErr))
	}
	if codec := config.Codec; codec != nil {
		if codecErr := layout.ValidateCodec(codec); codecErr != nil {
			err = errors.Join(err, fmt.Errorf("Config.Codec: %w", codecErr))
		}
		if codec == signalbox.Codec(signalbox.JSON{}) {
			config.Codec = nil
		}
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	tracing, traceErr := newTracing(config, who)
	if err := errors.Join(err, traceErr); err != nil {
		return nil, err
	}
	return &Scheduler{namespace: config.Namespace, log: config.Logger, trace: tracing, codec: config.Codec}, nil
}
