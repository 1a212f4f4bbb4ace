package worker

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A divider gives room to queues that all have jobs, one at a time.
type divider struct {
	shares
	got []int
}

// newDivider returns one of queues with ranks and weights, in pairs. All want room.
func newDivider(of ...[2]int) *divider {
	d := &divider{got: make([]int, len(of))}
	for _, o := range of {
		d.want(d.add(o[0], o[1]), true)
	}
	return d
}

// next returns which of the queues that want room is the next, and gives it one job.
func (d *divider) next() int {
	next := -1
	for i, q := range d.all {
		if q.competes() && (next < 0 || d.before(q, d.all[next])) {
			next = i
		}
	}
	q := d.all[next]
	if d.portion(q, 1) != 1 {
		panic("the next queue may take nothing")
	}
	d.ask(q, 1)
	d.shares.got(q, 1, 1)
	d.got[next]++
	return next
}

// give gives n jobs away and returns how many of them each queue got.
func (d *divider) give(n int) []int {
	clear(d.got)
	for range n {
		d.next()
	}
	return slices.Clone(d.got)
}

// near reports whether no number differs by more than one.
func near(got, want []int) bool {
	for i, n := range got {
		if n < want[i]-1 || n > want[i]+1 {
			return false
		}
	}
	return len(got) == len(want)
}

// Of starts each queue gets its share, in any stretch of them.
func TestShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		queues [][2]int
		of     int
		want   []int
	}{
		"equal":                      {[][2]int{{1, 1}, {0, 0}, {1, 1}}, 30, []int{10, 10, 10}},
		"weights":                    {[][2]int{{1, 6}, {1, 3}, {1, 1}}, 50, []int{30, 15, 5}},
		"far apart":                  {[][2]int{{1, 1000}, {1, 1}}, 2002, []int{2000, 2}},
		"ranks":                      {[][2]int{{1, 1}, {2, 1}}, 100, []int{5, 95}},
		"three ranks":                {[][2]int{{1, 1}, {9, 1}, {5, 1}}, 400, []int{10, 380, 10}},
		"weights in the first rank":  {[][2]int{{3, 3}, {3, 1}, {1, 1}}, 80, []int{57, 19, 4}},
		"weights in the other ranks": {[][2]int{{3, 1}, {2, 3}, {1, 1}}, 80, []int{76, 3, 1}},
		"a rank of all":              {[][2]int{{7, 1}, {7, 3}}, 40, []int{10, 30}},
	} {
		d := newDivider(c.queues...)
		for stretch := range 100 {
			if got := d.give(c.of); !near(got, c.want) {
				t.Errorf("%s, stretch %d: %v, want %v", name, stretch, got, c.want)
				break
			}
		}
	}
}

// A queue that wanted nothing collects nothing. When it wants room it gets its share from then on.
func TestSharesGiveNoCredit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ first, second [2]int }{
		"weights": {[2]int{1, 1}, [2]int{1, 1}}, "ranks": {[2]int{1, 1}, [2]int{2, 1}},
	} {
		d := newDivider(c.first, c.second)
		want := d.give(20)
		d.want(d.all[1], false)
		if got := d.give(1000); got[0] != 1000 {
			t.Errorf("%s: %v, want all for the only one that wants room", name, got)
		}
		d.want(d.all[1], true)
		if got := d.give(20); !near(got, want) {
			t.Errorf("%s: %v after a time with nothing to do, want %v", name, got, want)
		}
		d.want(d.all[0], false)
		d.give(1000)
		d.want(d.all[0], true)
		if got := d.give(20); !near(got, want) {
			t.Errorf("%s: %v after the other's time with nothing to do, want %v", name, got, want)
		}
		d.want(d.all[0], false)
		d.want(d.all[1], false)
		d.want(d.all[1], true)
		d.give(1000)
		d.want(d.all[1], false)
		d.want(d.all[0], true)
		d.want(d.all[1], true)
		if got := d.give(20); !near(got, want) {
			t.Errorf("%s: %v after nobody wanted room, want %v", name, got, want)
		}
	}
}

// A queue is charged for the jobs that it got, not for those that it asked for.
func TestSharesCountWhatIsGot(t *testing.T) {
	t.Parallel()
	d := newDivider([2]int{1, 1}, [2]int{1, 1})
	q := d.all[0]
	for range 100 {
		n := d.portion(q, 10)
		d.ask(q, n)
		d.shares.got(q, n, 0)
	}
	if got := d.give(20); !near(got, []int{10, 10}) {
		t.Errorf("%v, want 10 and 10", got)
	}
}

// Claims ask for many jobs at a time. Each queue may ask for its part of the room, and what others have asked for counts.
func TestSharesOfABatch(t *testing.T) {
	t.Parallel()
	d := newDivider([2]int{1, 9}, [2]int{1, 1})
	a, b := d.all[0], d.all[1]
	if n, m := d.portion(a, 100), d.portion(b, 100); n != 90 || m != 10 {
		t.Fatalf("they may ask for %d and %d of 100, want 90 and 10", n, m)
	}
	d.ask(a, 90)
	if n, m := d.portion(a, 10), d.portion(b, 10); n != 0 || m != 10 {
		t.Errorf("then they may ask for %d and %d of 10, want 0 and 10", n, m)
	}
	d.shares.got(a, 90, 0)
	d.want(a, false)
	if m := d.portion(b, 100); m != 100 {
		t.Errorf("the only one that wants room may ask for %d, want 100", m)
	}
}

