package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/middleware"
)

// Defaults and bounds of a [Config].
const (
	DefaultConcurrency  = 50
	DefaultSessionTTL   = 30 * time.Second
	DefaultDrainTimeout = 25 * time.Second
	DefaultStuckAfter   = 2 * time.Second

	maxConcurrency = 100_000
	maxShare       = 1000
	minSessionTTL  = time.Second
	maxSessionTTL  = time.Hour
	minStuckAfter  = 100 * time.Millisecond
	maxStuckAfter  = 24 * time.Hour
)

// Config configures a [Worker]. The zero value works one queue, "default", with 50 slots.
type Config struct {
	// Namespace keeps environments apart that share a Redis: a queue of one namespace has nothing to do with a queue of the
	// same name in another. 1 to 200 bytes of printable ASCII without spaces, braces and colons. Default "default".
	Namespace string
	// Queues are the queues to work, by name. Each has slots of its own. Default: the queue
	// "default" with [DefaultConcurrency] slots.
	Queues Queues
	// Concurrency bounds how many handlers run at the same time over all queues, beside the slots of each. No job is claimed
	// that would have to wait for that. Queues that wait are served in turn, each with an equal share, unless [Queue] has Rank or Weight. 0 to 100,000; default 0: there is
	// no bound but the slots. With [FreeSlot] up to as many stuck handlers go on beside those that it counts.
	Concurrency int
	// SessionTTL is how long the worker's jobs stay its own when it falls silent, and so how
	// soon they run elsewhere after a crash. 1 s to 1 h; default [DefaultSessionTTL].
	SessionTTL time.Duration
	// DrainTimeout is how long handlers may go on after Run's context ended, before their
	// own contexts end with cause [signalbox.ErrShutdown]. Default [DefaultDrainTimeout];
	// negative: at once.
	DrainTimeout time.Duration
	// StuckAfter is how long a handler may go on after the end of its context before it is reported as stuck: in the log and in metrics, by
	// [Worker.Health], and with its stack by inspect.Workers. It is noticed up to half a second later. 100 ms to 24 h; default [DefaultStuckAfter].
	StuckAfter time.Duration
	// WhenStuck says what becomes of the slot of such a handler, unless its kind says otherwise by [WhenStuck]. Default [KeepSlot].
	WhenStuck StuckPolicy
	// Strict refuses payloads with fields that the arguments' type doesn't have, for all kinds that
	// are registered by [Handle]; see [Strict]. Default: such fields are ignored.
	Strict bool
	// Codecs decode the payloads of jobs whose producers don't use JSON. A Codec decodes the payloads that have its encoding. A job whose
	// encoding none of them has is put back for another worker, and uses no attempt. [Handle] decodes by them. A handler of [Worker.HandleKind] gets the payload as it
	// is. Default: none but JSON, which every worker decodes.
	Codecs []signalbox.Codec
	// ErrorHandler sees the error of each failed attempt, and can change what becomes of the job. Default: nobody does.
	ErrorHandler ErrorHandler
	// OnRetry is called after an attempt has failed and Redis has confirmed that the job runs again. OnDead is called after a job has
	// died: its attempts or its time were used up, its error was final, or its workers died too often. The worker that finds that
	// out calls it, also for kinds that it has no handler for. If that process dies before the call, there is none.
	// If the reply of Redis that reports a death by crashes is lost, there is no call and no log record: the job is in the dead letters all the same.
	//
	// Both are called one after the other in a goroutine of their own, with the values of Run's context, which doesn't end. Run waits for them
	// before it returns. If 10,000 calls wait, more are dropped, and the log says so. Default: nothing is called.
	OnRetry func(ctx context.Context, f Failure)
	OnDead  func(ctx context.Context, f Failure)
	// Logger gets what an operator should know, never payloads. Default [slog.Default].
	Logger *slog.Logger

	// TracerProvider and MeterProvider take the spans and the metrics. Default: OpenTelemetry's
	// global ones; without those nothing is recorded. They stay the caller's, to flush and to shut down.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	// Propagator reads the trace context from the jobs' headers. Default: the global one, which
	// reads nothing until the program sets it.
	Propagator propagation.TextMapPropagator
	// TraceMode says how deliveries are connected with the span that enqueued the job; a kind's
	// mode ([TraceMode]) and a job's own count more. Default [signalbox.TraceAuto].
	TraceMode signalbox.TraceMode
	// ParentFor is how long after its enqueueing a job's deliveries are part of the trace that
	// enqueued it, in mode TraceAuto; of a job that a handler enqueued, how long after the first
	// job in that trace. Default [middleware.DefaultParentFor]; negative: never.
	ParentFor time.Duration
}

// Queues are queues by name.
type Queues map[string]Queue

