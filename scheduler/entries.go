package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A CronEntry has the arguments of a call of [Scheduler.Cron].
type CronEntry struct {
	Name, Spec string
	Args       signalbox.Args
	Options    []CronOption
}

// An EntryInfo is an entry of a scheduler.
type EntryInfo struct {
	Name  string
	Queue string // of its jobs
	Kind  string // of its jobs
	Spec  string // as in the call of [Scheduler.Cron]
	// Sourced says that a source of [Scheduler.CronFrom] has the entry.
	Sourced bool
}

// SetCron is like [Scheduler.Cron], but takes the place of an entry of the same name, if this scheduler has one. If the entry is as it was, nothing
// is changed. If only its args or its options for jobs are new, its ticks go on. If what its ticks depend on is new, it counts as a new
// version, as after a deploy: see [Scheduler.Cron]. So it is in force at once, also if it is set back to what it was before. A tick that was sent to Redis before may still come. If the error isn't nil, the entry is
// as it was.
//
// It is an error to set an entry that a source of [Scheduler.CronFrom] has.
func (s *Scheduler) SetCron(name, spec string, args signalbox.Args, opts ...CronOption) (changed bool, err error) {
	e, err := s.newEntry(name, spec, args, opts)
	if err == nil {
		changed, err = s.cron.change(nil, []*entry{e}, false, s.warnUnlessRun)
	}
	if err != nil {
		return false, fmt.Errorf("scheduler: cron entry %q: %w", shorten(name), err)
	}
	return changed, nil
}

// RemoveCron removes an entry from this scheduler: it enqueues no further ticks of it. A tick that was sent to Redis before may still come. Other
// processes that have the entry go on. Once none has, tools show it as gone after three minutes. found is false if there is no such entry, or
// if a source of [Scheduler.CronFrom] has it.
func (s *Scheduler) RemoveCron(name string) (found bool) {
	s.cron.mu.Lock()
	e := s.cron.names[name]
	s.cron.mu.Unlock()
	if e == nil || e.source != nil {
		return false
	}
	found, _ = s.cron.change(nil, nil, false, nil, e)
	return found
}

