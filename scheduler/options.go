package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/schedule"
	"github.com/signalbox-go/signalbox/internal/store"
)

const (
	maxAttemptsLimit = 1_000_000
	maxDelay         = 100 * 365 * 24 * time.Hour
	maxHeaderBytes   = 64 << 10 // names and values of one job together
)

// latest bounds the time at which a job is due. For later times, a script can't hold the microseconds exactly.
var latest = time.Date(2255, time.January, 1, 0, 0, 0, 0, time.UTC)

// An EnqueueOption changes how one job is enqueued. [Scheduler.Enqueue], [Item] and [Resolve] take it. If an option is
// given twice, the last one counts. Only [Header] and [Headers] add up. A mistake in an option is reported by the call
// that takes the option.
type EnqueueOption interface{ one(*options) }

// An EnqueueManyOption is an EnqueueOption that [Scheduler.EnqueueMany] takes for all of its jobs.
type EnqueueManyOption interface {
	EnqueueOption
	many()
}

// A CronOption changes an entry of [Scheduler.Cron], and the job of each of its ticks.
type CronOption interface{ entry(*entryOptions) }

// An Option applies to a job, however it is enqueued. Every call takes it: [Scheduler.Enqueue],
// [Scheduler.EnqueueMany], [Scheduler.Cron] and [Resolve].
type Option interface {
	EnqueueManyOption
	CronOption
}

// Each of these types implements one of the interfaces above, and no other.
type (
	forOne   func(*options)
	forMany  func(*options)
	forAll   func(*options)
	forEntry func(*entryOptions)
)

func (f forOne) one(o *options)          { f(o) }
func (f forMany) one(o *options)         { f(o) }
func (forMany) many()                    {}
func (f forAll) one(o *options)          { f(o) }
func (forAll) many()                     {}
func (f forAll) entry(e *entryOptions)   { f(&e.options) }
func (f forEntry) entry(e *entryOptions) { f(e) }

// Queue names the queue: 1 to 200 bytes of printable ASCII without spaces and braces.
// The default is [signalbox.DefaultQueue].
func Queue(name string) Option {
	return forAll(func(o *options) {
		o.check(store.ValidateQueue(name))
		o.queue = name
	})
}

// At makes the job due at t, by the clock of Redis. If t has passed, the job is due now. t must be before the year
// 2255. A call can't have both At and [After].
func At(t time.Time) EnqueueManyOption {
	return forMany(func(o *options) {
		if t.IsZero() || t.After(latest) {
			o.wrong("At", "%v; want a time before %d", t, latest.Year())
		}
		o.at = true
		o.when = store.When{At: t}
	})
}

// After makes the job due when d has passed by the clock of Redis, with a resolution of
// 1 µs. If d is 0 or negative, the job is due now. d is at most 100 years. A call can't have both After and [At].
func After(d time.Duration) EnqueueManyOption {
	return forMany(func(o *options) {
		if d > maxDelay {
			o.wrong("After", "%v; want at most %v", d, maxDelay)
		}
		o.after = true
		o.when = store.When{After: d}
	})
}

// ID sets the job's ID: 1 to 200 bytes of printable ASCII without spaces and braces. The default is a new random ID.
//
// An ID names one live job of its queue. While a job with this ID is scheduled, ready or running, an enqueue leaves it
// as it is, and the [Result] says so. When the job has completed, the ID is free, unless the queue or its [Retain] keeps it. A dead or cancelled
// job, or a completed one that is kept, is replaced by the new one, except with [IfAbsent]. So an ID doesn't prevent that the same work is enqueued again later. To have
// an effect only once, record [signalbox.Job.EffectKey].
func ID(id string) EnqueueOption {
	return forOne(func(o *options) {
		o.check(store.ValidateID(id))
		o.id, o.incarnation, o.drawn = id, 0, false
	})
}

// IfAbsent enqueues the job only if Redis has no record with its ID. That includes the records of dead and cancelled
// jobs, which are kept for 30 days by default, and those of completed jobs that are kept. Without IfAbsent the job replaces such a
// one.
func IfAbsent() EnqueueManyOption {
	return forMany(func(o *options) { o.cautious = true })
}

