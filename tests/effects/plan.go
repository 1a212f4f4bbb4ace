package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// An increment is what a process is asked to do.
type increment struct {
	ID      string
	Guarded bool
	Born    time.Time     // when it was first asked for
	Work    time.Duration // the moment that each of its steps takes
	Slow    phase         // the step that takes longer, since a fault waits there; "" for none
}

// A phase is a step of an increment that a process reports. A fault waits for one.
type phase string

const (
	asked phase = "asked" // about to ask for the lock
	held  phase = "held"  // has the lock, and has not read
	read  phase = "read"  // has read the counter, and has not written
	wrote phase = "wrote" // the write is committed, and the lock not released
	done  phase = "done"  // the acknowledgement
	retry phase = "retry" // it failed, and begins again
)

// A fault happens to the process that reports a phase of an increment.
type fault struct {
	kill    bool // else it is stopped, until others have overtaken it
	at      phase
	guarded bool // which of the two counters the increment is of
	race    bool // the stop ends already when the next holder of the lock has got it, and has not entered
}

// faults are the kinds. A plan has as many of each, or one more.
var faults = []fault{
	{at: read},                             // the twin's write comes late, and undoes those of others
	{at: held, guarded: true},              // superseded before it enters: the guard must refuse it
	{kill: true, at: wrote, guarded: true}, // nobody hears of the commit: another process tries again
	{at: wrote, guarded: true},             // the lock is lost after the commit
	{at: read, guarded: true},              // an open transaction, which the database ends
	{kill: true, at: read, guarded: true},  // an open transaction, which ends with its connection
	{at: asked, guarded: true},             // a waiter in the queue
	{kill: true, at: read},
	{kill: true, at: asked, guarded: true},
	{at: read},
	{kill: true, at: held, guarded: true},
	{at: held, guarded: true, race: true}, // two holders that have not entered: each must read what the other wrote
}

const (
	// usual is how long the steps of an increment take.
	usual = 2 * time.Millisecond
	// slower is how long those of the next holders may take where a fault is a race.
	slower = 30 * time.Millisecond
	// aimed is how long a step takes where a fault waits: long enough to be hit on a busy machine.
	aimed = 200 * time.Millisecond
)

// A plan is what the processes are asked to do, in this order, and the faults.
type plan struct {
	increments []increment
	faults     map[string]fault // by the increment's ID
}

// makePlan spreads the faults evenly over the increments. Guarded and unguarded ones alternate.
func makePlan(s size, seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := plan{faults: map[string]fault{}}
	for i := range s.increments {
		for _, guarded := range []bool{true, false} {
			p.increments = append(p.increments, increment{ID: incrementID(i, guarded), Guarded: guarded, Work: usual})
		}
	}
	kinds := s.kinds
	if kinds == nil {
		kinds = faults
	}
	order := r.Perm(s.faults)
	// The last increments have no faults: a stop lasts until others have gone on.
	stripe := (s.increments - s.increments/10) / max(s.faults, 1)
	for i, n := range order {
		f := kinds[n%len(kinds)]
		at := i*stripe + r.IntN(max(stripe, 1))
		inc := &p.increments[2*at]
		if !f.guarded {
			inc = &p.increments[2*at+1]
		}
		inc.Slow = f.at
		if f.race {
			for next := max(2*(at-processes), 0); next < min(2*(at+processes), len(p.increments)); next += 2 {
				p.increments[next].Work = slower
			}
		}
		p.faults[inc.ID] = f
	}
	return p
}

func incrementID(i int, guarded bool) string {
	if guarded {
		return fmt.Sprintf("g%d", i)
	}
	return fmt.Sprintf("u%d", i)
}
