package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// A ledger has what the parent asked for and what was acknowledged. It is outside of the database and of the processes
// that fail. It is safe for concurrent use.
type ledger struct {
	mu     sync.Mutex
	plan   plan
	next   int
	open   map[string]increment // handed out and not acknowledged
	again  []increment          // those of processes that were killed
	acked  map[string]bool      // by ID, guarded or not
	counts map[bool]int         // of the acknowledged ones, by guarded
	all    chan struct{}        // closed when everything is acknowledged
}

func newLedger(p plan) *ledger {
	return &ledger{
		plan: p, open: map[string]increment{}, acked: map[string]bool{}, counts: map[bool]int{}, all: make(chan struct{}),
	}
}

// take returns the next increment to ask a process for. It is false if all were handed out.
func (l *ledger) take() (increment, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var inc increment
	switch {
	case len(l.again) > 0:
		inc, l.again = l.again[0], l.again[1:]
	case l.next < len(l.plan.increments):
		inc = l.plan.increments[l.next]
		inc.Born = time.Now()
		l.next++
	default:
		return increment{}, false
	}
	l.open[inc.ID] = inc
	return inc, true
}

// lose hands an increment out again, with the time when it was first asked for. Nobody knows whether it was had.
func (l *ledger) lose(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if inc, ok := l.open[id]; ok {
		delete(l.open, id)
		inc.Slow = "" // its fault has happened
		l.again = append(l.again, inc)
	}
}

// ack notes an acknowledgement.
func (l *ledger) ack(id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	inc, ok := l.open[id]
	if !ok {
		return fmt.Errorf("increment %s was acknowledged, but nobody was asked for it", id)
	}
	delete(l.open, id)
	l.acked[id] = true
	l.counts[inc.Guarded]++
	if len(l.acked) == len(l.plan.increments) {
		close(l.all)
	}
	return nil
}

// count returns how many increments of a counter were acknowledged.
func (l *ledger) count(guarded bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts[guarded]
}

// waitingFor returns how many increments are open, if none is left to hand out. Else it returns -1.
func (l *ledger) waitingFor() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next < len(l.plan.increments) || len(l.again) > 0 {
		return -1
	}
	return len(l.open)
}

// fault returns the fault that waits for a phase of an increment. Each happens once.
func (l *ledger) fault(id string, at phase) (fault, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f, ok := l.plan.faults[id]
	if !ok || f.at != at {
		return fault{}, false
	}
	delete(l.plan.faults, id)
	return f, true
}

// A verdict is what the ledger says of a counter.
type verdict struct {
	acked   int
	lost    int // acknowledged, and the counter doesn't have it
	doubled int // the counter has it more than once; each time too many counts
}

// judge compares the counter with the ledger. An error means that the run itself is broken.
func (l *ledger) judge(c counter, guarded bool) (verdict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := verdict{acked: l.counts[guarded]}
	if c.N != len(c.IDs) {
		return v, fmt.Errorf("the counter is %d, but has %d IDs", c.N, len(c.IDs))
	}
	asked := map[string]bool{}
	for _, inc := range l.plan.increments[:l.next] {
		if inc.Guarded == guarded {
			asked[inc.ID] = true
		}
	}
	times := map[string]int{}
	var errs []error
	for _, id := range c.IDs {
		if !asked[id] {
			errs = append(errs, fmt.Errorf("the counter has %q, for which nobody was asked", id))
		}
		times[id]++
	}
	for id := range asked {
		switch n := times[id]; {
		case n == 0 && l.acked[id]:
			v.lost++
		case n > 1:
			v.doubled += n - 1
		}
	}
	return v, errors.Join(errs...)
}
