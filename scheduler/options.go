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

// EffectKey sets the key that [signalbox.Job.EffectKey] returns. Use it for an effect that has a name of its own, such
// as the number of an order: all jobs with this key have one effect together, whatever their IDs. The key is 1 to 200
// bytes of printable ASCII without spaces and braces. The default is made from the queue and the ID.
func EffectKey(key string) EnqueueOption {
	return forOne(func(o *options) {
		o.check(store.ValidateEffectKey(key))
		o.effect = key
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
	maxAttempts int
	priority    signalbox.Priority
	timeout     time.Duration
	retain      time.Duration
	headers     map[string]string
	mode        signalbox.TraceMode

	// Only while a list is applied.
	at, after    bool // were given
	headersAdded bool
	errs         []error
}

// entryOptions is the result of the options of a cron entry.
type entryOptions struct {
	options
	loc      *time.Location // nil means UTC
	missed   MissedPolicy
	lateness time.Duration
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
	return e, e.mistakes(reserved)
}

// begin returns a copy of o, to be changed by a list of options.
func (o *options) begin() *options {
	changed := *o
	changed.at, changed.after, changed.headersAdded, changed.errs = false, false, false, nil
	return &changed
}

func (o *options) missing(i int) { o.wrong("option", "number %d of the list is nil", i+1) }

// mistakes returns the error with every mistake in the list.
func (o *options) mistakes(reserved func() []string) error {
	if o.at && o.after {
		o.wrong("At", "it is given together with After; want one of them")
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