// WaitReplicas makes the call return when n replicas of the Redis master have the job, 1 to 1,000. If they haven't within the timeout, 1 ms
// to 1 h, the error is a [*NotDurableError]: the job is in Redis, and runs. The timeout begins when Redis has the job, and is added to
// Config.EnqueueTimeout if ctx has no deadline. Its first two digits count, in whole ms: 4.987 s is 4.9 s.
//
// With that, a job survives the loss of the master if one of these replicas takes its place. That is likely and not certain: Redis promotes a
// replica that is behind if it knows no better one.
//
// Jobs that wait go in calls of their own, so others don't wait with them. If an option [WaitAOF] is given, too, the last one counts.
func WaitReplicas(n int, timeout time.Duration) EnqueueManyOption {
	return forMany(func(o *options) {
		if n < 1 || n > maxReplicas {
			o.wrong("WaitReplicas", "%d; want 1 to %d", n, maxReplicas)
		}
		o.waitFor("WaitReplicas", store.Durability{Replicas: n, Timeout: timeout})
	})
}

// WaitAOF makes the call return when the job is on the disk of the Redis master, in its append-only file, and on the disks of so many replicas, 0
// to 1,000. The timeout and the error are those of [WaitReplicas]. The server must be Redis 7.2 or later, or Valkey, with appendonly yes. If it isn't,
// the error wraps [signalbox.ErrInvalid], and nothing is enqueued.
func WaitAOF(replicas int, timeout time.Duration) EnqueueManyOption {
	return forMany(func(o *options) {
		if replicas < 0 || replicas > maxReplicas {
			o.wrong("WaitAOF", "%d replicas; want 0 to %d", replicas, maxReplicas)
		}
		o.waitFor("WaitAOF", store.Durability{Replicas: replicas, AOF: true, Timeout: timeout})
	})
}

// WaitForRoom makes the call wait while the queue has its maximum length (see [signalbox.ErrQueueFull]), until there is room or ctx ends. Then the error wraps
// ErrQueueFull and that of ctx, and the job is not enqueued. Config.EnqueueTimeout bounds each try, and not the wait: without a deadline the call waits as long as it takes.
//
// What makes room wakes the call: a job that ends or is deleted, and a larger maximum. It also looks every 10 s. In a program one call of those that wait tries at a time,
// in the order in which they came; between programs, and before calls that have just come, there is no order. The Redis user needs +subscribe.
//
// A handler that waits for room in its own queue keeps the place of its own job. If all handlers do so, nobody makes room: give their ctx a deadline.
func WaitForRoom() EnqueueManyOption {
	return forMany(func(o *options) { o.waits = true })
}

const maxReplicas = 1000

func (o *options) waitFor(option string, d store.Durability) {
	if d.Timeout < time.Millisecond || d.Timeout > time.Hour {
		o.wrong(option, "a timeout of %v; want 1ms to 1h", d.Timeout)
	}
	d.Timeout = stepped(d.Timeout)
	o.durable = d
}

// stepped returns a timeout in whole ms with two digits, the others 0: 4.9s for 4.987s. Calls with the same timeout share lanes. So calls that wait until a
// deadline have a few lanes, and not one for each call.
func stepped(d time.Duration) time.Duration {
	step := time.Millisecond
	for d/step >= 100 {
		step *= 10
	}
	return d.Truncate(step)
}

// EffectKey sets the key that [signalbox.Job.EffectKey] returns. Use it for an effect that has a name of its own, such
// as the number of an order: all jobs with this key have one effect together, whatever their IDs. The key is 1 to 200
// bytes of printable ASCII without spaces and braces. The default is made from the queue and the ID.
func EffectKey(key string) EnqueueOption {
	return forOne(func(o *options) {
		o.check(store.ValidateEffectKey(key))
		o.effect = key
	})
}

