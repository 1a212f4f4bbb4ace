package worker

import (
	"sync"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A dispatch decides when a lane of a queue calls Redis, and how many jobs the call asks for. It doesn't know Redis or sessions: the
// queue reports what happens, and the dispatch wakes a lane when there is a call to make. The queue's mu guards all of it and is held
// when its methods are called.
type dispatch struct {
	mu      *mutex
	changed *sync.Cond // lanes without a call wait here
	slots   *slots
	bound   *bound // the worker's; nil if there is none

	open     bool // there is a session that can claim
	stopping bool // claim no more jobs
	unsent   int  // settlements that are not yet in a call

	// hints counts the hints that there may be work. When a claim gets fewer jobs than it asked for, emptied becomes the value that
	// hints had when that claim began.
	hints, emptied uint64
	probe          bool // make a call even if no slot is free
	calls          int  // calls under way
	summoned       bool // a lane was woken and hasn't looked for a call yet
	granted        int  // room of the bound that the next call may use
	inLine         bool // it waits in the bound's line

	share *share // of the bound's room; nil: its queues have no ranks and no weights
	told  bool   // the bound knows that the queue wants room
}

func newDispatch(mu *mutex, s *slots, b *bound) *dispatch {
	return &dispatch{
		mu: mu, changed: sync.NewCond(mu), slots: s, bound: b,
		hints: 1, // there may be work from the beginning
	}
}

// hint makes a lane look for work. If probe is true, the lane calls Redis even if no slot is free. That call promotes due jobs and
// wakes another worker for them.
func (d *dispatch) hint(probe bool) {
	d.hints++
	d.probe = d.probe || probe
	d.tell()
	d.summon()
}

// opens notes whether there is a session that can claim.
func (d *dispatch) opens(open bool) {
	d.open = open
	d.tell()
}

// probeNow makes a lane call Redis, even if there is no work.
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

// rest is called by a lane that has no call to make. It gives back the room that was granted to the lane. There is such room if the
// session was lost since, or the queue stops.
func (d *dispatch) rest() {
	d.summoned = false
	n := d.granted
	d.granted = 0
	d.ungrant(n)
	d.putRoom(n)
	d.tell()
}

// began notes that a lane makes a call with a number of settlements. claims is true if the call is for the session that claims. If
// there is more to do, began wakes the other lane.
func (d *dispatch) began(settlements int, claims bool) {
	d.calls++
	d.unsent -= settlements
	if claims {
		d.probe = false
	}
	d.summoned = false
	d.summon()
}

// answered notes the result of a claim. more: there is more work than the claim asked for. empty: the claim was for the session that
// claims, and it got all jobs that there were when it began. hints is the value of d.hints at that time.
func (d *dispatch) answered(hints uint64, more, empty bool) {
	switch {
	case more:
		d.hints++
	case empty:
		d.emptied = max(d.emptied, hints)
	}
	d.tell()
}

// callable reports whether a lane should make a call now. While a call is under way, new work is collected for the next one. A
// second call starts only if the work is enough for a quarter of the slots. So nothing waits when there is little to do, and batches
// are large when there is much.
func (d *dispatch) callable() bool {
	if d.probe && d.open {
		return true
	}
	n := d.unsent
	if d.hungry() {
		n = max(n, d.claimable())
	}
	return n > 0 && (d.calls == 0 || n >= (d.widest()+3)/4)
}

// widest returns how many deliveries the queue can have at a time.
func (d *dispatch) widest() int {
	if d.bound != nil {
		return min(d.slots.size, d.bound.most)
	}
	return d.slots.size
}

// hungry reports whether there may be work for a free slot.
func (d *dispatch) hungry() bool {
	return d.hints > d.emptied && d.slots.free() > 0 && d.open && !d.stopping
}

// idle reports whether the queue waits to be woken: its last claim got all jobs that there were.
func (d *dispatch) idle() bool { return d.hints == d.emptied && d.open && !d.stopping }

// claimable returns how many jobs a claim could ask for. If the bound has no room, it is 1 until the queue is in the bound's line, so
// that a lane puts it there. Then it is 0.
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

// reserve takes slots for the jobs of a claim, and room of the bound for them.
func (d *dispatch) reserve() []*slot {
	n := min(d.slots.free(), store.MaxBatch)
	if d.bound != nil {
		taken := d.granted
		if taken == 0 {
			taken = d.bound.take(d, n, d.hungry())
			d.mu.later(d.bound.serve) // queues may have joined the line before this one
		}
		d.granted = 0
		if n = min(n, taken); n < taken {
			d.ungrant(taken - n)
			d.putRoom(taken - n)
		}
	}
	slots := d.slots.take(n)
	d.tell()
	return slots
}

// got notes that a claim for which slots were reserved got n jobs. It frees the other slots.
func (d *dispatch) got(slots []*slot, n int) {
	if d.share != nil {
		d.bound.got(d, len(slots), n)
	}
	d.release(slots[n:]...)
}

// release frees slots, and the room of the bound for their jobs.
func (d *dispatch) release(slots ...*slot) {
	room := 0
	for _, sl := range slots {
		if sl.left { // the room was given back then
			d.bound.ended()
		} else {
			room++
		}
		d.slots.put(sl)
	}
	d.putRoom(room)
	d.tell()
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
	d.ungrant(n)
	d.tell()
	return false
}

// ungrant notes that the queue gives room back with which it has made no claim.
func (d *dispatch) ungrant(n int) {
	if d.share != nil && n > 0 {
		d.bound.got(d, n, 0)
	}
}

// tell tells the bound whether the queue wants room, where its queues have ranks or weights. Room that was held for the queue goes to
// others.
func (d *dispatch) tell() {
	if d.share == nil || d.told == d.hungry() {
		return
	}
	d.told = !d.told
	d.bound.want(d, d.told)
	if !d.told {
		d.mu.later(d.bound.serve)
	}
}

// putRoom gives room back to the bound. When mu is unlocked, the bound serves the queues that wait for room.
func (d *dispatch) putRoom(n int) {
	if d.bound != nil && n > 0 {
		d.bound.put(n)
		d.mu.later(d.bound.serve)
	}
}
