package store

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var claimTests = []storeTest{
	{"TokensGrow", testTokensGrow},
	{"NoMoreThanWanted", testWanted},
	{"SkipsIDsWithoutRecord", testNoRecord},
	{"SkipsIDsInFlight", testListedTwice},
	{"GarbageRecordHarmsNobody", testGarbageRecord},
	{"NewerRecordIsKept", testNewerRecord},
	{"HintsOfNext", testHints},
}

func testTokensGrow(t *testing.T, r *rig) {
	r.open()
	last := int64(0)
	r.put(numbered("j", 10)...)
	for range 20 {
		got := r.claim(3)
		var back []Settlement
		for _, d := range got {
			if d.Job.Token <= last {
				t.Fatalf("token %d after %d", d.Job.Token, last)
			}
			last = d.Job.Token
			back = append(back, settlement(d, Return))
		}
		same(t, "fence", r.fence(), last)
		r.settled(back...)
	}
}

func (r *rig) fence() int64 {
	r.t.Helper()
	n, err := r.rdb.Get(bg, r.keys.Fence).Int64()
	r.must(err)
	return n
}

func testWanted(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b", "c")
	reply := r.call(ClaimRequest{})
	same(t, "claimed by a call that wants nothing", len(reply.Deliveries), 0)
	same(t, "more", reply.More, true)
	reply = r.call(ClaimRequest{Want: 2})
	equal(t, "claimed", ids(reply.Deliveries), []string{"a", "b"})
	same(t, "more", reply.More, true)
	reply = r.call(ClaimRequest{Want: 2})
	equal(t, "claimed", ids(reply.Deliveries), []string{"c"})
	same(t, "more", reply.More, false)
	same(t, "running", r.counts().Running, 3)
}

func testNoRecord(t *testing.T, r *rig) {
	r.open()
	r.put("a", "gone", "b")
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "gone").Err())
	r.must(r.rdb.RPush(bg, r.keys.ReadyHigh, "", "never").Err())
	equal(t, "claimed", ids(r.claim(10)), []string{"a", "b"})
	r.check()
	r.must(r.rdb.RPush(bg, r.keys.ReadyHigh, "never").Err())
	equal(t, "claimed", ids(r.claim(10)), []string{})
}

func testListedTwice(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	r.must(r.rdb.RPush(bg, r.keys.ReadyHigh, "b", "b").Err())
	got := r.claim(3)
	equal(t, "claimed", ids(got), []string{"b", "a"})
	r.must(r.rdb.RPush(bg, r.keys.ReadyNormal, "a").Err())
	equal(t, "claimed while in flight", ids(r.claim(3)), []string{})
}

func testGarbageRecord(t *testing.T, r *rig) {
	r.open()
	r.put("a", "garbage", "empty", "short", "b")
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "garbage", "not a record at all, but long enough", "empty", "", "short", "\x011").Err())
	got := r.claim(10)
	equal(t, "claimed", ids(got), []string{"a", "garbage", "empty", "short", "b"})
	for i, d := range got {
		if bad := i >= 1 && i <= 3; bad != errors.Is(d.Err, wire.ErrCorrupt) {
			t.Errorf("%s: %v", d.Job.ID, d.Err)
		}
	}
	// A job that is put back, crashed or buried keeps its bytes.
	r.settled(settlement(got[1], Delay), settlement(got[2], Delay), settlement(got[3], Delay))
	same(t, "short record after a delay", r.rdb.HGet(bg, r.keys.Jobs, "short").Val(), "\x011")
	got = r.claim(10)
	same(t, "claimed again", len(got), 3)
	_, dead := r.crash()
	equal(t, "dead of a crash", dead, nil)
	for range 10 {
		for _, d := range r.claim(10) {
			if d.Err != nil {
				r.settled(settlement(d, Dead))
			}
		}
	}
	same(t, "dead", r.counts().Dead, 3)
	same(t, "short record when dead", r.rdb.HGet(bg, r.keys.Jobs, "short").Val(), "\x011")
	same(t, "empty record when dead", r.rdb.HGet(bg, r.keys.Jobs, "empty").Val(), "")
}

func testNewerRecord(t *testing.T, r *rig) {
	r.open()
	r.put("new")
	record := r.rdb.HGet(bg, r.keys.Jobs, "new").Val()
	newer := "\x03" + record[1:] + "something else"
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "new", newer).Err())
	d := r.one()
	if !d.Newer() || !errors.Is(d.Err, wire.ErrVersion) {
		t.Fatalf("a record of version 2: %v", d.Err)
	}
	s := settlement(d, Delay)
	s.Delay = time.Hour
	r.settled(s)
	kept := r.rdb.HGet(bg, r.keys.Jobs, "new").Val()
	same(t, "kept but for its due time", kept[:12]+kept[20:], newer[:12]+newer[20:])
	same(t, "due", r.counts().Due, 1)

	// A suspect is recognised by its header, which all versions share.
	r.makeDue("1new")
	for range SuspectAt {
		r.one()
		r.crash()
	}
	d = r.one()
	same(t, "crashes of a newer record", d.Job.Crashes, SuspectAt)
	r.settled(settlement(d, Delay))
}

