package store

import (
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

var laneTests = []storeTest{
	{"EnqueueAgain", testEnqueueAgain},
	{"EnqueueOlder", testEnqueueOlder},
	{"ClaimAgain", testClaimAgain},
	{"ClaimAgainAfterReclaim", testClaimAgainReclaimed},
	{"ClaimOlder", testClaimOlder},
	{"LanesExpire", testLanesExpire},
	{"LostMemoryEndsTheSession", testLostMemory},
	{"ForgottenLaneIsNoLoss", testForgottenLane},
	{"LostMemoryIsNoOtherSessions", testLostMemoryOfAnother},
	{"TimeOfACallMadeAgain", testTimeOfACallMadeAgain},
}

func testEnqueueAgain(t *testing.T, r *rig) {
	r.open()
	equal(t, "new", r.put("a", "b", "a"), []bool{true, true, false})
	r.settled(settlement(r.claim(1)[0], Completed)) // a has come and has ended
	before := r.dump()
	fresh, err := r.Enqueue(bg, r.producer, []Item{r.item("a", When{}, 0), r.item("b", When{}, 0), r.item("a", When{}, 0)})
	r.must(err)
	equal(t, "new, said again", in(fresh), []bool{true, true, false})
	r.unchanged("the call made again", before)
}

func testEnqueueOlder(t *testing.T, r *rig) {
	r.put("a")
	r.put("b")
	older := &Lane{key: r.producer.key, seq: r.producer.seq - 1}
	before := r.dump()
	if _, err := r.Enqueue(bg, older, []Item{r.item("c", When{}, 0)}); !errors.Is(err, scripts.ErrStale) {
		t.Errorf("an older call: %v", err)
	}
	if _, err := r.Cron().EnqueueTicks(bg, older, []Item{r.item("c", When{At: time.Unix(1, 0), Entry: "e"}, 0)}, Reckoning{}); !errors.Is(err, scripts.ErrStale) {
		t.Errorf("an older tick: %v", err)
	}
	r.unchanged("an older call", before)
}

// A repeated claim returns the same jobs, tokens and refusals each time.
func testClaimAgain(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c", "d", "e")
	first := r.claim(2)
	stale := settlement(first[1], Retry)
	stale.Token--
	req := &ClaimRequest{Session: r.session, Settle: []Settlement{settlement(first[0], Completed), stale}, Want: 2}
	r.lane.Next()
	want, err := r.Sessions().Claim(bg, r.lane, req)
	r.must(err)
	equal(t, "claimed", ids(want.Deliveries), []string{"c", "d"})
	equal(t, "refused", want.Refused, []int{1})
	before := r.dump()
	for range 3 {
		got, err := r.Sessions().Claim(bg, r.lane, req)
		r.must(err)
		equal(t, "claimed again", ids(got.Deliveries), ids(want.Deliveries))
		for i := range got.Deliveries {
			same(t, "token", got.Deliveries[i].Job.Token, want.Deliveries[i].Job.Token)
			same(t, "kind", got.Deliveries[i].Job.Kind, want.Deliveries[i].Job.Kind)
		}
		equal(t, "refused again", got.Refused, want.Refused)
		same(t, "alive", got.Alive, true)
		r.unchanged("the call made again", before)
	}
}

// If some jobs of a call are gone when it is repeated, the other jobs still come with their own records.
func testClaimAgainReclaimed(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c", "d")
	want := r.claim(4)
	r.must(r.rdb.HDel(bg, r.keys.Inflight(r.session), "b").Err())
	r.must(r.rdb.RPush(bg, r.keys.ReadyNormal, "b").Err())
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "d").Err())
	got, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Want: 4})
	r.must(err)
	equal(t, "claimed again", ids(got.Deliveries), []string{"a", "c"})
	for i, d := range got.Deliveries {
		r.must(d.Err)
		same(t, "payload of "+d.Job.ID, string(d.Job.Payload), `"`+d.Job.ID+`"`)
		same(t, "token of "+d.Job.ID, d.Job.Token, want[2*i].Job.Token)
	}
	r.must(r.rdb.HDel(bg, r.keys.Inflight(r.session), "d").Err())
}

