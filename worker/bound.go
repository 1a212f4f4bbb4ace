package worker

import (
	"sync"
	"time"
)

// A bound limits how many handlers of a worker run at once, over all its queues. The room is the number of handlers that may still
// start. A claim takes room for as many jobs as it asks for. It gives back the room for jobs that it didn't get. So a claimed job
// never waits for room.
//
// A queue that finds no room waits in the line. The queues in the line are served in order, each with an equal share of the room.
// Lock order: a goroutine that holds a queue's mu may lock the bound's, never the other way round.
type bound struct {
	most int

	mu   sync.Mutex
	room int // room that nobody has taken
	left int // handlers that go on without room: they are stuck, and others have their slots
	kept map[*dispatch]keep
	line []*dispatch // dispatches of the queues that wait for room, each at most once
}

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

// first takes the first queue out of the line and takes room for it. It returns nil if the line is empty or there is no room.
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