// CronEntries returns the entries of this scheduler, sorted by name. Package inspect has those of all processes.
func (s *Scheduler) CronEntries() []EntryInfo {
	s.cron.mu.Lock()
	defer s.cron.mu.Unlock()
	list := make([]EntryInfo, len(s.cron.entries))
	for i, e := range s.cron.entries {
		list[i] = EntryInfo{Name: e.name, Queue: e.job.Queue, Kind: e.job.Kind, Spec: e.spec, Sourced: e.source != nil}
	}
	slices.SortFunc(list, func(a, b EntryInfo) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// A CronSource returns all entries of a file, a table or another place. It is called again and again. If it returns an error, those
// that it returned before stay.
type CronSource func(ctx context.Context) ([]CronEntry, error)

const (
	minWatch     = time.Second
	maxWatch     = 24 * time.Hour
	watchTimeout = 30 * time.Second // of a call of a source
)

// A source is one that this scheduler watches.
type source struct {
	load  CronSource
	every time.Duration
	fails string // the error that the log has last told; "": none
}

// CronFrom registers the entries of a source, and watches it: while [Scheduler.Run] runs, it calls the source every so often, 1 s to 24 h, and takes over
// what has changed. Entries that the source has no more are removed, as by [Scheduler.RemoveCron], and those that have changed are set, as by
// [Scheduler.SetCron]. All of it changes at once or not at all: if the source fails, takes longer than 30 s, or has a wrong
// entry, this scheduler's entries stay as they are, and the log has a warning, once for each new error.
//
// CronFrom itself calls the source once. Its error is that of the source, or names every wrong entry: then nothing is registered and the source isn't
// watched. Every process that should run the entries watches the source. They needn't see a change at the same time: until all have
// seen it, the rule for [two versions of an entry] holds.
//
// [two versions of an entry]: https://github.com/signalbox-go/signalbox/blob/main/docs/scheduling.md#deploys-two-versions-of-an-entry
func (s *Scheduler) CronFrom(ctx context.Context, load CronSource, every time.Duration) error {
	if load == nil || every < minWatch || every > maxWatch {
		return fmt.Errorf("scheduler: cron entries of a source: %w source or interval: nil, or %v; want a function, and %v to %v", signalbox.ErrInvalid, every, minWatch, maxWatch)
	}
	src := &source{load: load, every: every}
	if _, err := s.reload(ctx, src); err != nil {
		return fmt.Errorf("scheduler: cron entries of a source: %w", err)
	}
	s.cron.mu.Lock()
	s.cron.sources = append(s.cron.sources, src)
	s.cron.mu.Unlock()
	s.cron.signal()
	return nil
}

// reload takes over the entries that a source has now.
func (s *Scheduler) reload(ctx context.Context, src *source) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	listed, err := src.load(ctx)
	if err != nil {
		return false, err
	}
	entries := make([]*entry, 0, len(listed))
	seen := make(map[string]bool, len(listed))
	var errs []error
	for _, c := range listed {
		e, err := s.newEntry(c.Name, c.Spec, c.Args, c.Options)
		if err == nil && seen[c.Name] {
			err = fmt.Errorf("%w name: the source has two entries of this name", signalbox.ErrInvalid)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("cron entry %q: %w", shorten(c.Name), err))
			continue
		}
		seen[c.Name] = true
		e.source = src
		entries = append(entries, e)
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	return s.cron.change(src, entries, true, s.warnUnlessRun)
}

// follow calls a source again and again until ctx ends.
func (s *Scheduler) follow(ctx context.Context, src *source) {
	timer := time.NewTimer(src.every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		changed, err := s.reload(ctx, src)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && src.fails != err.Error():
			src.fails = err.Error()
			s.log.Warn("scheduler: cron: the entries of a source could not be taken over; those from before stay", "error", err)
		case err == nil && src.fails != "":
			src.fails = ""
			s.log.Info("scheduler: cron: the entries of a source can be taken over again", "changed", changed)
		case err == nil && changed:
			s.log.Info("scheduler: cron: the entries of a source have changed")
		}
		timer.Reset(src.every)
	}
}

