package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// looks reports whether the queue would make a call now, and returns what it would ask for.
func (q *queue) looks() *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.claimer.prepare()
}

// A claim that got everything it wanted was not registered to be woken. So the queue asks again when it has room.
func TestFullClaimIsNoEnd(t *testing.T) {
	t.Parallel()
	q := still(t, 2)
	c := q.looks()
	if c == nil {
		t.Fatal("there is no first claim")
	}
	q.claimer.apply(c, &store.ClaimReply{Alive: true, CutShort: true, Hints: store.Hints{Next: -1}}) // ids without records
	c = q.looks()
	if c == nil || c.Want != 2 {
		t.Fatalf("nobody asks for more: %+v", c)
	}
	q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
	if c := q.looks(); c != nil {
		t.Errorf("a claim for nothing: %+v", c)
	}
}

// When a suspect has ended, the call that settles it may claim another one. No wake-up is needed.
func TestEndedSuspectLetsOthersIn(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	d := &delivery{}
	d.begin(q.session, q.slots.take(1)[0], store.Delivery{Job: &signalbox.Job{ID: "id", Kind: "kind", Crashes: store.SuspectAt}}, time.Now())
	q.session.running, q.session.suspects, q.session.barred = 1, 1, true
	q.handlers.deliver(d)
	if c := q.looks(); c == nil || len(c.Settle) != 1 || !c.Suspects {
		t.Errorf("the suspect has ended, and the next call is %+v", c)
	}
}

// A renewal that brings a larger number of slots makes the worker look for jobs at once.
func TestMoreSlotsAreUsed(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.claimer.apply(q.looks(), &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
	q.keeper.follow(store.Hints{Idle: true, Next: -1, Slots: 3}, time.Now())
	if c := q.looks(); c == nil || c.Want != 3 {
		t.Errorf("it has three slots, and claims %+v", c)
	}
}

// A claim has the address at which its session is woken. If the worker must take no jobs, it has none: other workers can use the wake-up.
func TestClaimsSayWhereTheyAreWoken(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.session.address = "here"
	next := store.Hints{Next: -1}
	ask := func(what, want string, h store.Hints) {
		t.Helper()
		c := q.looks()
		if c == nil || c.Address != want || c.Leaving {
			t.Fatalf("%s: %+v; want address %q", what, c, want)
		}
		q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: h})
	}
	quiet := next
	quiet.Withheld = store.Withheld{Quiet: true}
	ask("the first", "here", quiet)
	ask("when it has heard that it is to be quiet", "", quiet)
	q.hint(false)
	ask("when it is quiet", "", next)
	ask("when it is no longer", "here", next)
	if c := q.looks(); c != nil {
		t.Errorf("a claim for nothing: %+v", c)
	}
}

// A queue that stops removes its session from those that wait for wake-ups. If a claim was under way, it does so again after it.
func TestStoppingQueueLeaves(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.session.address = "here"
	under := q.looks()
	q.mu.Lock()
	q.dispatch.stopping, q.dispatch.probe = true, true
	q.mu.Unlock()
	leaves := func(what string) {
		t.Helper()
		c := q.looks()
		if c == nil || c.Address != "here" || !c.Leaving || c.Want != 0 {
			t.Fatalf("%s: %+v", what, c)
		}
		q.claimer.apply(c, &store.ClaimReply{Alive: true, CutShort: true, Hints: store.Hints{Next: -1}})
		if c := q.looks(); c != nil {
			t.Errorf("%s it leaves twice: %+v", what, c)
		}
	}
	leaves("while a claim is under way")
	q.claimer.apply(under, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
	leaves("after it")
}

// A worker on standby makes a call a little later, unless it has made one meanwhile. It makes one call for many messages.
func TestStandBy(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	done := func() {
		t.Helper()
		if c := q.looks(); c != nil {
			q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
		}
	}
	done()
	hints := func() uint64 {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.dispatch.hints
	}
	over := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return !q.claimer.onCall
	}
	before, begin := hints(), time.Now()
	for range 3 {
		q.claimer.standBy()
	}
	redistest.Eventually(t, over, "the time is over")
	if n := hints() - before; n != 1 || time.Since(begin) < standByFor {
		t.Errorf("%d looks after %v", n, time.Since(begin))
	}
	q.claimer.standBy() // a claim begins after it
	done()
	before = hints()
	redistest.Eventually(t, over, "the time is over")
	if n := hints() - before; n != 0 {
		t.Errorf("%d looks, though there was a claim", n)
	}
	q.hint(false)
	q.claimer.standBy()
	done()
	q.claimer.standBy() // for another wake-up, after the claim
	before = hints()
	redistest.Eventually(t, over, "the time is over")
	if n := hints() - before; n != 1 {
		t.Errorf("%d looks for the second wake-up", n)
	}
}

// A renewal reports that no connection listens for the session, or that it is not registered. A failover that the connection survives can
// cause that.
func TestRenewalFindsWhatIsForgotten(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { q.listener.run(ctx) })
	address := func() string {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.session.address
	}
	ear := func() *ear {
		q.listener.mu.Lock()
		defer q.listener.mu.Unlock()
		return q.listener.ears[""]
	}
	q.listener.update()
	redistest.Eventually(t, func() bool { return address() != "" }, "the session is heard")
	c := q.looks()
	q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
	first := ear()
	relisten := func(h store.Hints) {
		(&renewal{keeper: &q.keeper, session: q.session, address: address(), hints: h}).relisten()
	}
	relisten(store.Hints{Heard: true, Idle: true})
	if c := q.looks(); c != nil || ear() != first {
		t.Errorf("all is well, and it calls %+v", c)
	}
	relisten(store.Hints{Heard: true})
	if c := q.looks(); c == nil {
		t.Error("it isn't registered, and makes no claim")
	} else {
		q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: -1}})
	}
	relisten(store.Hints{Idle: true})
	redistest.Eventually(t, func() bool { return ear() != first && ear() != nil && address() != "" }, "it listens anew")
	if c := q.looks(); c == nil {
		t.Error("it listens anew, and makes no claim")
	}
}

// The time until a job is due counts from when the call was sent that said so: the next one comes to Redis when it is time, however long calls take.
func TestNextCountsFromTheCall(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	at := func() time.Time {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.alarm.at
	}
	c := q.looks()
	c.began = time.Now().Add(-time.Minute)
	q.claimer.apply(c, &store.ClaimReply{Alive: true, Hints: store.Hints{Next: time.Hour}})
	if want := c.began.Add(time.Hour); !at().Equal(want) {
		t.Errorf("after a claim the alarm is set to %v, want %v", at(), want)
	}
	began := c.began.Add(-time.Minute)
	q.keeper.follow(store.Hints{Idle: true, Next: time.Hour}, began)
	if want := began.Add(time.Hour); !at().Equal(want) {
		t.Errorf("after a renewal the alarm is set to %v, want %v", at(), want)
	}
}