// Group puts the job into a group of its queue, by a key such as a tenant's name: 1 to 200 bytes of printable ASCII without spaces and braces.
// The jobs of a group stand in a line of their own for each priority, in the order of their times. Lines take turns. So one group's million jobs
// delay the first job of another by one turn. Jobs without a group share the queue with the lines: each side gets half, and what the other leaves.
//
// A job that is retried or snoozed goes back to its line, at the place of the time when it is due. The first job with a group raises the layout of its
// queue: workers and producers of older releases can't use the queue from then on. A call can't have both Group and [Serial].
func Group(key string) Option { return inGroup(key, false) }

// Serial puts the job into a group as [Group] does. One job of a serial group runs at a time, across all workers. They run in strict order within a
// priority, also while one waits for its retry: the others wait for it until it has completed, died or was cancelled. Serial("a") and Group("a") are
// different groups.
//
// Jobs that are enqueued one after the other keep their order. So do the jobs of one chunk of [Scheduler.EnqueueMany]. Its chunks have no order. Jobs of a cron
// entry come into the line at the places of their ticks.
func Serial(key string) Option { return inGroup(key, true) }

// YieldOnRetry lets the next job of a [Serial] group run while this one waits for its retry, is snoozed, or waits for a worker that has its handler.
// When its time has come, it stands in the line at the place of that time: behind jobs that were put in before. Still no two run at a time. Without
// this the others wait for it. A job that comes back from a crash or a shutdown, and a suspect, don't yield. In another group, and in none, it has no effect.
func YieldOnRetry() Option { return forAll(func(o *options) { o.yields = true }) }

func inGroup(key string, serial bool) Option {
	return forAll(func(o *options) {
		o.check(store.ValidateGroup(key))
		o.group, o.serial = key, serial
		o.isGroup, o.isSerial = o.isGroup || !serial, o.isSerial || serial
	})
}

// A Scope says until when a unique key keeps other jobs out: [UntilEnded], [UntilStarted] or the result of [Window].
type Scope time.Duration

const (
	// UntilEnded keeps other jobs out until the job has completed, died or was cancelled. That includes its retries.
	UntilEnded Scope = 0
	// UntilStarted keeps other jobs out until a worker first gets the job. So at most one job waits, and it sees what was so when it was enqueued, or
	// later. Another one may run beside it, and a retry of the first one beside the second.
	UntilStarted Scope = -1

	badScope  Scope = -2
	scopeHelp       = "want UntilEnded, UntilStarted or Window(d), d from 1ms to 240000h (10,000 days)"
)

// Window keeps other jobs out until d has passed since the job was enqueued, by the clock of Redis, whatever becomes of the job. d is 1 ms to 10,000
// days, in whole microseconds.
func Window(d time.Duration) Scope {
	if d < time.Millisecond || d > store.MaxRetain {
		return badScope
	}
	return Scope(d.Truncate(time.Microsecond))
}

// Unique leaves the job out while another job of its kind and queue has the key. That is no error: New of the [Result] is false, and Existing and State
// say which job has the key. The scope says until when a job has it. The key is 1 to 200 bytes of printable ASCII without spaces and braces.
//
// The step that ends the scope frees the key: no key is left behind by a crash, and none expires while its job runs. A dead or cancelled job has no key. If an operator
// runs it again, it takes its key again; while another job has it, that is refused.
//
// If jobs with different scopes have one key, that of the job counts which has it. The first job with a key raises the layout of its queue: workers and
// producers of older releases can't use the queue from then on. Of [Unique] and [UniqueBy] the last one counts.
func Unique(key string, scope Scope) EnqueueManyOption {
	return forMany(func(o *options) {
		o.check(store.ValidateUnique(key))
		o.setUnique("Unique", scope)
		o.uniqueKey, o.uniqueFields = key, nil
	})
}

// UniqueBy is [Unique] with a key made from the job's arguments: from those top-level fields of their JSON, or from all of it without fields. The values
// of objects are compared whatever the order of their fields. A field that isn't in the JSON is an error: also one that is left out since it is empty.
// With a codec the JSON of the arguments counts all the same, and the key is a digest of it that the codec does not encrypt.
func UniqueBy(scope Scope, fields ...string) EnqueueManyOption {
	fields = slices.Clone(fields)
	return forMany(func(o *options) {
		o.setUnique("UniqueBy", scope)
		o.uniqueKey, o.uniqueFields = "", fields
	})
}

