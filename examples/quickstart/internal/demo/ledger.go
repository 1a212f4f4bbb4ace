package demo

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A ledger has what the endpoint knows. All of it comes from the requests, and nothing from the
// queue.
type ledger struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	jobs    map[string]*entry
	open    map[string]int     // requests in progress, by worker
	ticks   map[time.Time]bool // in UTC: the times of the heartbeats
	sums    counts
}

// An entry is one job.
type entry struct {
	requests  int
	effects   int
	retried   bool
	recovered bool
}

// counts are the sums of the ledger. They count jobs, unless a comment says otherwise.
type counts struct {
	delivered  int // without heartbeats
	heartbeats int
	refused    int // requests that got a 503
	ticks      int // different times of heartbeats
	doubled    int // heartbeats for a time that had one already
	retried    int
	recovered  int
	duplicated int // effects after the first of each job
}

func newLedger() *ledger {
	return &ledger{
		changed: make(chan struct{}), jobs: make(map[string]*entry),
		open: make(map[string]int), ticks: make(map[time.Time]bool),
	}
}

// begin adds a request. It reports whether it is the job's first.
func (l *ledger) begin(r request) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.jobs[r.id]
	if e == nil {
		e = &entry{}
		l.jobs[r.id] = e
	}
	e.requests++
	l.open[r.worker]++
	l.change()
	return e.requests == 1
}

// end adds the result of a request.
func (l *ledger) end(r request, effect bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[r.worker]--
	l.change()
	if !effect {
		l.sums.refused++
		return
	}
	e := l.jobs[r.id]
	e.effects++
	switch {
	case e.effects > 1:
		l.sums.duplicated++
	case r.tick.IsZero():
		l.sums.delivered++
	default:
		l.sums.heartbeats++
		if l.ticks[r.tick] {
			l.sums.doubled++
		} else {
			l.ticks[r.tick] = true
			l.sums.ticks++
		}
	}
	if r.attempt > 1 && !e.retried {
		e.retried = true
		l.sums.retried++
	}
	if r.crashes > 0 && !e.recovered {
		e.recovered = true
		l.sums.recovered++
	}
}

func (l *ledger) change() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// await waits until cond is true. It checks again after each change.
func (l *ledger) await(ctx context.Context, cond func() bool) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *ledger) counts() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sums
}

// inFlight returns how many requests of a worker are in progress.
func (l *ledger) inFlight(worker string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open[worker]
}

// entry returns the entry of a job.
func (l *ledger) entry(id string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.jobs[id]; e != nil {
		return *e
	}
	return entry{}
}

// missing returns how many of these jobs had no effect.
func (l *ledger) missing(ids []string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, id := range ids {
		if e := l.jobs[id]; e == nil || e.effects == 0 {
			n++
		}
	}
	return n
}

// missedTicks returns the number of seconds without a heartbeat, between the first heartbeat and the
// last.
func (l *ledger) missedTicks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first, last time.Time
	for t := range l.ticks {
		if first.IsZero() || t.Before(first) {
			first = t
		}
		if t.After(last) {
			last = t
		}
	}
	if first.IsZero() {
		return 0
	}
	return int(last.Sub(first)/time.Second) + 1 - len(l.ticks)
}

func (l *ledger) progress(jobs int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("delivered %d of %d, refused %d, retried %d, recovered %d, ticks %d; in flight: worker-1 %d, worker-2 %d",
		l.sums.delivered, jobs, l.sums.refused, l.sums.retried, l.sums.recovered, l.sums.ticks, l.open["worker-1"], l.open["worker-2"])
}
