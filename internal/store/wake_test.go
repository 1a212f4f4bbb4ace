package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

var wakeTests = []storeTest{
	{"OneWakeUp", testOneWake},
	{"WakeUpIsPassedOn", testWakePassedOn},
	{"NoWakeUpForNothing", testNoWake},
	{"WakeUpForTheEarliest", testWakeForEarliest},
	{"WakeUpOfAMixedBatch", testWakeOfMixed},
	{"WakeUpForReclaimed", testWakeForReclaimed},
	{"WakeUpOfAClosedSession", testWakeOfClosed},
	{"MoreAfterIDsWithoutRecord", testMoreWithoutRecord},
	{"WakeUpForSuspects", testWakeForSuspects},
	{"RenewTellsOfSuspects", testRenewSuspects},
}

func testOneWake(t *testing.T, r *rig) {
	r.listen()
	same(t, "wake-ups of an empty queue", r.wakes(), 0)
	for _, id := range []string{"a", "b", "c"} {
		r.put(id)
		same(t, "wake-ups", r.wakes(), 1)
	}
	r.takeWake()
	r.put("a") // the job is there already
	same(t, "wake-ups for a job that is there", r.wakes(), 0)
}

// If a claim got all jobs that it asked for and jobs remain, it wakes another session.
func testWakePassedOn(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.put("a", "b", "c")
	r.takeWake()
	r.claim(2)
	same(t, "wake-ups while c is ready", r.wakes(), 1)
	r.takeWake()
	d := r.claim(1)
	same(t, "wake-ups when all is taken", r.wakes(), 0)
	r.settled(settlement(d[0], Return))
	same(t, "wake-ups for what was given back", r.wakes(), 1)
}

func testNoWake(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.put("a")
	r.takeWake()
	r.claim(5) // more than there are
	same(t, "wake-ups", r.wakes(), 0)
	r.claim(5)
	same(t, "wake-ups of a claim that found nothing", r.wakes(), 0)
	r.renewed()
	left, err := r.Sessions().Close(bg, "unknown", false)
	r.must(err)
	same(t, "left", left, 0)
	same(t, "wake-ups of a close without work", r.wakes(), 0)
	r.enqueued(r.item("later", When{After: time.Hour}, signalbox.PriorityNormal))
	r.takeWake()
	r.claim(5)
	same(t, "wake-ups for what is due later", r.wakes(), 0)
}

func testWakeForEarliest(t *testing.T, r *rig) {
	r.listen()
	in := func(id string, d time.Duration) {
		t.Helper()
		r.enqueued(r.item(id, When{After: d}, signalbox.PriorityNormal))
	}
	in("b", time.Hour)
	same(t, "wake-ups for the first", r.wakes(), 1)
	r.takeWake()
	in("c", 2*time.Hour)
	same(t, "wake-ups for a later one", r.wakes(), 0)
	in("a", time.Minute)
	same(t, "wake-ups for an earlier one", r.wakes(), 1)
}

// A ready job wakes a worker, even if its call also has a job that is due later than others.
func testWakeOfMixed(t *testing.T, r *rig) {
	r.listen()
	later := func(id string, d time.Duration) Item { return r.item(id, When{After: d}, signalbox.PriorityNormal) }
	r.enqueued(later("first", time.Minute))
	r.takeWake()
	r.enqueued(r.item("ready", When{}, signalbox.PriorityNormal), later("second", time.Hour))
	same(t, "wake-ups", r.wakes(), 1)
}

func testWakeForReclaimed(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.put("a")
	r.takeWake()
	r.claim(1)
	r.expire()
	r.reclaim(r.session)
	same(t, "wake-ups", r.wakes(), 1)

	r.takeWake()
	r.session = "second"
	r.open()
	r.claim(1)
	r.expire()
	r.reclaim(r.session)
	same(t, "wake-ups for one that is a suspect now", r.wakes(), 1)

	// A job of a group ends with the session. That gives nobody a turn, but the other job is ready.
	for _, held := range []bool{false, true} {
		r.takeWake()
		r.session = fmt.Sprint("third", held)
		r.open()
		r.enqueued(r.grouped("grouped", "gg", When{}, signalbox.PriorityNormal))
		if r.put("plain"); held { // beside a suspect
			r.claim(5)
		} else {
			r.settled(settlement(r.claim(5)[0], Completed))
		}
		r.cancel("grouped")
		r.dropWake()
		r.expire()
		res := r.reclaim(r.session)
		equal(t, "cancelled", ids(res.Cancelled), []string{"grouped"})
		same(t, "wake-ups for a job beside one that was cancelled", r.wakes(), 1)
	}
}

// A worker that stops may have got a wake-up for a job that it won't claim.
func testWakeOfClosed(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.put("a")
	r.takeWake()
	left, err := r.Sessions().Close(bg, r.session, false, r.lane)
	r.must(err)
	same(t, "left", left, 0)
	same(t, "wake-ups while a is ready", r.wakes(), 1)
}

// The number of IDs that a call took from the lists counts, not the number of jobs that it returned: there may be IDs without a record, and
// jobs behind them.
func testMoreWithoutRecord(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.put("a", "gone", "c")
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "gone").Err())
	r.takeWake()
	reply := r.call(ClaimRequest{Want: 2})
	equal(t, "claimed", ids(reply.Deliveries), []string{"a"})
	same(t, "more", reply.More, true)
	same(t, "wake-ups while c is ready", r.wakes(), 1)
}

// A suspect became ready, and the call doesn't take it. Then the call wakes a worker that may take it.
func testWakeForSuspects(t *testing.T, r *rig) {
	r.listen()
	r.open()
	r.suspects("a")
	r.takeWake()
	d := r.one()
	later := settlement(d, Delay)
	later.Delay = time.Hour
	r.settled(later)
	for what, c := range map[string]struct {
		req   ClaimRequest
		wakes int
	}{
		"a call that may take it":      {ClaimRequest{Want: 1, Suspects: true}, 0},
		"a call that takes none":       {ClaimRequest{Want: 1}, 1},
		"a call that wants nothing":    {ClaimRequest{}, 1},
		"a call of an unknown session": {ClaimRequest{Session: "unknown", Want: 1, Suspects: true}, 1},
	} {
		r.makeDue("sa")
		reply := r.call(c.req)
		same(t, what+" leaves wake-ups", r.wakes(), c.wakes)
		r.dropWake()
		got := reply.Deliveries
		if len(got) == 0 {
			got = r.claim(1)
			same(t, what+": wake-ups when it was taken", r.wakes(), 0)
		}
		later := settlement(got[0], Delay)
		later.Delay = time.Hour
		r.settled(later)
	}
	r.makeDue("sa")
	r.settled(settlement(r.one(), Return))
	same(t, "wake-ups for one that was given back", r.wakes(), 1)
}

func testRenewSuspects(t *testing.T, r *rig) {
	r.open()
	same(t, "more of an empty queue", r.renewed().More, false)
	r.suspects("a")
	same(t, "more while a suspect waits", r.renewed().More, true)
	r.one()
	same(t, "more while it runs", r.renewed().More, false)
	for _, p := range []signalbox.Priority{signalbox.PriorityHigh, signalbox.PriorityNormal, signalbox.PriorityLow} {
		r.enqueued(r.item("b", When{}, p))
		same(t, "more while a job waits", r.renewed().More, true)
		r.settled(settlement(r.call(ClaimRequest{Want: 1}).Deliveries[0], Completed))
	}
}