func testClaimOlder(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	d := r.claim(1)[0]
	r.claim(1)
	before := r.dump()
	older := &Lane{key: r.lane.key, seq: r.lane.seq - 1}
	_, err := r.Sessions().Claim(bg, older, &ClaimRequest{Session: r.session, Want: 1, Settle: []Settlement{settlement(d, Completed)}})
	if !errors.Is(err, scripts.ErrStale) {
		t.Errorf("an older call: %v", err)
	}
	r.unchanged("an older call", before)
}

func testLanesExpire(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.claim(1)
	for _, lane := range []*Lane{r.producer, r.lane} {
		if ttl := r.rdb.PTTL(bg, lane.key).Val(); ttl < 59*time.Minute || ttl > time.Hour {
			t.Errorf("a lane lives for %v, want an hour", ttl)
		}
	}
}

// After a failover Redis may have lost a call that it had answered. It reports that jobs run which were settled. These jobs run nowhere.
// So the session must end: otherwise they would count as running for ever.
func testLostMemory(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	a := r.claim(1)[0]
	lane, record := r.rdb.Get(bg, r.lane.key).Val(), r.rdb.HGet(bg, r.keys.Jobs, "a").Val()
	b := r.call(ClaimRequest{Settle: []Settlement{settlement(a, Completed)}, Want: 1}).Deliveries[0]

	// The state before that call.
	r.must(r.rdb.Set(bg, r.lane.key, lane, time.Hour).Err())
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "a", record).Err())
	inflight := r.keys.Inflight(r.session)
	r.must(r.rdb.Del(bg, inflight).Err())
	r.must(r.rdb.HSet(bg, inflight, "a", a.Job.Token).Err())
	r.must(r.rdb.RPush(bg, r.keys.ReadyNormal, "b").Err())
	r.check()

	answered, served := r.lane.answered, r.lane.served
	req := ClaimRequest{Session: r.session, Settle: []Settlement{settlement(b, Completed)}, Want: 1}
	reply := r.call(req)
	same(t, "alive", reply.Alive, false)
	same(t, "forgot", reply.Forgot, b.Job.ClaimedAt)
	r.lane.answered, r.lane.served = answered, served // as if the reply had been lost
	again, err := r.Sessions().Claim(bg, r.lane, &req)
	r.must(err)
	same(t, "alive, when the call is made again", again.Alive, false)
	same(t, "claimed", len(reply.Deliveries), 0)
	equal(t, "refused, since its claim is lost", reply.Refused, []int{0})
	r.crash() // nothing renews it
	reply = r.call(ClaimRequest{Want: 5})
	same(t, "alive, in another session", reply.Alive, true)
	equal(t, "claimed", ids(reply.Deliveries), []string{"a", "b"})
	reply = r.call(ClaimRequest{})
	same(t, "alive, from then on", reply.Alive, true)
	same(t, "forgot, from then on", reply.Forgot, time.Time{})
}

// If Redis lost data of one session, the next session of the same lane is not affected.
func testLostMemoryOfAnother(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	r.claim(1)
	r.must(r.rdb.Del(bg, r.lane.key).Err())
	r.crash()
	reply := r.call(ClaimRequest{Want: 5, Suspects: true})
	same(t, "alive", reply.Alive, true)
	same(t, "forgot a call", reply.Forgot.IsZero(), false)
	equal(t, "claimed", ids(reply.Deliveries), []string{"a", "b"})
}

// A lane that Redis forgot by its expiry works like a new one.
func testForgottenLane(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	d := r.claim(1)[0]
	r.must(r.rdb.Del(bg, r.lane.key).Err())
	r.lane.at, r.lane.served = r.lane.at.Add(-laneTTL), r.lane.served.Add(-laneTTL)
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(d, Completed)}, Want: 1})
	same(t, "alive", reply.Alive, true)
	same(t, "forgot", reply.Forgot, time.Time{})
	equal(t, "claimed", ids(reply.Deliveries), []string{"b"})
}

// For a repeated call it is not known when it was first run. So it is not known either how long its lane lives.
func testTimeOfACallMadeAgain(t *testing.T, r *rig) {
	r.open()
	r.call(ClaimRequest{})
	before := r.lane.served
	r.later()
	r.call(ClaimRequest{})
	between := r.lane.served
	same(t, "the time goes on", between.After(before), true)
	_, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session})
	r.must(err)
	same(t, "the time after the call was made again", r.lane.served, between)
}
