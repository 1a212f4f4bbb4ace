package worker

import "sync"

// A bound is how many handlers of a worker run at once, over all its queues. A claim takes room for as many jobs as it
// asks for, and gives back what it didn't get. So no job is claimed that would have to wait for room.
//
// Queues that find no room wait in a line. Each is served in turn, by an equal share of the room that there is. A queue's mu may be held
// when the bound's is locked, never the other way round.
type bound struct {
	most int

	mu   sync.Mutex
	room int         // what nobody has taken
	line []*dispatch // those of queues that wait for room, each once
}

func newBound(most int) *bound {
	if most == 0 {
		return nil
	}
	return &bound{most: most, room: most}
}

// put gives room back. The caller calls serve when it has unlocked its queue.
func (b *bound) put(n int) {
	b.mu.Lock()
	b.room += n
	b.mu.Unlock()
}

// take takes room for up to n jobs of a queue. If there is none, or if others wait, it returns 0, and puts the queue into the
// line if wait says so. The caller calls serve when it has unlocked its queue. d.mu is held.
func (b *bound) take(d *dispatch, n int, wait bool) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n == 0 {
		return 0
	}
	if b.room > 0 && len(b.line) == 0 {
		n = min(n, b.room)
		b.room -= n
		return n
	}
	if wait && !d.inLine {
		d.inLine = true
		b.line = append(b.line, d)
	}
	return 0
}

// free returns the room that nobody has taken.
func (b *bound) free() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.room
}

// serve grants what room there is to the queues in the line. One that can't claim now loses its place: it comes back when its call
// has ended. No queue's mu is held.
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

// first takes the first queue out of the line, and room for it. It returns nil if nobody waits or there is none.
func (b *bound) first() (*dispatch, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	waiting := len(b.line)
	if b.room == 0 || waiting == 0 {
		return nil, 0
	}
	d := b.line[0]
	b.line = append(b.line[:0], b.line[1:]...)
	n := (b.room + waiting - 1) / waiting
	b.room -= n
	return d, n
}
