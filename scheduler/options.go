package scheduler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

const (
	maxAttemptsLimit = 1_000_000
	maxDelay         = 100 * 365 * 24 * time.Hour
	maxHeaderBytes   = 64 << 10 // of one job's names and values together
)

// latest is the last time that a job can be due: beyond it a script can't hold the
// microseconds exactly.
var latest = time.Date(2255, time.January, 1, 0, 0, 0, 0, time.UTC)

// An EnqueueOption changes how one job is enqueued. [Scheduler.Enqueue], [Item] and [Resolve] take it. If an option is
// given twice, the last one counts. Only [Header] and [Headers] add up. The call that takes an option reports
// its mistakes.
type EnqueueOption interface{ one(*options) }

// An EnqueueManyOption is an EnqueueOption that [Scheduler.EnqueueMany] takes for all of its jobs.
type EnqueueManyOption interface {
	EnqueueOption
	many()
}

// A CronOption changes an entry of [Scheduler.Cron], and the job of each of its ticks.
type CronOption interface{ entry(*entryOptions) }

// An Option describes a job however it is enqueued. Every call takes it: [Scheduler.Enqueue],
// [Scheduler.EnqueueMany], [Scheduler.Cron] and [Resolve].
type Option interface {
	EnqueueManyOption
	CronOption
}

// Each of these is what one of the interfaces stands for, and no more.
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

// At makes the job due at t, by the clock of Redis. If t has passed, the job is due now. t is
// before the year 2255. A call can't have both At and [After].
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
// An ID names one live job of its queue. While a job of this ID is scheduled, ready or running, an enqueue leaves it as it
// is, and the [Result] says so. When the job has completed, the ID is free. A dead or
// cancelled job is replaced by a new one of its ID; see [IfAbsent]. So an ID doesn't prevent the same work later. To have an effect
// only once, record [signalbox.Job.EffectKey].
func ID(id string) EnqueueOption {
	return forOne(func(o *options) {
		o.check(store.ValidateID(id))
		o.id, o.incarnation, o.drawn = id, 0, false
	})
}

// IfAbsent keeps the job out if there is any record of its ID: of a live job, or of a dead or
// cancelled one. Those are kept for 30 days. Without IfAbsent the job takes the place of a dead or cancelled
// one.
func IfAbsent() EnqueueManyOption {
	return forMany(func(o *options) { o.cautious = true })
}

// EffectKey sets what [signalbox.Job.EffectKey] returns. It is for an effect that has a name of its own, such as an
// order's number: all jobs with this key have one effect together, whatever their IDs. The key is 1 to 200 bytes of printable
// ASCII without spaces and braces. The default is made from the queue and the ID.
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

// TraceMode says how the job's deliveries are connected with the span that enqueues it. It counts more
// than the worker's mode and the kind's. With the default,
// [signalbox.TraceAuto], those count. The jobs of an [Scheduler.EnqueueMany] are always linked:
// there, TraceParent means TraceLink. TraceMode has no effect if no trace context travels with the job.
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

// options are what a list of options comes to.
type options struct {
	queue       string
	when        store.When
	id          string
	incarnation uint64
	drawn       bool // the incarnation is that of an earlier call
	cautious    bool // any record of the ID keeps the job out
	effect      string
	maxAttempts int
	priority    signalbox.Priority
	timeout     time.Duration
	headers     map[string]string
	mode        signalbox.TraceMode

	// Of the list at hand.
	at, after    bool // were given
	headersAdded bool
	errs         []error
}

// entryOptions are what the options of a cron entry come to.
type entryOptions struct {
	options
	loc *time.Location // nil: UTC
}

var defaults = options{queue: signalbox.DefaultQueue, maxAttempts: signalbox.DefaultMaxAttempts}

// with returns o changed by the options, or o itself if there are none. The error has every
// mistake in the list.
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

// singly returns the options of many jobs as those of each one.
func singly(opts []EnqueueManyOption) []EnqueueOption {
	one := make([]EnqueueOption, len(opts))
	for i, opt := range opts {
		one[i] = opt
	}
	return one
}

// ofEntry returns what the defaults of a kind and the options of a cron entry come to. The error has every mistake in the list.
func ofEntry(k kindDefaults, reserved func() []string, opts []CronOption) (*entryOptions, error) {
	e := &entryOptions{options: defaults}
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

// begin returns a copy of o for a list of options to change.
func (o *options) begin() *options {
	changed := *o
	changed.at, changed.after, changed.headersAdded, changed.errs = false, false, false, nil
	return &changed
}

func (o *options) missing(i int) { o.wrong("option", "number %d of the list is nil", i+1) }

// mistakes returns every mistake in the list.
func (o *options) mistakes(reserved func() []string) error {
	if o.at && o.after {
		o.wrong("At", "it is given together with After; want one of them")
	}
	if o.headersAdded {
		o.checkHeaders(reserved())
	}
	return errors.Join(o.errs...)
}

// incarnationOf returns what tells the job apart from others that use its ID before and after. A random ID
// does so by itself, and so does an effect key of the caller's.
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
		o.headers = maps.Clone(o.headers) // that of the list before is shared
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
