package web

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// mostStats is of how many queues the statistics are read in one look: those with the most jobs.
const mostStats = 200

// A state is what one look saw of all queues.
type state struct {
	at       time.Time // by the clock of Redis, or by that of this process if no queue has statistics
	queues   []inspect.Queue
	stats    map[string]inspect.Stats // of each queue that was looked at
	workers  []inspect.Worker
	entries  []inspect.Entry
	outboxes []inspect.Outbox
	began    time.Time // when the look began, by the clock of this process
	took     time.Duration
	clock    bool     // at is by the clock of Redis
	missing  []string // what could not be read, in words
	why      []error  // of each of missing
}

// readState returns the state of all queues. If Redis doesn't answer, it returns the error, with the last state or an empty one.
func (p *pages) readState(ctx context.Context) (*state, error) {
	s, err := read(ctx, p.looks, "state", lookTTL, func(ctx context.Context) (*state, error) {
		s, err := p.look(ctx)
		if err == nil {
			p.last.set(s)
		}
		return s, err
	})
	if err != nil {
		return cmp.Or(p.last.get(), &state{}), err
	}
	return s, nil
}

// A keep has the last state that was read.
type keep struct {
	mu sync.Mutex
	s  *state
}

func (k *keep) set(s *state) { k.mu.Lock(); defer k.mu.Unlock(); k.s = s }

func (k *keep) get() *state { k.mu.Lock(); defer k.mu.Unlock(); return k.s }

// look reads the state of all queues. The error is that of the list of queues, if there is none. What else can't be read is missing.
func (p *pages) look(ctx context.Context) (*state, error) {
	began := time.Now()
	queues, err := p.ins.Queues(ctx)
	if err != nil && !errors.Is(err, inspect.ErrPartial) {
		return nil, err
	}
	s := &state{began: began, queues: queues, stats: make(map[string]inspect.Stats)}
	s.miss("some queues", err)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, part := range []struct {
		name string
		read func() error
	}{
		{"workers", func() (err error) { s.workers, err = p.ins.Workers(ctx); return err }},
		{"cron entries", func() (err error) { s.entries, err = p.ins.Entries(ctx); return err }},
		{"outboxes", func() (err error) { s.outboxes, err = p.ins.Outboxes(ctx); return err }},
	} {
		wg.Go(func() {
			err := part.read()
			mu.Lock()
			defer mu.Unlock()
			s.miss(part.name, err)
		})
	}
	names := make(chan string)
	for range 4 {
		wg.Go(func() {
			for name := range names {
				stats, err := p.ins.Stats(ctx, name, inspect.ByMinute)
				mu.Lock()
				if !stats.At.IsZero() {
					s.stats[name] = stats
				}
				if !errors.Is(err, inspect.ErrNoQueue) { // it was removed meanwhile
					s.miss("statistics of "+name, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, q := range busiest(queues) {
		names <- q.Name
	}
	close(names)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err // what is missing is not known then
	}
	for _, stats := range s.stats {
		if stats.At.After(s.at) {
			s.at, s.clock = stats.At, true
		}
	}
	s.took = time.Since(began)
	if s.at.IsZero() {
		s.at = time.Now()
	}
	return s, nil
}

// busiest returns the queues whose statistics are read.
func busiest(queues []inspect.Queue) []inspect.Queue {
	if len(queues) <= mostStats {
		return queues
	}
	queues = slices.Clone(queues)
	slices.SortStableFunc(queues, func(a, b inspect.Queue) int { return cmp.Compare(b.Length()+b.Dead, a.Length()+a.Dead) })
	return queues[:mostStats]
}

// miss notes what could not be read.
func (s *state) miss(what string, err error) {
	if err != nil {
		s.missing, s.why = append(s.missing, what), append(s.why, err)
	}
}

// within returns the part of the state that a user may see.
func (s *state) within(scope Scope) *state {
	if scope.All {
		return s
	}
	part := &state{at: s.at, stats: make(map[string]inspect.Stats)}
	for _, q := range s.queues {
		if !scope.sees(q.Name) {
			continue
		}
		if !scope.sees(q.CopyDead) {
			q.CopyDead = ""
		}
		part.queues = append(part.queues, q)
		if stats, ok := s.stats[q.Name]; ok {
			part.stats[q.Name] = stats
		}
	}
	for _, w := range s.workers {
		w.Sessions = slices.DeleteFunc(slices.Clone(w.Sessions), func(x inspect.Session) bool { return !scope.sees(x.Queue) })
		w.Running = slices.DeleteFunc(slices.Clone(w.Running), func(x inspect.RunningJob) bool { return !scope.sees(x.Queue) })
		if len(w.Sessions) > 0 {
			part.workers = append(part.workers, w)
		}
	}
	part.entries = slices.DeleteFunc(slices.Clone(s.entries), func(e inspect.Entry) bool { return !scope.sees(e.Queue) })
	part.outboxes = slices.DeleteFunc(slices.Clone(s.outboxes), func(o inspect.Outbox) bool { return !scope.sees(o.Queue) })
	if len(s.missing) > 0 {
		part.miss("something", errors.New("who runs Signalbox can see what"))
	}
	return part
}

// of returns a queue of the state.
func (s *state) of(name string) (inspect.Queue, bool) {
	i := slices.IndexFunc(s.queues, func(q inspect.Queue) bool { return q.Name == name })
	if i < 0 {
		return inspect.Queue{}, false
	}
	return s.queues[i], true
}
