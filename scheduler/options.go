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

// An Option changes how a job is enqueued. Of an option given twice the last one counts, but
// [Header] and [Headers] add up. Wrong values are reported by the call that takes the option.
type Option func(*options)

// Queue names the queue: 1 to 200 bytes of printable ASCII without spaces and braces.
// The default is [signalbox.DefaultQueue].
func Queue(name string) Option {
	return func(o *options) {
		o.check(store.ValidateQueue(name))
		o.queue = name
	}
}

// At makes the job due at t, by the clock of Redis. A time that has passed is now; t is
// before the year 2255. It excludes [After], and a cron entry has none.
func At(t time.Time) Option {
	return func(o *options) {
		if t.IsZero() || t.After(latest) {
			o.wrong("At", "%v; want a time before %d", t, latest.Year())
		}
		o.set |= setAt
		o.when = store.When{At: t}
	}
}

// After makes the job due when d has passed by the clock of Redis, with a resolution of
// 1 µs. A d that is 0 or negative is now; it is at most 100 years. It excludes [At], and
// a cron entry has none.
func After(d time.Duration) Option {
	return func(o *options) {
		if d > maxDelay {
			o.wrong("After", "%v; want at most %v", d, maxDelay)
		}
		o.set |= setAfter
		o.when = store.When{After: d}
	}
}

// ID sets the job's ID, which is unique in its queue: 1 to 200 bytes of printable ASCII without
// spaces and braces. It is how a call is made again safely, and how a job is
// kept from being enqueued twice: while a job of this ID or its record exists, it is left as
// it is. The default is a new ID. A cron entry has none.
func ID(id string) Option {
	return func(o *options) {
		o.check(store.ValidateID(id))
		o.set |= setID
		o.id = id
	}
}

// MaxAttempts sets how often the job is tried before it is dead: 1 to 1,000,000. The default
// is [signalbox.DefaultMaxAttempts].
func MaxAttempts(n int) Option {
	return func(o *options) {
		if n < 1 || n > maxAttemptsLimit {
			o.wrong("MaxAttempts", "%d; want 1 to %d", n, maxAttemptsLimit)
		}
		o.maxAttempts = n
	}
}

// Priority sets the job's priority within its queue. The default is [signalbox.PriorityNormal].
func Priority(p signalbox.Priority) Option {
	return func(o *options) {
		if p > signalbox.PriorityLow {
			o.wrong("Priority", "%v; want PriorityHigh, PriorityNormal or PriorityLow", p)
		}
		o.priority = p
	}
}

// Timeout bounds each attempt, with a resolution of 1 µs. 0, the default, is no bound.
func Timeout(d time.Duration) Option {
	return func(o *options) {
		if d < 0 {
			o.wrong("Timeout", "%v; want 0 or more", d)
		}
		o.timeout = d
	}
}

// Header adds a header, which the handler finds in [signalbox.Job.Headers]. Name and value are
// UTF-8, the name is not empty, and all of a job's take at most 64 KiB. The names of the trace context
// (traceparent, tracestate, baggage, signalbox-trace-mode, signalbox-trace-since) are reserved.
func Header(name, value string) Option {
	return func(o *options) {
		o.addHeaders(map[string]string{name: value})
	}
}

// Headers adds each of the headers, as [Header] does. The map is not kept.
func Headers(headers map[string]string) Option {
	return func(o *options) { o.addHeaders(headers) }
}

// TraceMode says how the job's deliveries are connected with the span that enqueues it. It goes
// before what the worker says for all its jobs, or for a kind; with the default,
// [signalbox.TraceAuto], they choose. The jobs of an [Scheduler.EnqueueMany] are always linked:
// there, TraceParent is TraceLink. It has no effect if no trace context travels with the job.
func TraceMode(m signalbox.TraceMode) Option {
	return func(o *options) {
		if m > signalbox.TraceNone {
			o.wrong("TraceMode", "%d; want TraceAuto, TraceParent, TraceLink or TraceNone", m)
		}
		o.mode = m
	}
}

// In sets the time zone of a cron entry's spec; the default is UTC. Only [Scheduler.Cron]
// takes it.
func In(loc *time.Location) Option {
	return func(o *options) {
		if loc == nil {
			o.wrong("In", "it is nil; want a *time.Location such as that of time.LoadLocation")
		}
		o.set |= setIn
		o.loc = loc
	}
}

// options are what a list of options comes to.
type options struct {
	queue       string
	when        store.When
	id          string
	maxAttempts int
	priority    signalbox.Priority
	timeout     time.Duration
	headers     map[string]string
	mode        signalbox.TraceMode
	loc         *time.Location

	set  optionSet // in the list at hand
	errs []error
}

type optionSet uint8

const (
	setAt optionSet = 1 << iota
	setAfter
	setID
	setIn
	setHeaders
)

// A place is where a list of options was given.
type place struct {
	refused optionSet
	hint    string
}

var (
	inEnqueue  = place{setIn, "only Cron takes it"}
	inMany     = place{setIn | setID, "give each item its own, or none (In: only Cron takes it)"}
	inManyItem = inEnqueue
	inCron     = place{setAt | setAfter | setID, "the spec says when, and each tick's job has an ID of its own"}
)

var optionNames = []struct {
	bit  optionSet
	name string
}{{setAt, "At"}, {setAfter, "After"}, {setID, "ID"}, {setIn, "In"}}

var defaults = options{queue: signalbox.DefaultQueue, maxAttempts: signalbox.DefaultMaxAttempts}

// with returns o changed by a list of options, or o itself if that is empty. The error has
// every mistake in the list.
func (o *options) with(at place, reserved func() []string, opts []Option) (*options, error) {
	if len(opts) == 0 {
		return o, nil
	}
	changed := *o
	changed.set, changed.errs = 0, nil
	for i, opt := range opts {
		if opt == nil {
			changed.wrong("option", "number %d of the list is nil", i+1)
			continue
		}
		opt(&changed)
	}
	for _, known := range optionNames {
		if changed.set&at.refused&known.bit != 0 {
			changed.wrong(known.name, "%s", at.hint)
		}
	}
	if changed.set&(setAt|setAfter) == setAt|setAfter && at.refused&setAt == 0 {
		changed.wrong("At", "it is given together with After; want one of them")
	}
	if changed.set&setHeaders != 0 {
		changed.checkHeaders(reserved())
	}
	return &changed, errors.Join(changed.errs...)
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
	if o.set&setHeaders == 0 {
		o.set |= setHeaders
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
