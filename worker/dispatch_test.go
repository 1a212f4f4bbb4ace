package worker

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// newOpenDispatch returns a dispatch with n slots that may claim and has made its first call.
func newOpenDispatch(n int) *dispatch {
	d := newDispatch(&mutex{}, newSlots(n, nil), nil)
	d.open = true
	c := startCall(d)
	c.end(false, 0)
	return d
}

// A testCall is a call of a lane, made as the queue makes it.
type testCall struct {
	d     *dispatch
	hints uint64
	slots []*slot
}

// startCall makes the lane's next call. It returns nil if there is no call to make.
func startCall(d *dispatch) *testCall {
	for d.callable() {
		c := &testCall{d: d, hints: d.hints}
		if d.open && !d.stopping {
			c.slots = d.reserve()
		}
		if len(c.slots) > 0 || d.unsent > 0 || d.probe { // otherwise it waits for room
			d.began(d.unsent, d.open)
			return c
		}
	}
	d.rest()
	return nil
}

// end ends a call that got n jobs. It returns their slots.
func (c *testCall) end(more bool, n int) []*slot {
	c.d.got(c.slots, n)
	c.d.answered(c.hints, more, true)
	c.d.calls--
	c.d.summon()
	return c.slots[:n]
}

func TestDispatchCallsWhenThereIsSomethingToDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change         func(d *dispatch)
		callable, idle bool
	}{
		"nothing to do":                       {func(*dispatch) {}, false, true},
		"a hint":                              {func(d *dispatch) { d.hint(false) }, true, false},
		"a hint, no slot is free":             {func(d *dispatch) { d.slots.take(8); d.hint(false) }, false, false},
		"a probe, no slot is free":            {func(d *dispatch) { d.slots.take(8); d.hint(true) }, true, false},
		"a look without a hint":               {func(d *dispatch) { d.probeNow() }, true, true},
		"no slot is free":                     {func(d *dispatch) { d.slots.take(8) }, false, true},
		"a settlement":                        {func(d *dispatch) { d.unsent = 1 }, true, true},
		"a settlement, no session":            {func(d *dispatch) { d.unsent, d.open = 1, false }, true, false},
		"a hint, no session":                  {func(d *dispatch) { d.open = false; d.hint(true) }, false, false},
		"it stops":                            {func(d *dispatch) { d.stopping = true }, false, false},
		"a hint, but it stops":                {func(d *dispatch) { d.stopping = true; d.hint(false) }, false, false},
		"a settlement, it stops":              {func(d *dispatch) { d.stopping, d.unsent = true, 1 }, true, false},
		"a settlement during a call":          {func(d *dispatch) { d.calls, d.unsent = 1, 1 }, false, true},
		"a quarter's settlements in a call":   {func(d *dispatch) { d.calls, d.unsent = 1, 2 }, true, true},
		"a hint during a call":                {func(d *dispatch) { d.calls = 1; d.hint(false) }, true, false},
		"a hint during a call, 1 of 8 free":   {func(d *dispatch) { d.calls = 1; d.slots.take(7); d.hint(false) }, false, false},
		"a hint during a call, 2 of 8 free":   {func(d *dispatch) { d.calls = 1; d.slots.take(6); d.hint(false) }, true, false},
		"a probe during a call, none is free": {func(d *dispatch) { d.calls = 1; d.slots.take(8); d.hint(true) }, true, false},
	} {
		d := newOpenDispatch(8)
		c.change(d)
		if d.callable() != c.callable || d.idle() != c.idle {
			t.Errorf("%s: callable %v, idle %v; want %v, %v", name, d.callable(), d.idle(), c.callable, c.idle)
		}
	}
}

// If the worker's bound is lower than the number of slots, it counts instead. That is so for the quarter that a second call needs as well.
func TestDispatchUnderABound(t *testing.T) {
	t.Parallel()
	d := newDispatch(&mutex{}, newSlots(100, nil), newBound(8))
	d.open = true
	c := startCall(d)
	if len(c.slots) != 8 {
		t.Fatalf("it asks for %d jobs, want the bound's 8", len(c.slots))
	}
	c.end(false, 0)
	d.calls, d.unsent = 1, 1
	if d.callable() {
		t.Error("one settlement is a call of its own")
	}
	if d.unsent = 2; !d.callable() {
		t.Error("a quarter of the bound is no call")
	}
}

// Each new task wakes one lane, which takes all tasks that there are by then. Tasks that come during its call wake the next lane.
func TestDispatchWakesOneLane(t *testing.T) {
	t.Parallel()
	d := newOpenDispatch(8)
	for range 3 {
		d.hint(false)
	}
	if !d.summoned {
		t.Fatal("no lane is woken")
	}
	c := startCall(d)
	if len(c.slots) != 8 || d.summoned {
		t.Fatalf("it asks for %d jobs, and another lane is woken: %v", len(c.slots), d.summoned)
	}
	d.hint(true) // no slot is free: the call is for due jobs
	if !d.summoned {
		t.Error("no lane is woken for a probe")
	}
	second := startCall(d)
	if d.probe || startCall(d) != nil {
		t.Error("a probe is made twice")
	}
	second.end(false, 0)
	c.end(true, 0)
	if !d.summoned || startCall(d) == nil {
		t.Error("nobody fetches the rest that a claim left")
	}
}

