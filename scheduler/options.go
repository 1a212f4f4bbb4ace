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
	maxHeaderBytes   = 64 << 10 // names and values of one job together
)

// latest bounds the time at which a job is due. For later times, a script can't hold the microseconds exactly.
var latest = time.Date(2255, time.January, 1, 0, 0, 0, 0, time.UTC)

// A JobOption says what a job is like, however it is enqueued: its queue, its priority, its timeout. Every call takes it: [Scheduler.Enqueue],
// [Scheduler.EnqueueMany], [Scheduler.EnqueueSeq], [Scheduler.Cron], [Item] and [Resolve]. [JobOptions] passes on several of them.
type JobOption interface {
	BulkOption
	CronOption
}

// A BulkOption says how one job or many jobs are enqueued, such as when they are due. [Scheduler.EnqueueMany] and [Scheduler.EnqueueSeq] take it for
// all of their jobs, [Scheduler.Enqueue], [Item] and [Resolve] for one. A cron entry has no use for it.
type BulkOption interface {
	EnqueueOption
	bulk()
}

// An EnqueueOption says how one job is enqueued. Those that are no BulkOption name the job, so each job needs its own. [Scheduler.Enqueue], [Item] and
// [Resolve] take it. If an option is given twice, the last one counts. Only [Header] and [Headers] add up. A mistake in an option is reported by the call
// that takes the option.
type EnqueueOption interface{ one(*options) }

// JobOptions are a list of options that is one option. So options that several calls have in common can be kept in one place and passed on to each of
// them, before options of the call's own. Without elements it changes nothing. A []JobOption can be converted to it.
type JobOptions []JobOption

// Each of these types implements one of the interfaces above, and no other.
type (
	forOne   func(*options)
	forBulk  func(*options)
	forJob   func(*options)
	forEntry func(*entryOptions)
)

func (f forOne) one(o *options)          { f(o) }
func (f forBulk) one(o *options)         { f(o) }
func (forBulk) bulk()                    {}
func (f forJob) one(o *options)          { f(o) }
func (forJob) bulk()                     {}
func (f forJob) entry(e *entryOptions)   { f(&e.options) }
func (f forEntry) entry(e *entryOptions) { f(e) }

func (JobOptions) bulk()                   {}
func (l JobOptions) entry(e *entryOptions) { l.one(&e.options) }

func (l JobOptions) one(o *options) {
	for i, opt := range l {
		if opt == nil {
			o.wrong("JobOptions", "number %d of the list is nil", i+1)
			continue
		}
		opt.one(o)
	}
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
	deadline    time.Time // instead of expire
	headers     map[string]string
	mode        signalbox.TraceMode
	durable     store.Durability
	waits       bool // for room

	// Only while a list is applied.
	at, after         bool // were given
	isGroup, isSerial bool // were given
	isYields          bool // was given
	expires, isEnd    bool // ExpireAfter and Deadline were given
	headersAdded      bool
	errs              []error
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

// withIn is with for one of many jobs: what it returns may be room, which the next call uses again.
func (o *options) withIn(room *options, reserved func() []string, opts []EnqueueOption) (*options, error) {
	if len(opts) == 0 {
		return o, nil
	}
	room.start(o)
	return room, room.apply(reserved, opts)
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
func singly(opts []BulkOption) []EnqueueOption {
	one := make([]EnqueueOption, len(opts))
	for i, opt := range opts {
		one[i] = opt
	}
	return one
}

// begin returns a copy of o, to be changed by a list of options.
func (o *options) begin() *options {
	changed := new(options)
	changed.start(o)
	return changed
}

// start makes o a copy of from, to be changed by a list of options.
func (o *options) start(from *options) {
	*o = *from
	o.at, o.after, o.headersAdded, o.errs = false, false, false, nil
	o.isGroup, o.isSerial, o.isYields = false, false, false
	o.expires, o.isEnd = false, false
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
	if o.expires && o.isEnd {
		o.wrong("Deadline", "it is given together with ExpireAfter; want one of them")
	}
	if o.isGroup && o.isSerial {
		o.wrong("Group", "it is given together with Serial; want one of them")
	}
	if o.isYields && !o.serial {
		o.wrong("YieldOnRetry", "it is given without Serial, and would have no effect; want both in one list, or neither")
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
			o.wrong("Header", "%q is reserved: Signalbox sets it; want another name", shorten(name))
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

// isUnique reports whether the job has a unique key.
func (o *options) isUnique() bool { return o.unique.Scope != 0 }