func testHints(t *testing.T, r *rig) {
	alive, hints, err := r.Sessions().Open(bg, r.session, time.Minute)
	r.must(err)
	if !alive || hints.Next <= 59*time.Second || hints.Next > time.Minute {
		t.Errorf("alive %v, next in %v; want the end of the session", alive, hints.Next)
	}
	r.enqueued(r.item("a", When{After: 10 * time.Second}, signalbox.PriorityNormal))
	for what, hints := range map[string]Hints{"renew": r.renewed(), "claim": r.call(ClaimRequest{Want: 1}).Hints} {
		if hints.Next <= 9*time.Second || hints.Next > 10*time.Second || hints.More || len(hints.Expired) > 0 {
			t.Errorf("%s: %+v, want 10 s until the job is due", what, hints)
		}
	}
	other := &rig{Queue: r.Queue, t: t, session: "other"}
	other.open()
	other.expire()
	equal(t, "expired by renew", r.renewed().Expired, []string{"other"})
	equal(t, "expired by claim", r.call(ClaimRequest{Want: 1}).Expired, []string{"other"})
}

func (r *rig) renewed() Hints {
	r.t.Helper()
	alive, hints, err := r.Sessions().Renew(bg, r.session, time.Minute, "")
	r.must(err)
	if !alive {
		r.t.Fatal("the session is over")
	}
	return hints
}

// If the fence is not a token, the call returns an error before anything is settled.
func TestBadFence(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a", "b")
	d := r.claim(1)[0]
	good := r.rdb.Get(bg, r.keys.Fence).Val()
	for _, bad := range []string{"", "x", "1.5", "-1", "nan", "inf", "0x10", "9007199254740991", "1e300", "99999999999999999999"} {
		r.must(r.rdb.Set(bg, r.keys.Fence, bad, 0).Err())
		before := r.dump()
		r.lane.Next()
		_, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Want: 1, Settle: []Settlement{settlement(d, Completed)}})
		if err == nil || !strings.HasPrefix(err.Error(), "ERR signalbox: the fence") {
			t.Errorf("fence %q: %v", bad, err)
		}
		r.unchanged("a claim with fence "+bad, before)
	}
	r.must(r.rdb.Set(bg, r.keys.Fence, good, 0).Err())
	reply := r.call(ClaimRequest{Want: 1, Settle: []Settlement{settlement(d, Completed)}})
	equal(t, "claimed when it is mended", ids(reply.Deliveries), []string{"b"})
}

// Garbage in a session's hash and in lanes is ignored.
func TestGarbageInKeys(t *testing.T) {
	t.Parallel()
	r := unchecked(t, redistest.Start(t).Client())
	r.open()
	r.put("a", "b", "c")
	d := r.claim(1)[0]
	r.must(r.rdb.HSet(bg, r.keys.Inflight(r.session), "x", "garbage", "y", "nan", "z", "", "w", "1e3s").Err())
	equal(t, "claimed", ids(r.claim(1)), []string{"b"})
	again, err := r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Want: 1}) // reads the whole hash
	r.must(err)
	equal(t, "claimed by the same call", ids(again.Deliveries), []string{"b"})
	equal(t, "refused", r.settle(Settlement{ID: "x", Token: 5, Outcome: Completed}, settlement(d, Completed)), []int{0})

	r.must(r.rdb.Set(bg, r.lane.key, "garbage", 0).Err())
	same(t, "alive when Redis doesn't know an answered call", r.call(ClaimRequest{Want: 1}).Alive, false)
	equal(t, "claimed by the lane from then on", ids(r.claim(1)), []string{"c"})
	r.must(r.rdb.Set(bg, r.producer.key, "garbage", 0).Err())
	equal(t, "new through a garbage lane", r.put("d"), []bool{true})

	r.must(r.rdb.HSet(bg, r.keys.Stats, "enqueued", "many", "completed", "", "dead_bytes", "big", "crashed", "1.5").Err())
	equal(t, "new despite garbage counters", r.put("e"), []bool{true})
	d = r.claim(1)[0]
	r.settled(settlement(d, Completed))
	d = r.claim(1)[0]
	r.settled(settlement(d, Dead))
	same(t, "dead bytes begin anew", r.rdb.HGet(bg, r.keys.Stats, "dead_bytes").Val(),
		strconv.Itoa(len(r.rdb.HGet(bg, r.keys.Jobs, d.Job.ID).Val())))

	r.must(r.rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: 1, Member: ""}, redis.Z{Score: 2, Member: "?odd"}, redis.Z{Score: 3, Member: "1"}).Err())
	equal(t, "claimed of garbage that is due", ids(r.claim(5)), []string{})
	r.expire()
	for res := r.reclaim(r.session); ; res = r.reclaim(r.session) {
		equal(t, "reclaimed", res.Returned, []string{"c", "b"}[:len(res.Returned)])
		if res.Left == 0 {
			break
		}
	}
	r.check() // all garbage is gone without help
}
