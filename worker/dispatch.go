package worker

import (
	"sync"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A dispatch decides when a lane of a queue calls Redis, and for how many jobs the call asks. It knows neither Redis nor
// sessions: the queue reports what happens, and the dispatch wakes a lane when there is a call to make. All of it is guarded
// by the queue's mu. Its methods are called with mu held.
type dispatch struct {
	mu      *mutex
	changed *sync.Cond // lanes without a call wait here
	slots   *slots
	bound   *bound // of the worker; nil: there is none

	open     bool // there is a session to claim under
	stopping bool // claim nothing more
	unsent   int  // settlements that no call has taken yet

	// A hint that there may be work counts one up. A claim that came back with less than it asked for sets emptied to what
	// hints was when it began.
	hints, emptied uint64
	probe          bool // make a call even if no slot is free
	calls          int  // under way
	summoned       bool // a lane was woken and hasn't looked yet
	granted        int  // room of the bound for the next call
	inLine         bool // it is in the bound's line
}

func newDispatch(mu *mutex, s *slots, b *bound) *dispatch {
	return &dispatch{
		mu: mu, changed: sync.NewCond(mu), slots: s, bound: b,
		hints: 1, // there may be work from the beginning
	}
}

// hint makes a lane look for work. With probe it looks even if no slot is free, to promote what is due and wake another worker
// for it.
func (d *dispatch) hint(probe bool) {
	d.hints++
	d.probe = d.probe || probe
	d.summon()
}

// probeNow makes a lane call Redis, though there may be no work.
func (d *dispatch) probeNow() {
	d.probe = true
	d.summon()
}

// summon wakes a lane if there is a call to make.
func (d *dispatch) summon() {
	if !d.summoned && d.callable() {
		d.summoned = true
		d.changed.Signal()
	}
}

// rest is called by a lane that has no call to make. Room that was granted to it goes back: the session was lost meanwhile, or the
// queue stops.
func (d *dispatch) rest() {
	d.summoned = false
	n := d.granted
	d.granted = 0
	d.putRoom(n)
}

// began notes that a lane has a call to make, which takes settlements. claims says that the call is for the session that claims. If there
// is more to do, the other lane is woken.
func (d *dispatch) began(settlements int, claims bool) {
	d.calls++
	d.unsent -= settlements
	if claims {
		d.probe = false
	}
	d.summoned = false
	d.summon()
}

// answered notes what a claim found. more: there is more work than it asked for. empty: it was for the session that claims, and
// got all that there was when it began, and hints was as given.
func (d *dispatch) answered(hints uint64, more, empty bool) {
	switch {
	case more:
		d.hints++
	case empty:
		d.emptied = max(d.emptied, hints)
	}
}

// callable reports whether a lane should make a call now. What comes while a call is under way is collected for the next one. Only
// when a quarter of the slots wait does a second call join it. So nothing waits when there is little to do, and batches are
// large when there is much.
func (d *dispatch) callable() bool {
	if d.probe && d.open {
		return true
	}
	most := d.slots.size
	if d.bound != nil {
		most = min(most, d.bound.most)
	}
	n := d.unsent
	if d.hungry() {
		n = max(n, d.claimable())
	}
	return n > 0 && (d.calls == 0 || n >= (most+3)/4)
}

// hungry reports whether there may be work for a free slot.
func (d *dispatch) hungry() bool {
	return d.hints > d.emptied && d.slots.free() > 0 && d.open && !d.stopping
}

// idle reports whether the queue waits to be woken: nothing was left when it last asked for more than it got.
func (d *dispatch) idle() bool { return d.hints == d.emptied && d.open && !d.stopping }

// claimable returns how many jobs a claim could ask for. Where the bound has no room it is 1, so that a lane puts the queue into
// the bound's line, and then 0.
func (d *dispatch) claimable() int {
	switch {
	case d.bound == nil:
		return d.slots.free()
	case d.granted > 0:
		return min(d.slots.free(), d.granted)
	case d.inLine:
		return 0
	}
	return max(1, min(d.slots.free(), d.bound.free()))
}

// reserve takes slots for the jobs of a claim, and room for them.
func (d *dispatch) reserve() []*slot {
	n := min(d.slots.free(), store.MaxBatch)
	if d.bound != nil {
		taken := d.granted
		if taken == 0 {
			taken = d.bound.take(d, n, d.hungry())
			d.mu.later(d.bound.serve) // others may have come before it
		}
		d.granted = 0
		if n = min(n, taken); n < taken {
			d.putRoom(taken - n)
		}
	}
	return d.slots.take(n)
}

// release frees slots, and the room for their jobs.
func (d *dispatch) release(slots ...*slot) {
	for _, sl := range slots {
		d.slots.put(sl)
	}
	d.putRoom(len(slots))
}

// grant takes room of the bound for the next claim. It returns false and takes nothing if there is no claim to make.
func (d *dispatch) grant(n int) bool {
	d.inLine = false
	d.granted += n
	if d.hungry() && d.callable() {
		d.summon()
		return true
	}
	d.granted -= n
	return false
}

// putRoom gives room back to the bound, which serves those that wait for it when mu is unlocked.
func (d *dispatch) putRoom(n int) {
	if d.bound != nil && n > 0 {
		d.bound.put(n)
		d.mu.later(d.bound.serve)
	}
}
