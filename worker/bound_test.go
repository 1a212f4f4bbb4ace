package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// hungryQueues returns the dispatches of queues that want to claim. Each has 50 slots, and all are under one bound.
func hungryQueues(b *bound, n int) []*dispatch {
	queues := make([]*dispatch, n)
	for i := range queues {
		queues[i] = newDispatch(&mutex{}, newSlots(50, nil), b)
		queues[i].open = true
	}
	return queues
}

// reserve takes slots as a lane does.
func reserve(d *dispatch) []*slot {
	d.mu.Lock()
	slots := d.reserve()
	d.mu.Unlock()
	d.bound.serve()
	return slots
}

func giveBack(d *dispatch, slots ...*slot) {
	d.mu.Lock()
	d.release(slots...)
	d.mu.Unlock()
	d.bound.serve()
}

// Waiting queues share the room that there is, in the order in which they came.
func TestBoundIsShared(t *testing.T) {
	t.Parallel()
	b := newBound(10)
	queues := hungryQueues(b, 4)
	first := reserve(queues[0])
	if len(first) != 10 || b.free() != 0 {
		t.Fatalf("the first claim may ask for %d, want 10", len(first))
	}
	for i, q := range queues[1:] {
		if got := reserve(q); len(got) != 0 || q.callable() {
			t.Fatalf("queue %d may ask for %d", i+1, len(got))
		}
	}
	granted := func() (n []int) {
		for _, q := range queues {
			n = append(n, q.granted)
		}
		return n
	}
	queues[0].mu.Lock()
	queues[0].emptied = queues[0].hints // it takes free room but doesn't wait
	queues[0].release(first[0])
	if got := queues[0].reserve(); len(got) != 0 {
		t.Errorf("a queue may ask for %d jobs before those that wait", len(got))
	}
	queues[0].mu.Unlock()
	b.serve()
	if got := granted(); !slices.Equal(got, []int{0, 1, 0, 0}) {
		t.Errorf("granted %v, want one to the queue that waited first", got)
	}
	giveBack(queues[0], first[1:6]...)
	if got := granted(); !slices.Equal(got, []int{0, 1, 3, 2}) {
		t.Errorf("granted %v, want 3 and 2 to those that still wait", got)
	}
	for i, want := range []int{0, 1, 3, 2} {
		if i > 0 && !queues[i].callable() {
			t.Errorf("queue %d doesn't claim", i)
		}
		if got := reserve(queues[i]); len(got) != want {
			t.Errorf("queue %d may ask for %d, want %d", i, len(got), want)
		}
	}
	if b.free() != 0 {
		t.Errorf("%d are left", b.free())
	}
}

// If a queue can't claim when its turn comes, it loses the turn. The room isn't lost.
func TestBoundSkipsWhoCantClaim(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(q *dispatch){
		"it stops":               func(q *dispatch) { q.stopping = true },
		"its lease is lost":      func(q *dispatch) { q.open = false },
		"its call is under way":  func(q *dispatch) { q.calls = 1 },
		"there is nothing to do": func(q *dispatch) { q.emptied = q.hints },
	} {
		b := newBound(10)
		queues := hungryQueues(b, 3)
		first := reserve(queues[0])
		_, _ = reserve(queues[1]), reserve(queues[2])
		stop(queues[1])
		giveBack(queues[0], first[0])
		if queues[1].granted != 0 || queues[2].granted != 1 || queues[1].inLine || b.free() != 0 {
			t.Errorf("%s: granted %d and %d, and %d are left", name, queues[1].granted, queues[2].granted, b.free())
		}
	}
}

// Room was granted to a queue, and the queue's lease is lost before it claims. The next queue gets the room.
func TestBoundTakesBackWhatIsGranted(t *testing.T) {
	t.Parallel()
	b := newBound(1)
	queues := hungryQueues(b, 3)
	first := reserve(queues[0])
	_, _ = reserve(queues[1]), reserve(queues[2])
	giveBack(queues[0], first...)
	if queues[1].granted != 1 {
		t.Fatal("the second queue is not served")
	}
	queues[1].mu.Lock()
	if queues[1].open = false; queues[1].callable() {
		t.Error("it makes a call")
	}
	queues[1].rest()
	queues[1].mu.Unlock()
	if queues[1].granted != 0 || queues[2].granted != 1 {
		t.Errorf("granted %d and %d, want 0 and 1", queues[1].granted, queues[2].granted)
	}
}