// Queue configures one queue of a [Worker].
type Queue struct {
	// Concurrency is the number of slots: handlers that run at the same time. 1 to 100,000;
	// default [DefaultConcurrency].
	Concurrency int
	// Weight is the queue's share of the jobs that this worker starts, while its queues have more than Config.Concurrency lets run: a queue
	// with 3 starts three jobs for each one of a queue with 1. A queue that has no jobs, or no free slot, leaves its share to the others, and
	// gets nothing for that later. A share counts starts, whatever time they take, and each worker divides by itself. Weights need
	// Config.Concurrency. 1 to 1,000; default 1, if another queue has a weight or a rank. docs/jobs/workers.md says more.
	Weight int
	// Rank has a queue go first: of twenty starts the highest rank that has jobs gets nineteen, and all lower ranks together get one. So no
	// queue starves. Weights divide the nineteen among the queues of that rank, and the one among those of all lower ranks. It needs
	// Config.Concurrency. 1 to 1,000; default 1, the lowest.
	Rank int
	// CrashLimit is the number of crashes at which a job is dead. 1 to 255; default 5. A crash is a delivery whose worker died or lost its
	// lease. Five deliveries in a row in which the handler was called and has returned set the job's crashes to 0. The worker that takes the
	// job back applies its own limit, so give all workers of the queue the same.
	//
	// Jobs that crashed twice run apart from each other, and those that crashed four times run alone. So a job that kills its workers takes no
	// other with it. Below 5 this isolation is lost: a job can be dead because another job killed the worker that both were in. With 1 no job
	// runs again after a crash.
	CrashLimit int
	// Retention is what the queue keeps of its dead and cancelled jobs. Fields that are 0 have the defaults of [signalbox.Retention].
	//
	// This field and those below are settings of the queue, for all its workers. A value that is new is applied when the first worker with it starts. What an operator
	// sets later, as by [inspect.Inspector.SetRetention], stays until the value here changes. The zero value says nothing: a setting is removed by an operator, not by
	// leaving it out here. docs/operations/settings.md has all settings in one table.
	//
	// [inspect.Inspector.SetRetention]: https://pkg.go.dev/github.com/signalbox-go/signalbox/inspect#Inspector.SetRetention
	Retention signalbox.Retention
	// CompletedRetention is what the queue keeps of its completed jobs. [inspect.Inspector.SetCompletedRetention] changes it. Fields that are 0 have the defaults of
	// [signalbox.Retention]. Default, all fields 0: this worker says nothing. A queue without the setting keeps no completed jobs.
	//
	// [inspect.Inspector.SetCompletedRetention]: https://pkg.go.dev/github.com/signalbox-go/signalbox/inspect#Inspector.SetCompletedRetention
	CompletedRetention signalbox.Retention
	// CopyDead is another queue of the namespace. Each job that dies is copied to it, and also stays here as a dead job.
	// [inspect.Inspector.SetCopyDead] changes it. Default: this worker says nothing. In a queue without the setting dead jobs aren't copied. docs/jobs/retention.md says what a copy is.
	//
	// [inspect.Inspector.SetCopyDead]: https://pkg.go.dev/github.com/signalbox-go/signalbox/inspect#Inspector.SetCopyDead
	CopyDead string
	// Limits bound what runs of the queue, across all workers. GroupLimits bound what runs of each of its groups.
	// [inspect.Inspector.SetLimits] and its neighbours change them. Default: this worker says nothing. A queue without the setting has no limit.
	// docs/jobs/limits.md says what limits count.
	//
	// [inspect.Inspector.SetLimits]: https://pkg.go.dev/github.com/signalbox-go/signalbox/inspect#Inspector.SetLimits
	Limits, GroupLimits signalbox.Limits
	// LimitsOf bounds what runs of single groups: by the key of scheduler.Group, or of the Group in the Defaults of a kind, which has
	// limits of its own that way. The limits are also those of the group of scheduler.Serial with that key: its rate counts, and one job of it runs at
	// a time, whatever Running says. Of workers with unlike maps the newest map counts as a whole; of it each group is set whose limits have changed. Running if it is 0, and
	// Rate if its Jobs is 0, are as GroupLimits in the queue's settings, also when those change later; signalbox.NoLimit is no limit, whatever those say.
	LimitsOf map[string]signalbox.Limits
	// MaxLength is how many jobs the queue may have that haven't ended. [inspect.Inspector.SetMaxLength] changes it. Choose it larger than the number of jobs
	// that run at a time. Default: this worker says nothing. A queue without the setting has no maximum.
	//
	// [inspect.Inspector.SetMaxLength]: https://pkg.go.dev/github.com/signalbox-go/signalbox/inspect#Inspector.SetMaxLength
	MaxLength int
}

// shared reports whether the queues share the worker's concurrency by rank or weight.
func (q Queues) shared() bool {
	for _, queue := range q {
		if queue.Rank != 0 || queue.Weight != 0 {
			return true
		}
	}
	return false
}