// A claim that gets less than it asked for says nothing about hints that came during the claim. A claim of a session that no longer
// claims says nothing at all.
func TestDispatchRemembersHints(t *testing.T) {
	t.Parallel()
	d := newOpenDispatch(8)
	d.hint(false)
	c := startCall(d)
	d.hint(false)
	c.end(false, 0)
	if !d.callable() {
		t.Error("a hint during a call is lost")
	}
	d.answered(d.hints, false, false)
	if !d.callable() {
		t.Error("a hint is lost to the claim of a lost session")
	}
	c = startCall(d)
	late := &testCall{d: d, hints: c.hints - 1}
	c.end(false, 0)
	late.d.calls++
	late.end(false, 0)
	if d.hungry() || d.callable() {
		t.Error("the answer of an older call is a hint")
	}
}

// A resting lane gives back the room that was granted to it. This happens if the queue stops, or its session is lost.
func TestDispatchGivesBackWhatItWasGranted(t *testing.T) {
	t.Parallel()
	b := newBound(10)
	d := newDispatch(&mutex{}, newSlots(8, nil), b)
	d.open, d.stopping = true, true
	d.granted, b.room = 3, 7
	d.rest()
	if d.granted != 0 || b.free() != 10 {
		t.Errorf("granted %d, %d are free", d.granted, b.free())
	}
}

// No random sequence of calls, jobs and hints ends with a hint that is ignored, a call with nothing to do, or lost room.
func TestDispatchWalk(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for walk := range 300 {
		b := newBound(r.IntN(20)) // 0: none
		queues := make([]*dispatch, 1+r.IntN(3))
		ready := make([]int, len(queues))
		running := make([][]*slot, len(queues))
		calls := make([][]*testCall, len(queues))
		for i := range queues {
			queues[i] = newDispatch(&mutex{}, newSlots(1+r.IntN(12), nil), b)
			queues[i].open = true
		}
		if b != nil && r.IntN(2) == 0 {
			b.shares = &shares{}
			for _, d := range queues {
				d.share = b.shares.add(1+r.IntN(2), 1+r.IntN(9))
			}
		}
		steps, ends := 0, 200+r.IntN(100)
		lane := func(i int) { // a woken lane looks
			d := queues[i]
			for d.summoned && len(calls[i]) < lanes {
				unsent, probe, hints := d.unsent, d.probe, d.hints > d.emptied
				c := startCall(d)
				if c == nil {
					break
				}
				if unsent == 0 && !probe && !hints {
					t.Fatalf("seed %d, walk %d, step %d: a call with nothing to do", seed, walk, steps)
				}
				calls[i] = append(calls[i], c)
			}
		}
		answer := func(i int) {
			n := r.IntN(len(calls[i]))
			c := calls[i][n]
			calls[i] = slices.Delete(calls[i], n, n+1)
			got := min(len(c.slots), ready[i])
			ready[i] -= got
			running[i] = append(running[i], c.end(ready[i] > 0, got)...)
		}
		finish := func(i int) {
			sl := running[i][0]
			running[i] = running[i][1:]
			queues[i].unsent++
			queues[i].release(sl)
			queues[i].summon()
		}
		for ; steps < ends; steps++ {
			i := r.IntN(len(queues))
			d := queues[i]
			d.mu.Lock()
			switch n := r.IntN(6); {
			case n == 0:
				ready[i] += 1 + r.IntN(5)
				d.hint(false)
			case n == 1 && r.IntN(4) == 0:
				d.hint(true)
			case n <= 3 && len(calls[i]) > 0:
				answer(i)
			case len(running[i]) > 0:
				finish(i)
			}
			d.mu.Unlock()
			if b != nil && b.shares != nil && r.IntN(20) == 0 {
				b.passOver()
			}
			for j, d := range queues {
				d.mu.Lock()
				lane(j)
				d.mu.Unlock()
			}
		}
		for settled := false; !settled; { // lets everything end
			settled = true
			for i, d := range queues {
				d.mu.Lock()
				lane(i)
				for len(calls[i]) > 0 {
					answer(i)
					settled = false
				}
				for len(running[i]) > 0 {
					finish(i)
					settled = false
				}
				d.mu.Unlock()
			}
		}
		for i, d := range queues {
			if ready[i] > 0 || d.unsent > 0 || d.callable() || !d.idle() {
				t.Fatalf("seed %d, walk %d: queue %d rests, with %d jobs ready and %d settlements left", seed, walk, i, ready[i], d.unsent)
			}
			if d.slots.free() != d.slots.size || d.granted != 0 || d.inLine {
				t.Fatalf("seed %d, walk %d: queue %d has %d of %d slots free", seed, walk, i, d.slots.free(), d.slots.size)
			}
		}
		for i, d := range queues {
			if d.share != nil && (d.share.asked != 0 || d.share.wants) {
				t.Fatalf("seed %d, walk %d: the bound has that queue %d asked for %d jobs, and wants more: %v", seed, walk, i, d.share.asked, d.share.wants)
			}
		}
		if b != nil && b.free() != b.most {
			t.Fatalf("seed %d, walk %d: %d of %d are free", seed, walk, b.free(), b.most)
		}
	}
}

// An alarm rings at the earliest of its times, at once if that has passed. It rings again when it is set again.
func TestAlarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu mutex
		var rang []time.Duration
		a := alarm{mu: &mu, ring: func() {
			mu.Lock()
			defer mu.Unlock()
			rang = append(rang, time.Since(begin))
		}}
		set := func(in time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			a.set(time.Now().Add(in))
		}
		set(2 * time.Second)
		set(time.Second)
		set(3 * time.Second)
		time.Sleep(time.Minute) // of the bubble's clock
		set(time.Second)
		time.Sleep(time.Minute)
		set(-time.Second)
		synctest.Wait()
		set(time.Second)
		mu.Lock()
		a.stop()
		mu.Unlock()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if want := []time.Duration{time.Second, 61 * time.Second, 2 * time.Minute}; !slices.Equal(rang, want) {
			t.Errorf("it rang after %v, want %v", rang, want)
		}
	})
}
