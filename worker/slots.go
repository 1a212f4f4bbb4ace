package worker

import "sync"

// A slot runs one delivery at a time, in a goroutine that is started with its first delivery and ends when the slot is
// closed: its stack has grown to what the handlers need.
type slot struct {
	now  *delivery      // nil: none, or it is reserved for one
	work chan *delivery // nil: not started
}

// Slots are the places for a queue's deliveries. Their number can change at any time. They are guarded by the queue's mu, but for start
// and close.
type slots struct {
	run      func(*delivery)
	size     int            // how many there should be
	all      []*slot        // those that there are; more than size while some that are to go have a delivery
	unused   []*slot        // those of all with nothing in them; the last one is taken first
	handlers sync.WaitGroup // of the slots' goroutines
}

func newSlots(n int, run func(*delivery)) *slots {
	s := &slots{run: run}
	s.resize(n)
	return s
}

// free returns how many slots can be taken.
func (s *slots) free() int { return len(s.unused) }

// take reserves n slots. There must be as many free ones.
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
	if len(s.all) > s.size {
		s.drop(sl)
		return
	}
	s.unused = append(s.unused, sl)
}

// resize changes the number of slots. Those that are too many go when they are free.
func (s *slots) resize(n int) {
	s.size = n
	for len(s.all) > n && len(s.unused) > 0 {
		s.drop(s.unused[0]) // the one that was used least of late
		s.unused = s.unused[1:]
	}
	for len(s.all) < n {
		sl := &slot{}
		s.all, s.unused = append(s.all, sl), append(s.unused, sl)
	}
}

// drop removes a slot that is free from all.
func (s *slots) drop(sl *slot) {
	for i, other := range s.all {
		if other == sl {
			last := len(s.all) - 1
			s.all[i], s.all[last] = s.all[last], nil
			s.all = s.all[:last]
			break
		}
	}
	if sl.work != nil {
		close(sl.work)
	}
}

// start runs a delivery in its slot, which was taken for it. The queue's mu is not held.
func (s *slots) start(d *delivery) {
	sl := d.slot
	if sl.work == nil {
		sl.work = make(chan *delivery, 1)
		s.handlers.Go(func() { s.serve(sl) })
	}
	sl.work <- d
}

// serve runs the deliveries of one slot until it is closed.
func (s *slots) serve(sl *slot) {
	ended := false
	defer func() {
		if !ended { // by runtime.Goexit
			s.handlers.Go(func() { s.serve(sl) })
		}
	}()
	for d := range sl.work {
		s.run(d)
	}
	ended = true
}

// close ends the slots' goroutines, when all slots are free and no more are taken.
func (s *slots) close() {
	for _, sl := range s.all {
		if sl.work != nil {
			close(sl.work)
		}
	}
	s.handlers.Wait()
}