// filled returns the config with its defaults, or every mistake in it.
func (c Config) filled() (Config, error) {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w worker.Config."+format, append([]any{signalbox.ErrInvalid}, args...)...))
	}
	if err := layout.ValidateNamespace(c.Namespace); err != nil {
		errs = append(errs, fmt.Errorf("worker.Config.Namespace: %w", err))
	}
	if c.Queues == nil {
		c.Queues = Queues{signalbox.DefaultQueue: {}}
	}
	if len(c.Queues) == 0 {
		invalid("Queues: it is empty; name a queue, or leave the field nil for %q", signalbox.DefaultQueue)
	}
	c.Queues = maps.Clone(c.Queues)
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		if err := layout.ValidateQueue(name); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Queues: %w", err))
		}
		q := c.Queues[name]
		if q.Concurrency == 0 {
			q.Concurrency = DefaultConcurrency
		}
		if q.Concurrency < 0 || q.Concurrency > maxConcurrency {
			invalid("Queues[%q].Concurrency: %d; 1 to %d is allowed, and 0 for the default", name, q.Concurrency, maxConcurrency)
		}
		for _, share := range [...]struct {
			field string
			n     int
		}{{"Weight", q.Weight}, {"Rank", q.Rank}} {
			switch {
			case share.n < 0 || share.n > maxShare:
				invalid("Queues[%q].%s: %d; 1 to %d is allowed, and 0 for the default", name, share.field, share.n, maxShare)
			case share.n > 0 && c.Concurrency == 0:
				invalid("Queues[%q].%s: %d, but Concurrency is 0; set worker.Config.Concurrency, which the queues then share", name, share.field, share.n)
			}
		}
		if q.CrashLimit == 0 {
			q.CrashLimit = store.CrashLimit
		}
		if q.CrashLimit < 0 || q.CrashLimit > store.MaxCrashLimit {
			invalid("Queues[%q].CrashLimit: %d; 1 to %d is allowed, and 0 for the default", name, q.CrashLimit, store.MaxCrashLimit)
		}
		if err := settings.ValidateRetention(q.Retention); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Queues[%q]: %w", name, err))
		}
		if err := settings.ValidateRetention(q.CompletedRetention); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Queues[%q].CompletedRetention: %w", name, err))
		}
		if err := settings.ValidateCopies(name, q.CopyDead); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Queues[%q].CopyDead: %w", name, err))
		}
		if err := settings.ValidateLimits(q.Limits); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Queues[%q].Limits: %w", name, err))
		}
		if err := settings.ValidateMaxLength(q.MaxLength); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Queues[%q].MaxLength: %w", name, err))
		}
		if err := settings.ValidateLimits(q.GroupLimits); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Queues[%q].GroupLimits: %w", name, err))
		}
		for _, group := range slices.Sorted(maps.Keys(q.LimitsOf)) {
			if err := errors.Join(layout.ValidateGroup(group), settings.ValidateLimits(q.LimitsOf[group])); err != nil {
				errs = append(errs, fmt.Errorf("worker.Config.Queues[%q].LimitsOf[%q]: %w", name, group, err))
			}
		}
		q.LimitsOf = maps.Clone(q.LimitsOf)
		c.Queues[name] = q
	}
	names := make(map[string]bool)
	for i, codec := range c.Codecs {
		if err := layout.ValidateCodec(codec); err != nil {
			errs = append(errs, fmt.Errorf("worker.Config.Codecs[%d]: %w", i, err))
		} else if name := codec.Encoding(); names[name] {
			invalid("Codecs[%d]: the encoding %s is there twice", i, name)
		} else {
			names[name] = true
		}
	}
	if c.Concurrency < 0 || c.Concurrency > maxConcurrency {
		invalid("Concurrency: %d; 1 to %d is allowed, and 0 for no bound", c.Concurrency, maxConcurrency)
	}
	if c.SessionTTL == 0 {
		c.SessionTTL = DefaultSessionTTL
	}
	if c.SessionTTL < minSessionTTL || c.SessionTTL > maxSessionTTL {
		invalid("SessionTTL: %v; %v to %v is allowed", c.SessionTTL, minSessionTTL, maxSessionTTL)
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.StuckAfter == 0 {
		c.StuckAfter = DefaultStuckAfter
	}
	if c.StuckAfter < minStuckAfter || c.StuckAfter > maxStuckAfter {
		invalid("StuckAfter: %v; %v to %v is allowed", c.StuckAfter, minStuckAfter, maxStuckAfter)
	}
	if c.WhenStuck < KeepSlot || c.WhenStuck > FreeSlot {
		invalid("WhenStuck: %d; KeepSlot or FreeSlot is allowed", c.WhenStuck)
	}
	if c.TraceMode > signalbox.TraceNone {
		invalid("TraceMode: %d; one of signalbox's constants is allowed", c.TraceMode)
	}
	if c.ParentFor == 0 {
		c.ParentFor = middleware.DefaultParentFor
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}