// change sets entries and removes others, all at once. If all is set, the entries are all that the source has: others of it are removed. It reports
// whether anything was changed.
func (c *crontab) change(src *source, set []*entry, all bool, late func(), gone ...*entry) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stays := make(map[string]bool, len(set))
	var errs []error
	for _, e := range set {
		stays[e.name] = true
		if old := c.names[e.name]; old != nil && old.source != src {
			errs = append(errs, fmt.Errorf("%w name: %q is an entry of another source, or of Cron", signalbox.ErrInvalid, shorten(e.name)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	for _, e := range c.entries {
		if all && e.source == src && !stays[e.name] {
			gone = append(gone, e)
		}
	}
	for _, e := range set {
		old := c.names[e.name]
		if old != nil && old.same(e) {
			continue
		}
		if old != nil {
			c.drop(old)
		}
		c.put(e, late)
		changed = true
	}
	for _, e := range gone {
		if c.names[e.name] == e {
			c.drop(e)
			changed = true
		}
	}
	if changed {
		maps.DeleteFunc(c.former, func(_ place, f former) bool { return time.Since(f.until) > store.NoticePatience })
		c.signal()
	}
	return changed, nil
}

// A place is the queue and the name of an entry.
type place struct{ queue, name string }

func (e *entry) place() place { return place{e.job.Queue, e.name} }

// A former is what is kept of an entry that was replaced or removed, for as long as its plan can be in force.
type former struct {
	plan   store.Plan
	set    bool
	made   time.Time
	newest *atomic.Int64
	until  time.Time // when it was replaced or removed
}

// registration returns what the loop says of the entry when it registers the plan. If the process has told Redis of another plan of the entry before, this
// one was set at run time.
func (e *ticking) registration(clock *reckoning) store.Registration {
	r := store.Registration{Plan: e.plan, Born: e.born}
	if newest := e.newest.Load(); e.born.IsZero() && e.set && newest > 0 {
		r.Set, r.Born = true, clock.now(e.made)
		if after := time.UnixMicro(newest + 1); r.Born.Before(after) { // the reckoning may be a little behind
			r.Born = after
		}
	}
	return r
}

// put adds an entry. The caller holds the mutex.
func (c *crontab) put(e *entry, late func()) {
	if len(c.entries) == 0 && !c.running {
		c.since = time.Now()
	}
	if f, ok := c.former[e.place()]; ok {
		delete(c.former, e.place())
		e.newest, e.set = f.newest, true
		if f.plan == e.plan {
			e.set, e.made = f.set, f.made
		}
	}
	c.last++
	e.number = c.last
	c.names[e.name] = e
	c.entries = append(c.entries, e)
	if !c.ran && c.alarm == nil {
		c.alarm = time.AfterFunc(runPatience, late)
	}
}

// drop removes an entry. The loop that has it finds out. The caller holds the mutex.
func (c *crontab) drop(e *entry) {
	e.gone.Store(true)
	delete(c.names, e.name)
	c.former[e.place()] = former{e.plan, e.set, e.made, e.newest, time.Now()}
	i, _ := slices.BinarySearchFunc(c.entries, e.number, func(e *entry, n int) int { return cmp.Compare(e.number, n) })
	c.entries = slices.Delete(slices.Clone(c.entries), i, i+1)
	c.drops++
}

// signal has the runner look for changes.
func (c *crontab) signal() {
	select {
	case c.added <- struct{}{}:
	default:
	}
}

// after returns the entries with a number above n, the sources from number m on, and how many entries were removed so far.
func (c *crontab) after(n, m int) (entries []*entry, sources []*source, drops int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, found := slices.BinarySearchFunc(c.entries, n, func(e *entry, n int) int { return cmp.Compare(e.number, n) })
	if found {
		i++
	}
	return slices.Clone(c.entries[i:]), slices.Clone(c.sources[m:]), c.drops
}

// same reports whether o, of the same name, is the same entry. Functions can't be compared: an entry with ArgsAt is the same as another with it.
func (e *entry) same(o *entry) bool {
	if e.job.Payload == nil && !reflect.DeepEqual(e.args, o.args) { // a codec encodes them for each tick
		return false
	}
	return e.plan == o.plan && e.template.Equal(&o.template) && e.job.Queue == o.job.Queue && e.mode == o.mode && (e.argsAt == nil) == (o.argsAt == nil)
}

// withoutGone returns the entries that were not removed.
func withoutGone(list []*ticking) []*ticking {
	return slices.DeleteFunc(slices.Clone(list), func(e *ticking) bool { return e.gone.Load() })
}

// purge drops what the loop has of entries that were removed. Those that are part of a call are dropped with its outcome.
func (l *loop) purge() {
	l.fresh, l.all, l.due = withoutGone(l.fresh), withoutGone(l.all), withoutGone(l.due)
	for _, e := range l.agenda.take() {
		if e.gone.Load() {
			l.giveUp(e, nil)
			continue
		}
		l.agenda.push(e)
	}
	has := make(map[string]bool, len(l.all)) // digests of descriptions
	for _, e := range l.all {
		has[e.notice.Digest()] = true
	}
	n := &l.notices
	for _, list := range []*[]store.Notice{&n.all, &n.fresh, &n.rest} {
		*list = slices.DeleteFunc(slices.Clone(*list), func(n store.Notice) bool { return !has[n.Digest()] })
	}
}
