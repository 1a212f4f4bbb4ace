package worker

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// A slotRig uses slots as a queue does: it starts deliveries in free slots, and each delivery frees its slot.
type slotRig struct {
	*slots
	mu      sync.Mutex
	release chan struct{} // each delivery waits for a value and then ends
	ran     int
}

func newSlotRig(n int) *slotRig {
	r := &slotRig{release: make(chan struct{})}
	r.slots = newSlots(n, func(d *delivery) {
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ran++
			r.put(d.slot)
		}()
		<-r.release
		if d.id == "goexit" {
			runtime.Goexit()
		}
	})
	return r
}

// fill starts a delivery in each free slot. It returns the number of deliveries started.
func (r *slotRig) fill(id string) int {
	r.mu.Lock()
	taken := r.take(r.free())
	for _, sl := range taken {
		sl.now = &delivery{id: id, slot: sl}
	}
	r.mu.Unlock()
	for _, sl := range taken {
		r.start(sl.now)
	}
	return len(taken)
}

// end lets n deliveries end.
func (r *slotRig) end(n int) {
	for range n {
		r.release <- struct{}{}
	}
	synctest.Wait()
}

func (r *slotRig) resizeTo(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resize(n)
}

// The number of slots can rise and fall at any time. Running deliveries continue. A surplus slot is removed when its delivery has ended.
func TestSlotsGrowAndShrink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSlotRig(5)
		running := 0
		want := func(what string, free, all int) {
			t.Helper()
			if r.free() != free || len(r.all) != all {
				t.Errorf("%s: %d of %d are free, want %d of %d", what, r.free(), len(r.all), free, all)
			}
		}
		running += r.fill("")
		want("all are taken", 0, 5)
		r.resizeTo(20)
		want("after growing", 15, 20)
		running += r.fill("")
		r.resizeTo(3)
		want("after shrinking", 0, 20)
		r.end(15)
		running -= 15
		want("15 have ended", 0, 5)
		r.resizeTo(4) // the number rises again while surplus slots still have deliveries
		r.end(3)
		running -= 3
		want("18 have ended", 2, 4)
		r.resizeTo(2)
		want("free ones go at once", 0, 2)
		r.resizeTo(0)
		r.end(running)
		want("none is left", 0, 0)
		if r.fill("") != 0 || r.ran != 20 {
			t.Errorf("%d deliveries ran, want 20", r.ran)
		}
		r.resizeTo(1)
		r.end(r.fill(""))
		want("one again", 1, 1)
		r.close()
	})
}

// A slot continues after a handler has ended its goroutine, even if the slot is a surplus one.
func TestSlotsAfterGoexit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newSlotRig(2)
		for range 3 {
			r.end(r.fill("goexit"))
		}
		r.fill("goexit")
		r.resizeTo(1)
		r.end(2)
		if r.ran != 8 || r.free() != 1 || len(r.all) != 1 {
			t.Errorf("%d deliveries ran, and %d of %d slots are free", r.ran, r.free(), len(r.all))
		}
		r.close() // waits for all goroutines
	})
}

// The most recently used slot is used next. So few goroutines run when there is little to do.
func TestSlotsAreReused(t *testing.T) {
	t.Parallel()
	r := newSlots(3, nil)
	a := r.take(1)[0]
	r.put(a)
	if b := r.take(1)[0]; b != a {
		t.Error("another slot is taken")
	}
}

// A slot whose handler doesn't return is left, and another has its place. Its goroutine ends with the handler.
func TestSlotsAreLeft(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"", "goexit"} {
		synctest.Test(t, func(t *testing.T) {
			r := newSlotRig(2)
			r.fill(how)
			r.mu.Lock()
			r.leave(r.all[0])
			n := 0
			for range r.running() {
				n++
			}
			r.mu.Unlock()
			if n != 2 || r.free() != 1 || len(r.all) != 2 || len(r.left) != 1 {
				t.Errorf("%d run, %d of %d are free, and %d are left", n, r.free(), len(r.all), len(r.left))
			}
			r.fill(how)
			r.end(3)
			if r.ran != 3 || r.free() != 2 || len(r.all) != 2 || len(r.left) != 0 {
				t.Errorf("%d ran, %d of %d are free, and %d are left", r.ran, r.free(), len(r.all), len(r.left))
			}
			r.close() // waits for all goroutines
		})
	}
}

// The room of a slot that is left is given back once: when it is left, not again when its handler returns.
func TestRoomOfALeftSlot(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	b := newBound(1)
	q.dispatch.bound = b
	q.mu.Lock()
	defer q.mu.Unlock()
	b.take(q.dispatch, 1, false)
	sl := q.slots.take(1)[0]
	sl.now = running(q.session, sl)
	if !q.guard.freeSlot(sl) || q.slots.free() != 1 || b.free() != 1 {
		t.Errorf("%d slots are free, and the bound has room for %d", q.slots.free(), b.free())
	}
	q.dispatch.release(sl)
	if q.slots.free() != 1 || b.free() != 1 {
		t.Errorf("after its handler has returned %d slots are free, and the bound has room for %d", q.slots.free(), b.free())
	}
}

// Over all queues at most as many handlers go on beside their slots as the bound allows to run.
func TestLeftSlotsAreBounded(t *testing.T) {
	t.Parallel()
	b := newBound(2)
	one, other := still(t, 5), still(t, 5)
	one.dispatch.bound, other.dispatch.bound = b, b
	leave := func(q *queue) (*slot, bool) {
		sl := q.slots.take(1)[0]
		sl.now = running(q.session, sl)
		b.take(q.dispatch, 1, false)
		return sl, q.guard.freeSlot(sl)
	}
	var left *slot
	for i, q := range []*queue{one, other, one, other} {
		q.mu.Lock()
		sl, ok := leave(q)
		q.mu.Unlock()
		if ok != (i < 2) {
			t.Errorf("handler %d goes on beside its slot: %v", i, ok)
		}
		if i == 0 {
			left = sl
		}
	}
	one.mu.Lock()
	one.dispatch.release(left)
	one.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	if _, ok := leave(other); !ok {
		t.Error("a handler has returned, and another still keeps its slot")
	}
}
