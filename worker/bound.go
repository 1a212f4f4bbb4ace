package worker

import (
	"slices"
	"sync"
	"time"
)

// A bound limits how many handlers of a worker run at once, over all its queues. The room is the number of handlers that may still
// start. A claim takes room for as many jobs as it asks for. It gives back the room for jobs that it didn't get. So a claimed job
// never waits for room.
//
// A queue that finds no room waits in the line. The queues in the line are served in order, each with an equal share of the room. If
// queues have ranks or weights, their shares decide who is served and with how much. Then room may be held for a queue whose call is
// under way, at most for twice holdRoom.
// Lock order: a goroutine that holds a queue's mu may lock the bound's, never the other way round.
type bound struct {
	most int

	mu   sync.Mutex
	room int // room that nobody has taken
	left int // handlers that go on without room: they are stuck, and others have their slots
	kept map[*dispatch]keep
	line []*dispatch // dispatches of the queues that wait for room, each at most once

	shares *shares     // nil: no queue has a rank or a weight
	holds  bool        // the timer is set
	timer  *time.Timer // looks for queues for which room is held and that don't come; nil: there was none yet
}

// holdRoom is how long room is held for a queue that doesn't come for it, until others get it. It may be twice as long.
var holdRoom = 100 * time.Millisecond // replaced by tests only

// A keep has the stuck handlers of a queue that keep their room.
type keep struct {
	handlers int
	last     time.Time // when the last of their contexts ended
}

func newBound(most int) *bound {
	if most == 0 {
		return nil
	}
	return &bound{most: most, room: most, kept: make(map[*dispatch]keep)}
}

// divide has the queues share the room by rank and weight, if one of them has such.
func (b *bound) divide(queues []*queue, by Queues) {
	if b == nil || !by.shared() {
		return
	}
	b.shares = &shares{}
	for _, q := range queues {
		of := by[q.store.Name()]
		q.dispatch.share = b.shares.add(of.Rank, of.Weight)
	}
}

// leave notes that a handler goes on without room, unless as many as the bound allows to run do so. It reports whether it did.
func (b *bound) leave() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left >= b.most {
		return false
	}
	b.left++
	return true
}

// ended notes that a handler without room has returned.
func (b *bound) ended() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left--
}

// keep notes the stuck handlers of a queue that keep their room. It returns since when those of all queues keep all of it, or zero.
func (b *bound) keep(d *dispatch, k keep) (allKept time.Time) {
	if b == nil {
		return allKept
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.kept, d)
	if k.handlers > 0 {
		b.kept[d] = k
	}
	n := 0
	for _, k := range b.kept {
		n += k.handlers
		allKept = later(allKept, k.last)
	}
	if n < b.most {
		return time.Time{}
	}
	return allKept
}

// put gives room back. The caller calls serve when it has unlocked its queue.
func (b *bound) put(n int) {
	b.mu.Lock()
	b.room += n
	b.mu.Unlock()
}

// take takes room for up to n jobs of a queue. If there is no room, or other queues wait, it returns 0. Then, if wait is true, it
// puts the queue into the line. The caller calls serve when it has unlocked its queue. d.mu is held.
func (b *bound) take(d *dispatch, n int, wait bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n == 0 {
		return 0
	}
	if n = min(n, b.portion(d)); n > 0 {
		b.grant(d, n)
		return n
	}
	if wait && !d.inLine {
		d.inLine = true
		b.line = append(b.line, d)
	}
	return 0
}

// portion returns how much room a queue that isn't in the line may take now. mu is held.
func (b *bound) portion(d *dispatch) int {
	switch {
	case b.shares != nil:
		wants := d.share.wants
		b.shares.come(d.share)
		if !wants && b.shares.others(d.share) {
			return 0 // it asks in passing
		}
		return b.shares.portion(d.share, b.room)
	case len(b.line) > 0:
		return 0
	}
	return b.room
}

// grant gives room to a queue. mu is held.
func (b *bound) grant(d *dispatch, n int) {
	b.room -= n
	if b.shares != nil {
		b.shares.ask(d.share, n)
	}
}

// got notes that a queue with a share got n jobs for so much room, or gave the room back.
func (b *bound) got(d *dispatch, room, n int) {
	b.mu.Lock()
	b.shares.got(d.share, room, n)
	b.mu.Unlock()
}

// want notes whether a queue with a share wants room.
func (b *bound) want(d *dispatch, wants bool) {
	b.mu.Lock()
	b.shares.want(d.share, wants)
	b.mu.Unlock()
}

// free returns the room that nobody has taken.
func (b *bound) free() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.room
}

// serve grants the room that there is to the queues in the line. A queue that can't claim now loses its place. It comes back when
// its call has ended. No queue's mu is held.
func (b *bound) serve() {
	if b == nil {
		return
	}
	for {
		d, n := b.first()
		if d == nil {
			return
		}
		d.mu.Lock()
		if d.grant(n) {
			n = 0
		}
		d.mu.Unlock()
		b.put(n)
	}
}

// first takes the next queue out of the line and takes room for it. It returns nil if the line is empty, or there is no room for those
// in it.
func (b *bound) first() (*dispatch, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := len(b.line)
	if b.room == 0 || waiting == 0 {
		return nil, 0
	}
	i, n := 0, (b.room+waiting-1)/waiting
	if b.shares != nil {
		for j, d := range b.line {
			if b.shares.before(d.share, b.line[i].share) {
				i = j
			}
		}
		if n = b.shares.portion(b.line[i].share, b.room); n == 0 {
			b.hold()
			return nil, 0
		}
	}
	d := b.line[i]
	b.line = slices.Delete(b.line, i, i+1)
	b.grant(d, n)
	return d, n
}

// hold sets the timer: the room is held for queues whose calls are under way, while others wait. mu is held.
func (b *bound) hold() {
	switch {
	case b.holds:
		return
	case b.timer == nil:
		b.timer = time.AfterFunc(holdRoom, b.passOver)
	default:
		b.timer.Reset(holdRoom)
	}
	b.holds = true
}

// passOver gives the room that is held for queues which don't come to those that wait.
func (b *bound) passOver() {
	b.mu.Lock()
	b.holds = false
	b.shares.passOver(func(s *share) bool {
		return slices.ContainsFunc(b.line, func(d *dispatch) bool { return d.share == s })
	})
	b.mu.Unlock()
	b.serve()
}
