package store

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

var tickTests = []storeTest{
	{"TickFiresOnce", testTick},
	{"TickInTheFuture", testEarlyTick},
	{"TickWhoseJobIsThere", testTickOfJob},
}

// tick enqueues the job of a tick through a lane of its own, as another scheduler would.
func (r *rig) tick(entry string, at time.Time, id string) TickOutcome {
	r.t.Helper()
	lane := r.NewLane()
	lane.Next()
	item := r.item(id, When{At: at}, signalbox.PriorityNormal)
	outcome, now, err := r.EnqueueTick(bg, lane, entry, at, item)
	r.must(err)
	if now.IsZero() {
		r.t.Error("no server time")
	}
	again, _, err := r.EnqueueTick(bg, lane, entry, at, item)
	r.must(err)
	same(r.t, "the same call again", again, outcome)
	return outcome
}

func testTick(t *testing.T, r *rig) {
	r.open()
	now, err := r.Now(bg)
	r.must(err)
	first, second := now.Add(-2*time.Second), now.Add(-time.Second)
	same(t, "the first tick", r.tick("e", first, "e1"), TickFired)
	same(t, "by another scheduler", r.tick("e", first, "e1x"), TickTaken)
	same(t, "the second", r.tick("e", second, "e2"), TickFired)
	same(t, "the first, late", r.tick("e", first, "e1y"), TickTaken)
	same(t, "of another entry", r.tick("f", first, "f1"), TickFired)
	got := r.claim(10)
	equal(t, "claimed", ids(got), []string{"e1", "e2", "f1"})
	same(t, "scheduled", got[0].Job.ScheduledAt.UnixMicro(), first.UnixMicro())

	r.settled(settlement(got[0], Completed), settlement(got[1], Completed), settlement(got[2], Completed))
	same(t, "when the job has come and gone", r.tick("e", second, "e2"), TickTaken)
}

func testEarlyTick(t *testing.T, r *rig) {
	now, err := r.Now(bg)
	r.must(err)
	before := r.dump()
	same(t, "a tick to come", r.tick("e", now.Add(time.Minute), "e1"), TickEarly)
	r.unchanged("an early tick", before)
	same(t, "one that is", r.tick("e", now, "e1"), TickFired)
}

// The mark of the tick was lost and its job was not: it is not enqueued again, and the mark is
// set so that nobody tries once more.
func testTickOfJob(t *testing.T, r *rig) {
	now, err := r.Now(bg)
	r.must(err)
	r.put("e1")
	same(t, "a tick whose job is there", r.tick("e", now, "e1"), TickTaken)
	same(t, "again", r.tick("e", now, "e1x"), TickTaken)
	same(t, "ready", r.counts().Ready, 1)
}