// However small its part is: a queue that comes before all others may take what there is.
func TestSharesOfManyQueues(t *testing.T) {
	t.Parallel()
	var d divider
	small := d.add(1, 1)
	for range 1000 {
		d.add(1, 1000)
	}
	high := d.add(2, 1)
	for _, q := range d.all {
		d.want(q, true)
	}
	for _, q := range d.all[1:] {
		d.ask(q, 1) // they are ahead of it by one job
		d.shares.got(q, 1, 1)
	}
	d.ask(high, 1000)
	if n := d.portion(small, 1); n != 1 {
		t.Errorf("it may ask for %d, want 1", n)
	}
	same := newDivider([2]int{1, 1}, [2]int{1, 1000}, [2]int{1, 1000})
	for range 2000 {
		same.add(1, 1000)
	}
	for _, q := range same.all {
		same.want(q, true)
	}
	if n := same.portion(same.all[0], 1); n != 1 {
		t.Errorf("with equal passes it may ask for %d, want 1", n)
	}
}

// A queue that takes room when its turn comes in the line is here, as one that comes for it.
func TestSharesKnowWhoIsServed(t *testing.T) {
	t.Parallel()
	d := newDivider([2]int{1, 1}, [2]int{1, 1})
	nobody := func(*share) bool { return false }
	d.passOver(nobody) // they came
	d.ask(d.all[0], 1)
	d.passOver(nobody)
	if d.all[0].slow || !d.all[1].slow {
		t.Errorf("slow: %v and %v, want the second only", d.all[0].slow, d.all[1].slow)
	}
}

// A queue that doesn't come for its room is passed over, until it comes. It gets nothing for that time.
func TestSharesPassOverASlowQueue(t *testing.T) {
	t.Parallel()
	d := newDivider([2]int{2, 1}, [2]int{1, 1})
	slow, other := d.all[0], d.all[1]
	here := func(q *share) bool { return q == other }
	d.give(20)
	d.come(slow)
	if d.passOver(here); slow.slow {
		t.Fatal("it has just come")
	}
	if d.passOver(here); !slow.slow || other.slow {
		t.Fatalf("slow: %v and %v, want the first only", slow.slow, other.slow)
	}
	if n := d.portion(other, 10); n != 10 {
		t.Errorf("the other one may ask for %d, want all 10", n)
	}
	d.give(1000)
	d.come(slow)
	if got := d.give(20); !near(got, []int{19, 1}) {
		t.Errorf("%v when it has come, want 19 and 1", got)
	}
}

// Passes stay exact, however many jobs there were.
func TestSharesOfManyStarts(t *testing.T) {
	t.Parallel()
	d := newDivider([2]int{1, 1000}, [2]int{1, 1}, [2]int{1, 999})
	d.now = enoughPasses
	for _, q := range d.all {
		q.pass = enoughPasses + 0.5
	}
	if got := d.give(200_000); !near(got, []int{100_000, 100, 99_900}) || d.now > enoughPasses/2 {
		t.Errorf("%v at %v, want 100000, 100 and 99900", got, d.now)
	}
}

// TestSharesWalk: queues come and go, and claims get fewer jobs than they ask for. No room is given away twice, somebody may always take
// room, and at the end all get their shares.
func TestSharesWalk(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for walk := range 100 {
		var d divider
		for range 1 + r.IntN(6) {
			d.add(1+r.IntN(3), 1+r.IntN(20))
		}
		d.divide(t, r, seed, walk)
		for _, q := range d.all {
			d.want(q, true)
		}
		d.got = make([]int, len(d.all))
		l := d.level(d.all[0])
		per := 0.0
		for _, q := range d.all {
			per += 1 / l.stride(q)
		}
		// What one is ahead is at most all room, and by the share of the smallest one that takes as many starts. Then they are even.
		for n := 0; d.uneven(l); n++ {
			if n > 10_000 {
				t.Fatalf("seed %d, walk %d: one is still ahead", seed, walk)
			}
			d.give(100)
		}
		const starts = 4_000
		got := d.give(starts)
		few := float64(len(d.all)) // each of the others may be one start ahead
		for i, q := range d.all {
			if want := starts / l.stride(q) / per; float64(got[i]) < want-few || float64(got[i]) > want+few {
				t.Errorf("seed %d, walk %d: queue %d has %d of %d starts, want %.1f", seed, walk, i, got[i], starts, want)
			}
		}
	}
}

// uneven reports whether one queue is ahead of another one by more than a start.
func (s *shares) uneven(l level) bool {
	low, high := math.Inf(1), math.Inf(-1)
	for _, q := range s.all {
		low, high = min(low, l.key(q)), max(high, l.key(q)-l.stride(q))
	}
	return high > low
}

// divide lets queues do random things.
func (s *shares) divide(t *testing.T, r *rand.Rand, seed uint64, walk int) {
	room := 30
	for range 500 {
		q := s.all[r.IntN(len(s.all))]
		switch r.IntN(4) {
		case 0:
			s.want(q, r.IntN(3) > 0)
		case 1:
			s.come(q)
			if n := s.portion(q, room); n < 0 || n > room {
				t.Fatalf("seed %d, walk %d: it may ask for %d of %d", seed, walk, n, room)
			} else if q.wants {
				s.ask(q, n)
				room -= n
			}
		case 2:
			if n := q.asked; n > 0 {
				s.got(q, n, r.IntN(n+1))
				room += n
			}
		case 3:
			s.passOver(func(*share) bool { return r.IntN(2) == 0 })
		}
		most, want := 0, false
		for _, q := range s.all {
			if q.competes() {
				most, want = max(most, s.portion(q, room)), true
			}
		}
		if want && room > 0 && most == 0 {
			t.Fatalf("seed %d, walk %d: nobody may take the room", seed, walk)
		}
	}
	for _, q := range s.all {
		s.got(q, q.asked, 0)
	}
}
