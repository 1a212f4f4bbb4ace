package worker

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"
)

// A slot runs one delivery at a time, in its own goroutine. The goroutine starts with the first delivery and ends when the slot is
// closed. It is reused because its stack has already grown to the size that handlers need.
type slot struct {
	now  *delivery      // nil: there is none, or the slot is reserved for one
	work chan *delivery // nil: the goroutine is not started
	left bool           // it is none of the slots any more: its handler doesn't return, and another slot has its place

	goroutine atomic.Uint64 // its goroutine's number, as it stands in a stack; 0: it is not started
}

// Slots hold a queue's deliveries. Their number can change at any time. The queue's mu guards them and is held when methods are called.
// The methods start and close are called without it.
type slots struct {
	run        func(*delivery)
	size       int            // how many slots there should be
	configured int            // how many there should be by Config
	all        []*slot        // all slots; more than size while surplus slots still have a delivery
	unused     []*slot        // the slots without a delivery; the last one is taken first
	left       []*slot        // slots that were left with a delivery; others have their places
	handlers   sync.WaitGroup // counts the slots' goroutines
}

func newSlots(n int, run func(*delivery)) *slots {
	s := &slots{run: run, configured: n}
	s.resize(n)
	return s
}

// free returns how many slots can be taken.
func (s *slots) free() int { return len(s.unused) }

// reserved returns how many slots are taken for jobs that a claim has asked for.
func (s *slots) reserved() (n int) {
	for _, sl := range s.all {
		if sl.now == nil {
			n++
		}
	}
	return n - len(s.unused)
}

// take reserves n slots. At least n must be free.
func (s *slots) take(n int) []*slot {
	if n == 0 {
		return nil
	}
	left := len(s.unused) - n
	taken := append([]*slot(nil), s.unused[left:]...)
	s.unused = s.unused[:left]
	return taken
}

// put frees a slot. If there are more slots than there should be, it closes the slot instead.
func (s *slots) put(sl *slot) {
	sl.now = nil
	if sl.left {
		s.left = slices.DeleteFunc(s.left, func(other *slot) bool { return other == sl })
		return
	}
	if len(s.all) > s.size {
		s.drop(sl)
		return
	}
	s.unused = append(s.unused, sl)
}

// resize changes the number of slots. A surplus slot is removed when it is free.
func (s *slots) resize(n int) {
	s.size = n
	for len(s.all) > n && len(s.unused) > 0 {
		s.drop(s.unused[0]) // the least recently used one
		s.unused = s.unused[1:]
	}
	for len(s.all) < n {
		sl := &slot{}
		s.all, s.unused = append(s.all, sl), append(s.unused, sl)
	}
}

// drop removes a free slot from all, and ends its goroutine.
func (s *slots) drop(sl *slot) {
	s.remove(sl)
	if sl.work != nil {
		close(sl.work)
	}
}

// leave puts a new slot in the place of one whose handler doesn't return. The goroutine of the old one ends with the handler.
func (s *slots) leave(sl *slot) {
	s.remove(sl)
	sl.left = true
	s.left = append(s.left, sl)
	s.resize(s.size)
}

// running returns the deliveries in all slots, also in those that were left.
func (s *slots) running() iter.Seq[*delivery] {
	return func(yield func(*delivery) bool) {
		for _, list := range [...][]*slot{s.all, s.left} {
			for _, sl := range list {
				if sl.now != nil && !yield(sl.now) {
					return
				}
			}
		}
	}
}

// remove removes a slot from all.
func (s *slots) remove(sl *slot) {
	for i, other := range s.all {
		if other == sl {
			last := len(s.all) - 1
			s.all[i], s.all[last] = s.all[last], nil
			s.all = s.all[:last]
			break
		}
	}
}

// start runs a delivery in the slot that was reserved for it. The queue's mu is not held.
func (s *slots) start(d *delivery) {
	sl := d.slot
	if sl.work == nil {
		sl.work = make(chan *delivery, 1)
		s.handlers.Go(func() { s.serve(sl) })
	}
	sl.work <- d
}

// serve runs the deliveries of a slot until the slot is closed.
func (s *slots) serve(sl *slot) {
	sl.goroutine.Store(goroutineID())
	ended := false
	defer func() {
		if !ended && !sl.left { // a handler called runtime.Goexit
			s.handlers.Go(func() { s.serve(sl) })
		}
	}()
	for d := range sl.work {
		s.run(d)
		if sl.left {
			break
		}
	}
	ended = true
}

// close ends the slots' goroutines and waits for them. All slots are free, and none is taken any more.
func (s *slots) close() {
	for _, sl := range s.all {
		if sl.work != nil {
			close(sl.work)
		}
	}
	s.handlers.Wait()
}
