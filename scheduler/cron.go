package scheduler

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// crontab holds the entries, for Run to take.
type crontab struct {
	mu      sync.Mutex
	names   map[string]bool
	entries []*entry
	running bool
	added   chan struct{} // takes one value: there are new entries
}

// An entry is one line of the crontab. It doesn't change.
type entry struct {
	name     string
	schedule schedule
	job      signalbox.Job // of every tick, but for its ID and the trace
	mode     signalbox.TraceMode
}

func newCrontab() crontab {
	return crontab{names: make(map[string]bool), added: make(chan struct{}, 1)}
}

// Cron registers an entry: from [Scheduler.Run] on, a job is enqueued at each tick of spec. It may be
// called before Run and while it runs. Nothing is kept in Redis but the last tick
// of each entry, under its name and queue: all processes that should run an entry register it, with the
// same name, spec and queue, and each tick is enqueued by one of them.
//
// spec is "minute hour day-of-month month day-of-week", with a field for the second in front
// if there are six, a descriptor such as @daily, or "@every d" with d from 1 s in whole ms, which
// ticks at the multiples of d since the Unix epoch. The day of the week is 0 (Sunday) to 6 or SUN
// to SAT. The time zone is that of a "CRON_TZ=Area/City " in front, else that of [In], else UTC.
//
// Where clocks change, a spec whose hour is a wildcard ("*", "*/n", @hourly) goes by elapsed
// time: it fires in both of two equal hours. Any other fires once for each time of day that it
// names: the first time if that comes twice, and right after the gap if it is left out.
//
// args are encoded now, and are the same for every tick; [signalbox.Job.ScheduledAt] is the tick.
// The name has 1 to 200 bytes of printable ASCII without spaces and braces.
//
// The error wraps [signalbox.ErrInvalid] and has every mistake: a bad spec, one whose date never
// comes, a name that this scheduler has already, args that can't be encoded, a wrong
// option. [At], [After] and [ID] are wrong here.
func (s *Scheduler) Cron(name, spec string, args signalbox.Args, opts ...Option) error {
	e, err := s.newEntry(name, spec, args, opts)
	if err == nil {
		err = s.cron.add(e)
	}
	if err != nil {
		return fmt.Errorf("scheduler: cron entry %q: %w", shorten(name), err)
	}
	return nil
}

func (s *Scheduler) newEntry(name, spec string, args signalbox.Args, opts []Option) (*entry, error) {
	o, optErr := defaults.with(inCron, s.trace.reserved, opts)
	sched, specErr := parseSchedule(spec, o.loc, time.Now())
	kind, payload, argsErr := encode(args)
	if err := errors.Join(store.ValidateEntry(name), specErr, argsErr, optErr); err != nil {
		return nil, err
	}
	e := &entry{name: name, schedule: sched, job: o.job(store.NewID(), kind, payload), mode: o.mode}
	e.job.Headers = o.headers
	_, err := store.NewItem(&e.job, store.When{}) // it is not too large
	return e, err
}

func (c *crontab) add(e *entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[e.name] {
		return fmt.Errorf("%w name: there is an entry of this name already", signalbox.ErrInvalid)
	}
	c.names[e.name] = true
	c.entries = append(c.entries, e)
	select {
	case c.added <- struct{}{}:
	default:
	}
	return nil
}

// from returns the entries but the first n.
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
	c.running = true
	return true
}

func (c *crontab) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = false
}
