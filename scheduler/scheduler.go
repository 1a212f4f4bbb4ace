// Package scheduler puts jobs into queues: now, later, or on a cron.
//
// A [Scheduler] is made once per process over the caller's Redis client. [Scheduler.Enqueue]
// puts one job in and [Scheduler.EnqueueMany] many; both may be called from any number
// of goroutines and need no [Scheduler.Run]. [Scheduler.Cron] registers an entry, which
// Run fires. The caller owns the client; it is never closed here.
//
// # Enqueuing
//
// A job is its args, encoded as JSON, and its options. Times, of [At] and [After] too,
// are judged by the clock of Redis. An ID is unique in its queue: if a job with that
// ID is there, in whatever state, it is left as it is and the result says so (New is
// false). The ID of a completed job is free again, as its record is deleted.
//
// Jobs enqueued at the same time by several goroutines share calls to Redis, at most
// two at a time per queue. A lone Enqueue is sent at once. No goroutine is left when
// there is nothing to send.
//
// # When it fails
//
// An error is one of three kinds. [signalbox.ErrInvalid]: an argument or an option is wrong;
// every mistake is in the error, by its name, and nothing was enqueued. [ErrUncertain]: the call
// was sent and its outcome is not known, as Redis did not answer or the context ended; the
// job is in, now or a little later, or it is not. Any other: the job is not in.
// After the latter two the result still has the ID, so the call can be made
// again with [ID], and while the first job or its record exists it is not put in twice.
//
// A lost reply is no error: the call is made again by itself, for 10 s at most, and Redis
// recognises it by its number even if the job has been completed since.
//
// # Cron
//
// Any number of processes run the same entries; there is no leader. A tick is claimed in
// the same script that enqueues its job, so it is enqueued once however many try, and Redis
// refuses a tick that is in the future by its own clock. The clocks of the
// processes decide nothing. A tick that nobody could enqueue within [Grace], say because
// Redis was away, is skipped, and the log tells how many were.
//
// # Tracing
//
// Spans and metrics go to the global providers of OpenTelemetry, or to those of [Config]; without
// any they cost nothing. An Enqueue has a PRODUCER span "enqueue {queue}", whose context goes into the
// job's headers if a propagator is set, so that what the worker does becomes part of the trace:
// [TraceMode] says how. Each job of an EnqueueMany has a span "create {queue}" of its own, and each
// queue one span "enqueue {queue}" of the sending, which links to them. A tick of a cron entry is the root
// of a trace, "tick {entry}", made by the process that enqueued it, or that tried to and gave up.
//
// Of the baggage nothing travels with a job but what [Config] names: headers stay in Redis as
// long as the job does.
package scheduler

import (
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
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// Config configures a [Scheduler]. The zero value is usable.
type Config struct {
	// Logger takes what Run has to say. The default is [slog.Default].
	Logger *slog.Logger
	// TracerProvider makes the spans. The default is the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider takes the metrics. The default is the global one.
	MeterProvider metric.MeterProvider
	// Propagator writes the trace context into the jobs' headers. The default is the
	// global one, which writes nothing until the program sets it.
	Propagator propagation.TextMapPropagator
	// Baggage names the members of the baggage that travel with the jobs of a trace. The
	// propagator sees no others, since what travels stays in Redis. They are taken in the
	// order of their names here, and one with which they are more than 8 KiB is left out. The default is none.
	Baggage []string
}

// A Scheduler puts jobs into queues. It is safe for concurrent use.
type Scheduler struct {
	rdb     redis.UniversalClient
	log     *slog.Logger
	trace   tracing
	metrics *telemetry.ProducerMetrics
	now     func() time.Time // only differences count

	mu     sync.RWMutex
	queues map[string]*combiner

	cron crontab
}

// New returns a scheduler over rdb: a client of a single Redis, of Sentinel or of a Cluster. It
// does not connect. The error wraps [signalbox.ErrInvalid].
func New(rdb redis.UniversalClient, config Config) (*Scheduler, error) {
	if store.IsNil(rdb) {
		return nil, fmt.Errorf("%w rdb: it is nil; give scheduler.New a Redis client", signalbox.ErrInvalid)
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	host, port := store.Address(rdb)
	who := telemetry.Who{Address: host, Port: port}
	tracing, err := newTracing(config, who)
	if err != nil {
		return nil, fmt.Errorf("scheduler: %w", err)
	}
	return &Scheduler{
		rdb:     rdb,
		log:     config.Logger,
		trace:   tracing,
		metrics: telemetry.NewProducerMetrics(config.MeterProvider, who),
		now:     time.Now,
		queues:  make(map[string]*combiner),
		cron:    newCrontab(),
	}, nil
}

// ErrUncertain is wrapped by the error of an enqueue whose outcome is not known: the job may
// or may not have been enqueued, or may be so a little later. Make the call again with
// the same [ID] to be sure.
var ErrUncertain = errors.New("the job may or may not have been enqueued")