// A queue that is granted more room than it has slots gives the rest back.
func TestBoundTakesBackWhatHasNoSlot(t *testing.T) {
	t.Parallel()
	b := newBound(60)
	queues := hungryQueues(b, 3)
	first, second := reserve(queues[0]), reserve(queues[1])
	if waits := reserve(queues[2]); len(first)+len(second) != 60 || len(waits) != 0 {
		t.Fatalf("the claims may ask for %d, %d and %d", len(first), len(second), len(waits))
	}
	queues[0].mu.Lock()
	queues[0].release(first...)
	giveBack(queues[1], second...)
	queues[0].mu.Unlock()
	if queues[2].granted != 60 {
		t.Fatalf("granted %d", queues[2].granted)
	}
	if got := reserve(queues[2]); len(got) != 50 || b.free() != 10 {
		t.Errorf("it may ask for %d, and %d are left; want 50 and 10", len(got), b.free())
	}
}

// sharedRoom returns a bound whose queues have weights, and their dispatches, which want to claim.
func sharedRoom(most int, weights ...int) (*bound, []*dispatch) {
	b := newBound(most)
	b.shares = &shares{}
	queues := hungryQueues(b, len(weights))
	for i, d := range queues {
		d.share = b.shares.add(1, weights[i])
		d.tell()
	}
	return b, queues
}

// Queues with weights divide free room by them, whoever comes first.
func TestBoundIsSharedByWeight(t *testing.T) {
	t.Parallel()
	b, queues := sharedRoom(40, 1, 3)
	first, second := reserve(queues[0]), reserve(queues[1])
	if len(first) != 10 || len(second) != 30 {
		t.Fatalf("the claims may ask for %d and %d of 40, want 10 and 30", len(first), len(second))
	}
	_, _ = reserve(queues[0]), reserve(queues[1]) // they wait, the first one before the second
	queues[1].got(second, 30)
	queues[0].got(first, 10)
	queues[0].release(first[:4]...)
	b.serve()
	if queues[0].granted != 1 || queues[1].granted != 3 || b.free() != 0 {
		t.Errorf("granted %d and %d of 4, and %d are free; want 1 and 3", queues[0].granted, queues[1].granted, b.free())
	}
}

// The room of a queue that has no jobs goes to the others at once.
func TestBoundSharesWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(d *dispatch){
		"it is empty":        func(d *dispatch) { d.answered(d.hints, false, true) },
		"it stops":           func(d *dispatch) { d.stopping = true; d.rest() },
		"its lease is lost":  func(d *dispatch) { d.opens(false) },
		"its slots are full": func(d *dispatch) { d.slots.take(d.slots.free()); d.rest() },
	} {
		b, queues := sharedRoom(40, 1, 3)
		first := reserve(queues[1])
		queues[1].calls = 1
		if got := reserve(queues[0]); len(got) != 10 {
			t.Fatalf("the claim may ask for %d, want 10", len(got))
		}
		queues[0].reserve() // no more than that: it waits
		if b.free() != 0 || !queues[0].inLine {
			t.Fatalf("%d are free", b.free())
		}
		queues[1].mu.Lock()
		queues[1].got(first, 0)
		queues[1].mu.Unlock()
		if queues[0].granted > 0 || b.free() != 30 {
			t.Fatalf("%s: granted %d, and %d are free; want 30 held", name, queues[0].granted, b.free())
		}
		queues[1].mu.Lock()
		end(queues[1])
		queues[1].mu.Unlock()
		if queues[0].granted != 30 {
			t.Errorf("%s: the other queue is granted %d, want all 30", name, queues[0].granted)
		}
	}
}

// A queue whose call is under way has room held for it, but not for long: Redis may not answer.
func TestBoundHoldsRoomForAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, queues := sharedRoom(40, 1, 3)
		first, second := reserve(queues[0]), reserve(queues[1])
		queues[1].mu.Lock()
		queues[1].began(0, true)
		queues[1].mu.Unlock()
		_ = reserve(queues[0])
		queues[1].mu.Lock()
		queues[1].got(second[:20], 20)
		queues[1].release(second[:20]...)
		queues[1].mu.Unlock()
		if queues[0].granted >= 20 || b.free() == 0 {
			t.Fatalf("granted %d, and %d are free; want room held for the queue whose call is under way", queues[0].granted, b.free())
		}
		_ = reserve(queues[0])
		_ = reserve(queues[0]) // it waits again
		time.Sleep(2 * holdRoom)
		synctest.Wait()
		if b.free() != 0 || queues[0].granted == 0 {
			t.Errorf("%d are free after %v, and the queue that waits is granted %d", b.free(), 2*holdRoom, queues[0].granted)
		}
		giveBack(queues[0], first...)
		time.Sleep(time.Hour)
		if b.holds {
			t.Error("the timer is set, and nobody waits")
		}
	})
}