// Replace has the job that has the unique key take over what this one has, if it hasn't started: arguments, headers, number of attempts, timeout, trace,
// and, while it is scheduled, also the time, the priority and what else the options say. One that is ready gets the new arguments and stays where it is. Its
// ID and the time of its enqueue stay. Then Updated of the [Result] is true. The scope of the unique key must be [UntilStarted]. A job that has started
// leaves its key, so a running handler's arguments never change. [IfAbsent] is about the ID alone, and doesn't keep the job of the key from being updated.
func Replace() EnqueueManyOption {
	return forMany(func(o *options) { o.replace = true })
}

// Debounce enqueues one job for a series of calls. It is due when d has passed without another call of this key, and at the latest when most has passed since the first call. It
// has the arguments of the last call. It stands for [Unique] with the scope [UntilStarted], [After] and [Replace]. d is 1 ms or more, and most is d or more.
// Give it no [ID]: while a job has that ID, a call changes nothing.
func Debounce(key string, d, most time.Duration) EnqueueManyOption {
	unique, after := Unique(key, UntilStarted), After(d)
	return forMany(func(o *options) {
		unique.one(o)
		after.one(o)
		o.replace, o.most = true, most
		if d < time.Millisecond || most < d || most > maxDelay {
			o.wrong("Debounce", "%v and %v; want 1ms or more, and at least as much as the longest delay, at most %v", d, most, maxDelay)
		}
	})
}

// Throttle starts at most one job of a key in the time d, and loses none of the series: the last call's arguments run. The first job runs at once. Once a
// worker has got it, d begins, by the clock of Redis. The next call in that time enqueues a job that is due at its end, and further calls give that job what
// they have, as [Replace] does: arguments, headers, priority, but not its time. So a job that waits always has the arguments of the last call.
//
// Throttle stands for a unique key (see [Unique]) that a job has until it starts, and d after that. Retries and snoozes of a job that has started don't count:
// they run when they are due. A call can't have both Throttle and [At] or [After]. d is 1 ms to 10,000 days, in whole microseconds.
func Throttle(key string, d time.Duration) EnqueueManyOption {
	return forMany(func(o *options) {
		o.check(store.ValidateUnique(key))
		if d < time.Millisecond || d > store.MaxRetain {
			o.wrong("Throttle", "%v; want 1ms to 240000h (10,000 days)", d)
		}
		o.unique = store.Unique{Scope: store.Throttled, Window: d.Truncate(time.Microsecond)}
		o.uniqueKey, o.uniqueFields, o.replace, o.most = key, nil, true, 0
	})
}

// MaxAttempts sets how often the job is tried before it is dead: 1 to 1,000,000. The default
// is [signalbox.DefaultMaxAttempts].
func MaxAttempts(n int) Option {
	return forAll(func(o *options) {
		if n < 1 || n > maxAttemptsLimit {
			o.wrong("MaxAttempts", "%d; want 1 to %d", n, maxAttemptsLimit)
		}
		o.maxAttempts = n
	})
}

// Priority sets the job's priority within its queue. The default is [signalbox.PriorityNormal].
func Priority(p signalbox.Priority) Option {
	return forAll(func(o *options) {
		if p > signalbox.PriorityLow {
			o.wrong("Priority", "%v; want PriorityHigh, PriorityNormal or PriorityLow", p)
		}
		o.priority = p
	})
}

// Timeout bounds each attempt, with a resolution of 1 µs. 0, the default, is no bound.
func Timeout(d time.Duration) Option {
	return forAll(func(o *options) {
		if d < 0 {
			o.wrong("Timeout", "%v; want 0 or more", d)
		}
		o.timeout = d
	})
}

