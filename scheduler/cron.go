package scheduler

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/schedule"
	"github.com/signalbox-go/signalbox/internal/store"
)

// crontab holds the entries until Run takes them.
type crontab struct {
	mu      sync.Mutex
	names   map[string]bool
	entries []*entry
	running bool
	since   time.Time     // when running last changed, or the first entry was registered
	runner  *runner       // of the Run that is under way; nil until Redis has answered
	ran     bool          // Run was called
	alarm   *time.Timer   // warns if Run is not called; set by the first entry
	added   chan struct{} // takes one value: there are new entries
}

// An entry is one registered Cron call. It doesn't change.
type entry struct {
	name     string
	schedule schedule.Schedule
	job      signalbox.Job // the template of each tick's job, without ID and trace
	mode     signalbox.TraceMode
	notice   store.Notice
	plan     store.Plan
	policy   MissedPolicy
	lateness time.Duration // of a tick that is made up for
}

func newCrontab() crontab {
	return crontab{names: make(map[string]bool), added: make(chan struct{}, 1)}
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
//     the week is 0 (Sunday) to 6, or SUN to SAT
//   - a descriptor such as @daily
//   - "@every d", which ticks at the multiples of d since the Unix epoch; d is whole ms, from 1 s
//
// The time zone is the one of "CRON_TZ=Area/City " in front of spec. Without that it is the one of [In], or else UTC.
//
// Where clocks change, a spec whose hour is a wildcard ("*", "*/n", @hourly) follows elapsed time: it fires in both
// of two equal hours. Any other spec fires once for each time of day that it names. If that time comes twice, it
// fires the first time. If that time doesn't exist, it fires right after the gap.
//
// args are encoded now, and are the same for every tick. [signalbox.Job.ScheduledAt] is the time of the tick.
// The name has 1 to 200 bytes of printable ASCII without spaces and braces.
//
// The error wraps [signalbox.ErrInvalid] and names every mistake: a bad spec, a spec whose date never comes, a name
// that is already registered in this scheduler, args that can't be encoded, a wrong option.
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
	k, kind, payload, argsErr := marshal(args)
	o, optErr := ofEntry(k, s.trace.reserved, opts)
	now := time.Now()
	sched, specErr := schedule.Parse(spec, o.loc, now)
	if err := errors.Join(store.ValidateEntry(name), specErr, argsErr, optErr); err != nil {
		return nil, err
	}
	e := &entry{
		name: name, schedule: sched, job: o.job(store.NewID(), kind, payload), mode: o.mode, policy: o.missed, lateness: o.lateness,
	}
	e.job.Headers, e.job.Namespace = o.headers, s.namespace
	zone := schedule.ZoneName(sched.Zone(), now)
	e.plan = store.NewPlan(name, spec, zone, strconv.Itoa(int(o.missed)), o.lateness.String())
	e.notice = store.NewNotice(e.plan, store.Description{Spec: spec, Zone: zone, Missed: o.policy()}, &e.job, s.codec != nil)
	sample := e.job
	sample.Effect = store.TickEffect(sample.Namespace, sample.Queue, name, now) // each tick has an effect key
	_, err := s.pack(&sample, store.When{})                                     // checks the size
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
	if c.names[e.name] {
		return fmt.Errorf("%w name: there is an entry of this name already", signalbox.ErrInvalid)
	}
	if len(c.entries) == 0 && !c.running {
		c.since = time.Now()
	}
	c.names[e.name] = true
	c.entries = append(c.entries, e)
	if !c.ran && c.alarm == nil {
		c.alarm = time.AfterFunc(runPatience, late)
	}
	select {
	case c.added <- struct{}{}:
	default:
	}
	return nil
}

// from returns all entries except the first n.
func (c *crontab) from(n int) []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries[n:len(c.entries):len(c.entries)]
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
