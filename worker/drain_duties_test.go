package worker

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// The calls that end a drain get 2.5 s. The time counts from the drain timeout or from Abort, and again from the return of the last
// handler. While a handler runs, its lease is kept, however long it takes.
func TestCallsThatEndADrainAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		abort, runs time.Duration // from the beginning of the drain; 0: not
		want        time.Duration
	}{
		"nothing runs":                  {0, 0, 27500 * time.Millisecond},
		"aborted":                       {time.Second, 0, 3500 * time.Millisecond},
		"a handler runs on":             {0, time.Minute, 62500 * time.Millisecond},
		"it is aborted and runs on":     {time.Second, time.Minute, 62500 * time.Millisecond},
		"it returned just before":       {0, 27 * time.Second, 29500 * time.Millisecond},
		"it returned in time to settle": {0, 20 * time.Second, 27500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin, left, released := time.Now(), time.Duration(0), make(chan time.Duration, 1)
			w := &Worker{cfg: Config{DrainTimeout: DefaultDrainTimeout}, log: slog.New(slog.DiscardHandler)}
			s := &session{}
			q := newQueue(w, store.New(nil, "", "queue"), nil, 1, nil)
			q.sessions, q.drain.leave, q.dispatch.stopping = []*session{s}, func() { left = time.Since(begin) }, true
			ctx, stop := context.WithCancel(context.Background())
			halted, halt := context.WithCancel(context.Background())
			defer halt()
			if c.abort > 0 {
				time.AfterFunc(c.abort, halt)
			}
			if c.runs > 0 {
				s.running = 1
				time.AfterFunc(c.runs, func() {
					q.handlers.finish(&delivery{session: s, slot: &slot{}}, store.Settlement{Outcome: store.Completed})
				})
			}
			go w.hurry(ctx, halted, make(chan struct{}), []*queue{q}, func() { released <- time.Since(begin) })
			stop()
			at := <-released
			// It checks again each time that the wait may be over, so it is up to 2.5 s late.
			if at < c.want || at > c.want+hurryAfter || left != at {
				t.Errorf("%s: the calls are ended after %v and %v, want %v", name, left, at, c.want)
			}
		})
	}
}

// A drain waits for handlers, for outcomes that no call has reported yet, and for calls, of each session.
func TestDrainWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sessions []*session
		busy     bool
	}{
		"no session":                     {nil, false},
		"nothing is under way":           {[]*session{{}, {}}, false},
		"a handler runs":                 {[]*session{{}, {running: 1}}, true},
		"an outcome waits for a call":    {[]*session{{}, {unconfirmed: 1}}, true},
		"a call waits for its reply":     {[]*session{{}, {calls: 1}}, true},
		"the first session has the call": {[]*session{{calls: 1}, {}}, true},
	} {
		if q := (&queue{sessions: c.sessions}); q.busy() != c.busy {
			t.Errorf("%s: busy is %v, want %v", name, q.busy(), c.busy)
		}
	}
}

// While a queue drains, a failed call without settlements is not repeated. One with settlements is, while its session may still live.
func TestCallsThatAreNotMadeAgainInADrain(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.session.renewedUntil = time.Now().Add(time.Hour)
	empty := &store.ClaimRequest{Session: q.session.id, Want: 1}
	full := &store.ClaimRequest{Session: q.session.id, Settle: make([]store.Settlement, 1)}
	check := func(what string, req *store.ClaimRequest, wantStopping, wantLost bool) {
		t.Helper()
		if stopping, lost := q.claimer.pastSaving(req); stopping != wantStopping || lost != wantLost {
			t.Errorf("%s: stopping %v, lost %v", what, stopping, lost)
		}
	}
	check("nothing to settle, at work", empty, false, false)
	q.dispatch.stopping = true
	check("nothing to settle", empty, true, true)
	check("something to settle", full, true, false)
	q.session.renewedUntil = time.Now().Add(-time.Second)
	check("something to settle in a session that has ended", full, true, true)
}

// A job of an unknown kind comes back after a quarter of its age, plus a random part of up to another quarter.
func TestUnknownKindWaitsByItsAge(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]time.Duration{
		0: 500 * time.Millisecond, time.Second: 500 * time.Millisecond, 10 * time.Second: 2500 * time.Millisecond,
		time.Minute: 15 * time.Second, time.Hour: 30 * time.Second,
	} {
		now := time.Now()
		for range 100 {
			if d := putBackSoon(&signalbox.Job{EnqueuedAt: now.Add(-age), ClaimedAt: now}); d < want || d >= 2*want {
				t.Errorf("at the age of %v it waits for %v, want %v to %v", age, d, want, 2*want)
				break
			}
		}
	}
}

// Once Draining reports the drain, the queue claims nothing any more. So a job that a handler hands over doesn't come back to the same
// worker.
func TestDrainingIsSaidWhenNothingIsClaimed(t *testing.T) {
	t.Parallel()
	q := still(t, 1)
	q.keeper.claimUnder(nil)
	q.sessions = nil // it opens its own
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { q.listener.run(ctx) })
	running.Go(func() {
		if err := q.run(ctx, context.Background()); err != nil {
			t.Error(err)
		}
	})
	redistest.Eventually(t, func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.session != nil
	}, "the queue is worked")
	said := func() bool {
		select {
		case <-signalbox.Draining(q.base):
			return true
		default:
			return false
		}
	}
	q.mu.Lock()
	cancel()
	if said() && !q.dispatch.stopping {
		t.Error("it is said while jobs are claimed")
	}
	q.mu.Unlock()
	running.Wait()
	if !said() {
		t.Error("it is never said")
	}
}

// The log of a stopping worker says how many handlers it waits for. Handlers whose lease was lost are counted as well.
func TestDrainSaysWhatRuns(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	q := still(t, 3)
	q.log = slog.New(slog.NewTextHandler(&log, nil))
	lost := &session{id: store.NewID(), validity: q.session.validity}
	q.sessions = append(q.sessions, lost)
	q.session.running, lost.running = 2, 1
	var drain sync.WaitGroup
	drain.Go(func() {
		if err := q.drain.run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-q.drain.sign
	q.mu.Lock()
	q.session.running, lost.running = 0, 0
	q.drain.settled.Broadcast()
	q.mu.Unlock()
	drain.Wait()
	if !strings.Contains(log.String(), "jobs=3") {
		t.Errorf("three handlers run: %s", &log)
	}
}