// Retain sets how long the job is kept after it has ended: completed, dead or cancelled. d is 1 µs to 10,000 days, in whole microseconds. It counts
// instead of the age in the queue's [signalbox.Retention], and also where the queue keeps no completed jobs. The queue's limits of number and bytes
// hold all the same: they drop jobs without Retain first. Where the queue keeps no completed jobs, their default limits hold.
//
// [signalbox.RetainNone] keeps nothing, however the job ends. A dead job is counted, logged and reported to OnDead then, but nobody can look at
// it or retry it. 0, the default, leaves it to the queue.
func Retain(d time.Duration) Option {
	return forAll(func(o *options) {
		if !retainable(d) {
			o.wrong("Retain", retainHelp, d)
		}
		o.retain = wholeMicros(d)
	})
}

// wholeMicros truncates a time for which jobs are kept as their records do.
func wholeMicros(d time.Duration) time.Duration {
	if d == signalbox.RetainNone {
		return d
	}
	return d.Truncate(time.Microsecond)
}

const retainHelp = "%v; want 1µs to 240000h (10,000 days), RetainNone, or 0 to leave it to the queue"

// retainable reports whether a job can be kept for d after it has ended.
func retainable(d time.Duration) bool {
	return d == 0 || d == signalbox.RetainNone || d >= time.Microsecond && d <= store.MaxRetain
}

// ExpireAfter ends the job if no worker has started it within d after it is due: 1 µs to 10,000 days, in whole microseconds, by the clock of Redis. It is
// dead then, with a last error that begins with "expired", and is counted, logged and reported to OnDead with [signalbox.ErrExpired]. That also holds in a
// paused queue, behind a group that is blocked, and where no worker has a free slot. A worker of the queue must run: without one, the job ends when the next
// one starts. A job that has started never expires. 0, the default, is no bound.
//
// A job that was run again by an operator after it had expired has d from then on. The first job that expires raises the layout of its queue, as
// [Group] does. Jobs without a group stand in one line for each priority, which takes turns with the lines of groups.
func ExpireAfter(d time.Duration) Option {
	return forAll(func(o *options) {
		if !expirable(d) {
			o.wrong("ExpireAfter", expireHelp, d)
		}
		o.expire = d.Truncate(time.Microsecond)
	})
}

const expireHelp = "%v; want 1µs to 240000h (10,000 days), or 0 for no bound"

// expirable reports whether a job can expire d after it is due.
func expirable(d time.Duration) bool {
	return d == 0 || d >= time.Microsecond && d <= store.MaxExpires
}

// Header adds a header, which the handler finds in [signalbox.Job.Headers]. Name and value are
// UTF-8, and the name is not empty. All headers of a job take at most 64 KiB. The names of the trace context
// (traceparent, tracestate, baggage, signalbox-trace-mode, signalbox-trace-since) are reserved.
func Header(name, value string) Option {
	return forAll(func(o *options) {
		o.addHeaders(map[string]string{name: value})
	})
}

// Headers adds each of the headers, as [Header] does. It copies the map.
func Headers(headers map[string]string) Option {
	return forAll(func(o *options) { o.addHeaders(headers) })
}

// TraceMode sets how the job's deliveries are connected with the span that enqueues it. It overrides the modes of the
// kind and of the worker. With the default, [signalbox.TraceAuto], those apply. The jobs of an [Scheduler.EnqueueMany]
// are always linked: there, TraceParent means TraceLink. TraceMode has no effect on a job without a trace context.
func TraceMode(m signalbox.TraceMode) Option {
	return forAll(func(o *options) {
		if m > signalbox.TraceNone {
			o.wrong("TraceMode", "%d; want TraceAuto, TraceParent, TraceLink or TraceNone", m)
		}
		o.mode = m
	})
}

// In sets the time zone of a cron entry's spec. The default is UTC.
func In(loc *time.Location) CronOption {
	return forEntry(func(e *entryOptions) {
		if loc == nil {
			e.wrong("In", "it is nil; want a *time.Location such as that of time.LoadLocation")
		}
		e.loc = loc
	})
}

// A MissedPolicy says what happens to the ticks of a cron entry that nobody enqueued within [Grace]: because no scheduler
// ran, or because none reached Redis. It is [Skip], [RunOnce] or the result of [RunAll].
type MissedPolicy int

