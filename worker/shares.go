package worker

import "math"

// Of betterShare + 1 starts, lower ranks get one while a higher rank has jobs.
const betterShare = 19

// enoughPasses is when passes begin at 0 again, so that they stay exact.
const enoughPasses = 1 << 20

// rounded is the part of a job that may come from rounding. The smallest part that a queue has of one free place is larger, even beside thousands of
// queues with the largest weight.
const rounded = 1e-9

// Shares say how the queues of a bound share its room, by rank and weight. They know no queues, no clock and no lock: the bound guards
// them.
//
// It is stride scheduling, with a virtual time as in start-time fair queuing. Each job that a queue gets moves its pass on by its stride.
// The queue whose pass is the lowest is the next. Jobs that a queue has asked for count as if it got them, until it is known. Strides
// follow from the queues that want room: the highest rank among them has 19 of 20 starts, and all lower ones have one. Both are divided
// by weight. A queue that wants no room collects nothing meanwhile.
//
// Waldspurger and Weihl, "Stride Scheduling", 1995; Goyal, Vin and Cheng, "Start-time Fair Queuing", 1996.
type shares struct {
	all []*share
	now float64 // the virtual time: the pass at which the last job was given away
}

// A share is that of one queue.
type share struct {
	rank, weight int

	pass  float64 // by the jobs that the queue got
	asked int     // room that it has for jobs that it may get
	wants bool    // it may have jobs, and a slot is free
	slow  bool    // it hasn't come for its room for so long that others get it; it comes back with its next call
	came  bool    // it has come since the bound last looked who is slow
}

// add adds a queue.
func (s *shares) add(rank, weight int) *share {
	q := &share{rank: max(rank, 1), weight: max(weight, 1)}
	s.all = append(s.all, q)
	return q
}

func (q *share) competes() bool { return q.wants && !q.slow }

// want notes whether a queue wants room.
func (s *shares) want(q *share, wants bool) {
	if wants && !q.competes() {
		s.enter(q)
	}
	q.wants, q.slow, q.came = wants, false, true
}

// come notes that a queue has come for its room.
func (s *shares) come(q *share) {
	q.came = true
	if q.slow || !q.wants {
		s.enter(q)
		q.slow = false
	}
}

// enter has a queue begin where the others are, with nothing collected.
func (s *shares) enter(q *share) {
	if !s.others(q) {
		for _, o := range s.all {
			o.pass = 0
		}
		s.now = 0
		return
	}
	q.pass = max(q.pass, s.now)
}

// others reports whether another queue wants room.
func (s *shares) others(q *share) bool {
	for _, o := range s.all {
		if o != q && o.competes() {
			return true
		}
	}
	return false
}

// A level has what the strides of all queues follow from.
type level struct{ rank, high, low int }

// level returns the highest rank among the queues that want room and q, and the sums of the weights of this rank and of those below.
func (s *shares) level(q *share) (l level) {
	for _, o := range s.all {
		switch {
		case o != q && !o.competes():
		case o.rank > l.rank:
			l.rank, l.high, l.low = o.rank, o.weight, l.low+l.high
		case o.rank == l.rank:
			l.high += o.weight
		default:
			l.low += o.weight
		}
	}
	return l
}

// stride returns by how much a job moves the pass of a queue on.
func (l level) stride(q *share) float64 {
	if q.rank >= l.rank {
		return float64(l.high) / float64(q.weight*betterShare)
	}
	return float64(l.low) / float64(q.weight)
}

// key returns what a queue's pass will be when it has got what it asked for.
func (l level) key(q *share) float64 { return q.pass + float64(q.asked)*l.stride(q) }

// portion returns how much of the free room a queue may take now. The rest is for others that want it.
func (s *shares) portion(q *share, room int) int {
	if room == 0 {
		return 0
	}
	l := s.level(q)
	// The pass that the queues would get to if they filled the room. Queues that are there already get nothing of it.
	at := math.Inf(1)
	for dropped := true; dropped; {
		dropped = false
		sum, rate := float64(room), 0.0
		for _, o := range s.all {
			if key := l.key(o); (o == q || o.competes()) && key < at {
				sum += key / l.stride(o)
				rate += 1 / l.stride(o)
			}
		}
		next := sum / rate
		for _, o := range s.all {
			if key := l.key(o); (o == q || o.competes()) && key < at && key >= next {
				dropped = true
			}
		}
		at = next
	}
	return max(0, min(room, int(math.Ceil((at-l.key(q))/l.stride(q)-rounded))))
}

// before reports whether a queue comes before another one.
func (s *shares) before(q, other *share) bool {
	l := s.level(q)
	a, b := l.key(q), l.key(other)
	return a < b || a == b && q.rank > other.rank
}

// ask notes that a queue has room for n jobs that it may get.
func (s *shares) ask(q *share, n int) {
	s.now = max(s.now, s.level(q).key(q))
	q.asked += n
	q.came = true
}

// got notes how many jobs a queue got of those that it asked for.
func (s *shares) got(q *share, asked, n int) {
	q.asked -= asked
	q.pass += float64(n) * s.level(q).stride(q)
	if s.now > enoughPasses {
		for _, o := range s.all {
			o.pass = max(0, o.pass-s.now)
		}
		s.now = 0
	}
}

// passOver takes for slow the queues that haven't come since its last call. Those that wait are here.
func (s *shares) passOver(waits func(*share) bool) {
	for _, q := range s.all {
		q.slow = q.slow || q.competes() && !q.came && !waits(q)
		q.came = false
	}
}
