package scheduler

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/schedule"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// crontab holds the entries until Run takes them.
type crontab struct {
	mu      sync.Mutex
	names   map[string]*entry
	entries []*entry // those that weren't removed, by their numbers
	last    int      // the highest number of an entry
	drops   int      // how many entries were removed
	sources []*source
	former  map[place]former // entries that were replaced or removed lately
	running bool
	since   time.Time     // when running last changed, or the first entry was registered
	runner  *runner       // of the Run that is under way; nil until Redis has answered
	ran     bool          // Run was called
	alarm   *time.Timer   // warns if Run is not called; set by the first entry
	added   chan struct{} // takes one value: entries or sources were added or removed
}

// An entry is one registered Cron call. It doesn't change, except that it can be removed.
type entry struct {
	number   int // in the order of all entries of the scheduler
	gone     atomic.Bool
	source   *source       // that has it; nil: none
	made     time.Time     // by the scheduler's clock
	set      bool          // it takes the place of another plan
	newest   *atomic.Int64 // when the newest plan that this process has registered under this name and queue was new, in µs; 0: none was registered
	name     string
	spec     string
	template store.Item // of job, to compare entries by
	schedule schedule.Schedule
	job      signalbox.Job // the template of each tick's job, without ID and trace
	args     signalbox.Args
	mode     signalbox.TraceMode
	notice   store.Notice
	plan     store.Plan
	policy   MissedPolicy
	lateness time.Duration // of a tick that is made up for
	overlap  store.Overlap
	argsAt   func(tick time.Time) signalbox.Args // nil: all jobs have the payload of job
}

func newCrontab() crontab {
	return crontab{names: make(map[string]*entry), former: make(map[place]former), added: make(chan struct{}, 1)}
}

// Cron registers an entry: while [Scheduler.Run] runs, a job is enqueued at each tick of spec. Cron may be called
// before Run and while it runs. Redis keeps the last tick of each entry, under its name and queue, and a description for
// package inspect, which can pause the entry and run it now. Entries live in the processes. So every
// process that should run an entry registers it, with the same name, spec and queue. One of them enqueues each tick.
// If their specs differ, only one of them is in force: that which Redis saw first most recently, until no process has it for
// three minutes. What happens to ticks that nobody enqueued in time is the entry's policy, see [Missed]. If Run is not called within a minute after the first entry was
// registered, the log warns.
//
// spec is one of
//
//   - five fields, "minute hour day-of-month month day-of-week", or six, with one for the second in front; the day of
//     the week is 0 (Sunday) to 6, or SUN to SAT; 7 is Sunday, too
//   - a descriptor such as @daily
//   - "@every d", which ticks at the multiples of d since the Unix epoch; d is whole ms, from 1 s
//
// The time zone is the one of "CRON_TZ=Area/City " in front of spec. Without that it is the one of [In], or else UTC.
//
// Where clocks change, a spec whose hour is a wildcard ("*", "*/n", @hourly) follows elapsed time: it fires in both
// of two equal hours. Any other spec fires once for each time of day that it names. If that time comes twice, it
// fires the first time. If that time doesn't exist, it fires right after the gap.
//
// "@every d offset o" ticks at the time o after these multiples. o is whole ms, and less than d.
//
// args are encoded now, and are the same for every tick, unless [ArgsAt] is given; [Config].Codec encodes them for each tick. [signalbox.Job.ScheduledAt] is the time of the tick, until a retry or a snooze changes it; ArgsAt puts the tick into the arguments. What
// happens if a tick comes while the job of an earlier one is live is said by [Overlap].
// The name has 1 to 200 bytes of printable ASCII without spaces and braces.
//
// The error wraps [signalbox.ErrInvalid] and names every mistake: a bad spec, a spec whose date never comes, a name
// that is already registered in this scheduler, args that can't be encoded, a wrong option. [Scheduler.SetCron] replaces an entry.
func (s *Scheduler) Cron(name, spec string, args signalbox.Args, opts ...CronOption) error {
	e, err := s.newEntry(name, spec, args, opts)
	if err == nil {
		err = s.cron.add(e, s.warnUnlessRun)
	}
	if err != nil {
		return fmt.Errorf("scheduler: cron entry %q: %w", shorten(name), err)
	}
	return nil
}

func (s *Scheduler) newEntry(name, spec string, args signalbox.Args, opts []CronOption) (*entry, error) {
	k, kind, payload, argsErr := marshal(args, s.codec)
	o, optErr := ofEntry(k, s.trace.reserved, opts)
	optErr = errors.Join(optErr, o.queueUp(name))
	now := time.Now()
	sched, specErr := schedule.Parse(spec, o.loc, now)
	if err := errors.Join(layout.ValidateEntry(name), specErr, argsErr, optErr); err != nil {
		return nil, err
	}
	zone := schedule.ZoneName(sched.Zone(), now)
	o.vary.Seed = schedule.Seed(o.queue, name)
	sched = schedule.Vary(sched, o.vary)
	o.vary.Seed = ""
	e := &entry{
		name: name, spec: spec, schedule: sched, job: o.job("template", kind, payload), args: args, mode: o.mode, policy: o.missed, lateness: o.lateness,
		overlap: o.overlap, argsAt: o.argsAt, made: s.now(), newest: new(atomic.Int64),
	}
	e.job.Headers, e.job.Namespace = o.headers, s.namespace
	e.plan = store.NewPlan(name, append([]string{spec, zone, strconv.Itoa(int(o.missed)), o.lateness.String()}, o.says()...)...)
	e.notice = store.NewNotice(e.plan, o.describe(store.Description{Spec: spec, Zone: zone, Missed: o.policy()}), &e.job, s.codec != nil || e.argsAt != nil)
	sample := e.job
	var err error
	if e.template, err = store.NewItem(&sample, store.When{}); err != nil {
		return nil, err
	}
	e.job.ID = store.NewID()
	sample.Effect = store.TickEffect(sample.Namespace, sample.Queue, name, now) // each tick has an effect key
	if next := sched.Next(now); !next.IsZero() {
		if args, sample.Payload, err = e.argsOf(next, s.codec); err != nil {
			return nil, err
		}
	}
	_, err = s.pack(&sample, args, store.When{}) // checks the size
	return e, err
}

// runPatience is how long after the first entry the log warns if Run was not called.
const runPatience = time.Minute

// warnUnlessRun logs a warning if Run was not called.
func (s *Scheduler) warnUnlessRun() {
	s.cron.mu.Lock()
	ran, entries := s.cron.ran, len(s.cron.entries)
	s.cron.mu.Unlock()
	if !ran {
		s.log.Warn("scheduler: cron: entries were registered but Run was not called; until it is, this process enqueues no tick",
			"entries", entries, "for", runPatience.String())
	}
}

// add adds an entry. If Run was not called within runPatience after the first entry, late is called.
func (c *crontab) add(e *entry, late func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[e.name] != nil {
		return fmt.Errorf("%w name: there is an entry of this name already", signalbox.ErrInvalid)
	}
	c.put(e, late)
	c.signal()
	return nil
}

func (c *crontab) start() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running {
		return false
	}
	c.running, c.ran, c.since = true, true, time.Now()
	if c.alarm != nil {
		c.alarm.Stop()
	}
	return true
}

func (c *crontab) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running, c.since, c.runner = false, time.Now(), nil
}

// serves notes that the runner fires the entries from now on.
func (c *crontab) serves(r *runner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runner = r
}