const (
	// Skip leaves missed ticks out.
	Skip MissedPolicy = 0
	// RunOnce makes up for the latest of the missed ticks, and leaves out the others.
	RunOnce MissedPolicy = 1

	byDistance   MissedPolicy = -1 // the default: RunOnce if the tick after the latest missed one is far from it, else Skip
	maxRunAll                 = 1000
	farApart                  = time.Hour
	maxLateness               = maxDelay
	policyHelp                = "want Skip, RunOnce or RunAll(n)"
	latenessHelp              = "want 5s to 100 years"
)

// RunAll makes up for the latest n of the missed ticks, the earliest first, and leaves out those before. n is 1 to 1,000.
func RunAll(n int) MissedPolicy {
	if n < 1 {
		return byDistance - 1 // which is invalid
	}
	return MissedPolicy(n)
}

// Missed sets what happens to missed ticks of a cron entry. By default the latest missed tick is made up for if the next
// tick comes more than an hour after it. All others are left out.
//
// Ticks from before the entry was first seen by Redis, or before its spec, its time zone or one of these options was
// changed, are never made up for. Nor are those that passed while the entry was paused.
func Missed(p MissedPolicy) CronOption {
	return forEntry(func(e *entryOptions) {
		if p < Skip || p > maxRunAll {
			e.wrong("Missed", "%d; %s, n from 1 to %d", int(p), policyHelp, maxRunAll)
		}
		e.missed = p
	})
}

// Lateness sets how late a missed tick may be when it is made up for. A tick that is later is left out. d is 5 s
// ([Grace]) or more. The default is 100 years.
func Lateness(d time.Duration) CronOption {
	return forEntry(func(e *entryOptions) {
		if d < Grace || d > maxLateness {
			e.wrong("Lateness", "%v; %s", d, latenessHelp)
		}
		e.lateness = d
	})
}

// policy returns the policy for missed ticks in words, for tools.
func (e *entryOptions) policy() string {
	text := "skip"
	switch {
	case e.missed == byDistance:
		text = "default"
	case e.missed == RunOnce:
		text = "once"
	case e.missed > RunOnce:
		text = "all, up to " + strconv.Itoa(int(e.missed))
	}
	if e.lateness != maxLateness && e.missed != Skip {
		text += ", within " + e.lateness.String()
	}
	return text
}

// options is the result of a list of options.
type options struct {
	queue       string
	when        store.When
	id          string
	incarnation uint64
	drawn       bool // the incarnation is from an earlier call
	cautious    bool // IfAbsent
	effect      string
	group       string
	serial      bool // the group is
	yields      bool // it leaves a serial group while it waits for its retry

	unique       store.Unique // without a key
	uniqueKey    string       // "": it is made from arguments
	uniqueFields []string     // those; nil: all
	replace      bool
	most         time.Duration // of Debounce

	maxAttempts int
	priority    signalbox.Priority
	timeout     time.Duration
	retain      time.Duration
	expire      time.Duration
	headers     map[string]string
	mode        signalbox.TraceMode
	durable     store.Durability
	waits       bool // for room

	// Only while a list is applied.
	at, after         bool // were given
	isGroup, isSerial bool // were given
	headersAdded      bool
	errs              []error
}

// entryOptions is the result of the options of a cron entry.
type entryOptions struct {
	options
	loc      *time.Location // nil means UTC
	missed   MissedPolicy
	lateness time.Duration
	overlap  store.Overlap
	vary     schedule.Variation // without its seed
	argsAt   func(tick time.Time) signalbox.Args
}

var defaults = options{queue: signalbox.DefaultQueue, maxAttempts: signalbox.DefaultMaxAttempts}

// with returns o changed by the options. Without options it returns o itself. The error has every mistake in the list.
func (o *options) with(reserved func() []string, opts []EnqueueOption) (*options, error) {
	if len(opts) == 0 {
		return o, nil
	}
	changed := o.begin()
	return changed, changed.apply(reserved, opts)
}

