package store

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

var wakeTests = []storeTest{
	{"OneWakeToken", testOneToken},
	{"WakeTokenIsPassedOn", testTokenPassedOn},
	{"NoWakeTokenForNothing", testNoToken},
	{"WakeTokenForTheEarliest", testTokenForEarliest},
	{"WakeTokenOfAMixedBatch", testTokenOfMixed},
	{"WakeTokenForReclaimed", testTokenForReclaimed},
	{"WakeTokenOfAClosedSession", testTokenOfClosed},
	{"WaitAndRing", testWaitAndRing},
	{"BellsExpire", testBellsExpire},
	{"MoreAfterIDsWithoutRecord", testMoreWithoutRecord},
	{"WakeTokenForSuspects", testTokenForSuspects},
	{"RenewTellsOfSuspects", testRenewSuspects},
}

func testOneToken(t *testing.T, r *rig) {
	same(t, "tokens of an empty queue", r.wakes(), 0)
	for _, id := range []string{"a", "b", "c"} {
		r.put(id)
		same(t, "tokens", r.wakes(), 1)
	}
	r.takeWake()
	r.put("a") // is there already
	same(t, "tokens for a job that is there", r.wakes(), 0)
}

// A claim that took all it asked for leaves a token if work remains.
func testTokenPassedOn(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	r.takeWake()
	r.claim(2)
	same(t, "tokens while c is ready", r.wakes(), 1)
	r.takeWake()
	d := r.claim(1)
	same(t, "tokens when all is taken", r.wakes(), 0)
	r.settled(settlement(d[0], Return))
	same(t, "tokens for what was given back", r.wakes(), 1)
}

func testNoToken(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.takeWake()
	r.claim(5) // fewer than asked for
	same(t, "tokens", r.wakes(), 0)
	r.claim(5)
	same(t, "tokens of a claim that found nothing", r.wakes(), 0)
	r.renewed()
	left, err := r.Close(bg, "unknown")
	r.must(err)
	same(t, "left", left, 0)
	same(t, "tokens of a close without work", r.wakes(), 0)
	r.enqueued(r.item("later", When{After: time.Hour}, signalbox.PriorityNormal))
	r.takeWake()
	r.claim(5)
	same(t, "tokens for what is due later", r.wakes(), 0)
}

func testTokenForEarliest(t *testing.T, r *rig) {
	in := func(id string, d time.Duration) {
		t.Helper()
		r.enqueued(r.item(id, When{After: d}, signalbox.PriorityNormal))
	}
	in("b", time.Hour)
	same(t, "tokens for the first", r.wakes(), 1)
	r.takeWake()
	in("c", 2*time.Hour)
	same(t, "tokens for a later one", r.wakes(), 0)
	in("a", time.Minute)
	same(t, "tokens for an earlier one", r.wakes(), 1)
}

// A job that is ready wakes a worker, also in a call with one that is due later than others.
func testTokenOfMixed(t *testing.T, r *rig) {
	later := func(id string, d time.Duration) Item { return r.item(id, When{After: d}, signalbox.PriorityNormal) }
	r.enqueued(later("first", time.Minute))
	r.takeWake()
	r.enqueued(r.item("ready", When{}, signalbox.PriorityNormal), later("second", time.Hour))
	same(t, "tokens", r.wakes(), 1)
}

func testTokenForReclaimed(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.takeWake()
	r.claim(1)
	r.expire()
	r.reclaim(r.session)
	same(t, "tokens", r.wakes(), 1)
}

// A worker that stops may have taken the token for a job that it won't claim.
func testTokenOfClosed(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.takeWake()
	left, err := r.Close(bg, r.session, r.lane)
	r.must(err)
	same(t, "left", left, 0)
	same(t, "tokens while a is ready", r.wakes(), 1)
}

func testBellsExpire(t *testing.T, r *rig) {
	bell := r.Bell()
	r.must(Ring(bg, r.rdb, bell))
	if ttl := r.rdb.PTTL(bg, bell).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("a bell that nobody heard expires in %v, want within a minute", ttl)
	}
}

// What a call took from the lists counts, not what it returns: behind IDs that have no record are others.
func testMoreWithoutRecord(t *testing.T, r *rig) {
	r.open()
	r.put("a", "gone", "c")
	r.must(r.rdb.HDel(bg, r.keys.jobs, "gone").Err())
	r.takeWake()
	reply := r.call(ClaimRequest{Want: 2})
	equal(t, "claimed", ids(reply.Deliveries), []string{"a"})
	same(t, "more", reply.More, true)
	same(t, "tokens while c is ready", r.wakes(), 1)
}

// A suspect that became ready, and that the call doesn't take, leaves a token for who may take it.
func testTokenForSuspects(t *testing.T, r *rig) {
	r.open()
	r.suspects("a")
	r.takeWake()
	d := r.one()
	later := settlement(d, Delay)
	later.Delay = time.Hour
	r.settled(later)
	for what, c := range map[string]struct {
		req    ClaimRequest
		tokens int64
	}{
		"a call that may take it":      {ClaimRequest{Want: 1, Suspects: true}, 0},
		"a call that takes none":       {ClaimRequest{Want: 1}, 1},
		"a call that wants nothing":    {ClaimRequest{}, 1},
		"a call of an unknown session": {ClaimRequest{Session: "unknown", Want: 1, Suspects: true}, 1},
	} {
		r.makeDue("sa")
		reply := r.call(c.req)
		same(t, what+" leaves tokens", r.wakes(), c.tokens)
		r.rdb.Del(bg, r.keys.wake)
		got := reply.Deliveries
		if len(got) == 0 {
			got = r.claim(1)
			same(t, what+": tokens when it was taken", r.wakes(), 0)
		}
		later := settlement(got[0], Delay)
		later.Delay = time.Hour
		r.settled(later)
	}
	r.makeDue("sa")
	r.settled(settlement(r.one(), Return))
	same(t, "tokens for one that was given back", r.wakes(), 1)
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

func testWaitAndRing(t *testing.T, r *rig) {
	bell := r.Bell()
	r.must(Ring(bg, r.rdb, bell))
	if q, err := Wait(bg, r.rdb, bell, 10*time.Second, r.Queue); q != nil || err != nil {
		t.Errorf("the bell rang: %v, %v", q, err)
	}
	r.put("a")
	if q, err := Wait(bg, r.rdb, bell, 10*time.Second, r.Queue); q != r.Queue || err != nil {
		t.Errorf("there is work: %v, %v", q, err)
	}
	if q, err := Wait(bg, r.rdb, bell, time.Second, r.Queue); q != nil || err != nil {
		t.Errorf("timeout: %v, %v", q, err)
	}
	woken := make(chan *Queue, 1)
	go func() {
		q, err := Wait(bg, r.rdb, bell, 10*time.Second, r.Queue)
		if err != nil {
			t.Error(err)
		}
		woken <- q
	}()
	r.put("b")
	if q := <-woken; q != r.Queue {
		t.Errorf("woken for %v", q)
	}
}