// apply changes o by the options. The error has every mistake.
func (o *options) apply(reserved func() []string, opts []EnqueueOption) error {
	for i, opt := range opts {
		if opt == nil {
			o.missing(i)
			continue
		}
		opt.one(o)
	}
	return o.mistakes(reserved)
}

// singly converts the options of many jobs to options of one job.
func singly(opts []EnqueueManyOption) []EnqueueOption {
	one := make([]EnqueueOption, len(opts))
	for i, opt := range opts {
		one[i] = opt
	}
	return one
}

// ofEntry returns the defaults of a kind, changed by the options of a cron entry. The error has every mistake in the
// list.
func ofEntry(k kindDefaults, reserved func() []string, opts []CronOption) (*entryOptions, error) {
	e := &entryOptions{options: defaults, missed: byDistance, lateness: maxLateness}
	if k != (kindDefaults{}) {
		e.take(k)
	}
	for i, opt := range opts {
		if opt == nil {
			e.missing(i)
			continue
		}
		opt.entry(e)
	}
	e.checkTimes()
	return e, e.mistakes(reserved)
}

// begin returns a copy of o, to be changed by a list of options.
func (o *options) begin() *options {
	changed := *o
	changed.at, changed.after, changed.headersAdded, changed.errs = false, false, false, nil
	changed.isGroup, changed.isSerial = false, false
	return &changed
}

func (o *options) missing(i int) { o.wrong("option", "number %d of the list is nil", i+1) }

// mistakes returns the error with every mistake in the list.
func (o *options) mistakes(reserved func() []string) error {
	throttled := o.unique.Scope == store.Throttled
	if throttled && o.when != (store.When{}) {
		o.wrong("Throttle", "it is given together with At, After or Debounce; want one of them")
	}
	if o.replace && o.unique.Scope != store.UntilStarted && !throttled {
		o.wrong("Replace", "it is given without a unique key, or with one of another scope; want Unique or UniqueBy with UntilStarted")
	}
	if o.at && o.after {
		o.wrong("At", "it is given together with After; want one of them")
	}
	if o.isGroup && o.isSerial {
		o.wrong("Group", "it is given together with Serial; want one of them")
	}
	if o.headersAdded {
		o.checkHeaders(reserved())
	}
	return errors.Join(o.errs...)
}

// incarnationOf returns the number that distinguishes the job from earlier and later jobs with the same ID. It is 0 if
// the ID is random or the caller set an effect key: those differ already.
func (o *options) incarnationOf() uint64 {
	if o.drawn || o.id == "" || o.effect != "" {
		return o.incarnation
	}
	return store.NewIncarnation()
}

func (o *options) check(err error) {
	if err != nil {
		o.errs = append(o.errs, err)
	}
}

func (o *options) wrong(field, format string, args ...any) {
	o.errs = append(o.errs, fmt.Errorf("%w %s: %s", signalbox.ErrInvalid, field, fmt.Sprintf(format, args...)))
}

func (o *options) addHeaders(headers map[string]string) {
	if !o.headersAdded {
		o.headersAdded = true
		o.headers = maps.Clone(o.headers) // the map is shared with the list before
	}
	if o.headers == nil {
		o.headers = make(map[string]string, len(headers))
	}
	maps.Copy(o.headers, headers)
}

func (o *options) checkHeaders(reserved []string) {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(o.headers)) {
		value := o.headers[name]
		size += len(name) + len(value)
		switch {
		case name == "":
			o.wrong("Header", "a name is empty")
		case !utf8.ValidString(name):
			o.wrong("Header", "the name %q is not UTF-8", shorten(name))
		case !utf8.ValidString(value):
			o.wrong("Header", "the value of %q is not UTF-8", shorten(name))
		case slices.ContainsFunc(reserved, func(r string) bool { return strings.EqualFold(r, name) }):
			o.wrong("Header", "%q is reserved for the trace context", shorten(name))
		}
	}
	if size > maxHeaderBytes {
		o.wrong("Header", "names and values take %d bytes, at most %d are allowed", size, maxHeaderBytes)
	}
}

func shorten(s string) string {
	const limit = 100
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
