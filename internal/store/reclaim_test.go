package store

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

var reclaimTests = []storeTest{
	{"ReclaimInOrder", testReclaimOrder},
	{"ReclaimInChunks", testReclaimChunks},
	{"ReclaimTwice", testReclaimTwice},
	{"ReclaimedIsSuperseded", testReclaimedIsSuperseded},
	{"CrashIsNoAttempt", testCrashCounts},
	{"SuspectsRunApart", testSuspectsApart},
	{"SuspectAfterThreeCrashes", testThirdCrash},
	{"SuspectOfAnotherAge", testOtherAge},
	{"GoodDeliveriesEndCrashes", testSurvived},
	{"TooFewGoodDeliveries", testSurvivedTooFew},
	{"SuspectsOfTwoKinds", testMixedSuspects},
	{"SuspectWithACrashLeft", testLastCrash},
	{"NeighboursOfASuspect", testSuspectNeighbours},
	{"APoisonJobBesideASuspect", testFreshPoison},
	{"PoisonEndsDead", testPoison},
	{"SuspectComesBackAsOne", testSuspectReturns},
	{"DeadAreTold", testDeadTold},
	{"DeadBeforeTheirSpanWasHeardOf", testDeadUnheard},
	{"LostAreBounded", testLostBounded},
	{"LostAreAll", testLostAll},
	{"LostTooLarge", testLostTooLarge},
	{"LostUnasked", testLostUnasked},
	{"ReclaimOfLateSettlements", testReclaimLate},
}

func testReclaimOrder(t *testing.T, r *rig) {
	r.open()
	r.enqueued(r.item("h1", When{}, signalbox.PriorityHigh), r.item("h2", When{}, signalbox.PriorityHigh))
	r.put("a", "b", "c", "d")
	r.claim(5) // h1 h2 a b c
	r.crash()
	r.put("e")
	equal(t, "claimed", ids(r.claim(10)), []string{"h1", "h2", "a", "b", "c", "d", "e"})
}

func testReclaimChunks(t *testing.T, r *rig) {
	const n = 1200
	r.open()
	want := numbered("j", n)
	r.put(want[:MaxBatch]...)
	r.put(want[MaxBatch:]...)
	r.claim(MaxBatch)
	r.claim(MaxBatch)
	r.expire()
	for _, left := range []int{n - 500, n - 1000, 0} {
		res := r.reclaim(r.session)
		same(t, "left", res.Left, left)
		r.check()
	}
	same(t, "sessions", r.rdb.ZCard(bg, r.keys.Sessions).Val(), 0)
	same(t, "crashed", r.counts().Total.Crashed, n)
	r.session = "s2"
	r.open()
	got := append(ids(r.claim(MaxBatch)), ids(r.claim(MaxBatch))...)
	equal(t, "claimed", got, want)
}

func testReclaimTwice(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.claim(1)
	r.expire()
	same(t, "returned", len(r.reclaim(r.session).Returned), 1)
	before := r.dump()
	res := r.reclaim(r.session)
	same(t, "returned again", len(res.Returned)+len(res.Dead)+res.Left, 0)
	same(t, "done", res.Done, true)
	r.unchanged("a second reclaim", before)
	r.reclaim("unknown")
	r.unchanged("a reclaim of an unknown session", before)
}

func testReclaimedIsSuperseded(t *testing.T, r *rig) {
	r.open()
	r.put("a", "b")
	old := r.claim(2)
	late := &rig{Queue: r.Queue, t: t, lane: r.NewLane(), session: r.session}
	r.crash()
	got := r.claim(1)
	for i := range old {
		if got[0].Job.Token <= old[i].Job.Token {
			t.Errorf("token %d after %d", got[0].Job.Token, old[i].Job.Token)
		}
	}
	for _, o := range outcomes {
		before := r.dump()
		equal(t, string(o)+": refused", late.settle(settlement(old[0], o), settlement(old[1], o)), []int{0, 1})
		r.unchangedBut(string(o), before, late.lane)
	}
}

func testCrashCounts(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	r.one()
	r.crash()
	d := r.one()
	same(t, "crashes", d.Job.Crashes, 1)
	same(t, "attempt", d.Job.Attempt, 1)
	same(t, "crashed", r.counts().Total.Crashed, 1)
}

// suspects turns jobs into suspects: it lets them crash together.
func (r *rig) suspects(ids ...string) {
	r.t.Helper()
	r.put(ids...)
	for range SuspectAt {
		if got := len(r.claim(MaxBatch)); got != len(ids) {
			r.t.Fatalf("claimed %d of %d", got, len(ids))
		}
		r.crash()
	}
}

// crashed turns jobs into suspects with the given number of crashes. They crash together while that is possible, and then one after the
// other.
func (r *rig) crashed(crashes int, ids ...string) {
	r.t.Helper()
	r.suspects(ids...)
	for n := SuspectAt; n < crashes; n++ {
		for got := 0; got < len(ids); {
			claimed := len(r.claim(MaxBatch))
			if got += claimed; claimed == 0 {
				r.t.Fatalf("claimed %d of %d suspects with %d crashes", got, len(ids), n)
			}
			r.crash()
			// The jobs that crashed just now are first in the list. The others must get their turn.
			for range claimed {
				r.must(r.rdb.LMove(bg, r.keys.ReadySuspect, r.keys.ReadySuspect, "LEFT", "RIGHT").Err())
			}
		}
	}
}

// beside returns a rig with another session on the same queue.
func (r *rig) beside(session string) *rig {
	r.t.Helper()
	other := &rig{Queue: r.Queue, t: r.t, lane: r.NewLane(), session: session}
	other.open()
	return other
}

// Suspects with two crashes begin up to sixteen at a time.
func testSuspectsApart(t *testing.T, r *rig) {
	r.open()
	names := numbered("s", 20)
	r.suspects(names...)
	r.put("d", "e")
	same(t, "claimed by who can't have a suspect", len(r.call(ClaimRequest{Want: 1}).Deliveries), 1)
	got := r.claim(20)
	equal(t, "claimed", ids(got), append(names[:16:16], "e"))
	// A session gets no more suspects than that, whatever the caller asks for.
	equal(t, "claimed as well", ids(r.claim(10)), []string{})
	r.check()

	equal(t, "claimed by another", ids(r.beside("other").claim(2)), names[16:18])
	reply := r.call(ClaimRequest{Settle: []Settlement{settlement(got[0], Completed)}, Want: 5, Suspects: true})
	equal(t, "claimed when one was settled", ids(reply.Deliveries), names[18:19])
	same(t, "crashes of suspects", reply.Deliveries[0].Job.Crashes, SuspectAt)

	// When the first has run for long enough, others follow. The reply says when that will be.
	reply = r.call(ClaimRequest{Want: 5, Suspects: true, Apart: time.Minute})
	equal(t, "claimed while they keep others out", ids(reply.Deliveries), []string{})
	if reply.Next <= 50*time.Second || reply.Next > time.Minute {
		t.Errorf("next in %v, want the time when another suspect may run", reply.Next)
	}
	r.later()
	reply = r.call(ClaimRequest{Want: 5, Suspects: true, Apart: time.Microsecond})
	equal(t, "claimed when they have run long enough", ids(reply.Deliveries), names[19:])
	r.check()
}

// killed takes back the jobs of the session as if its process had died just after the last renewal. Until then each had run for so long.
func (r *rig) killed(ages map[string]time.Duration) {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	ttl := 12 * time.Second
	for id, value := range r.rdb.HGetAll(bg, r.keys.Inflight(r.session)).Val() {
		age, ok := ages[id]
		if !ok {
			r.t.Fatalf("%s runs, too", id)
		}
		_, flags, _ := strings.Cut(value, " ")
		token := strconv.FormatInt(now.Add(-ttl-age).UnixMicro(), 10)
		r.must(r.rdb.HSet(bg, r.keys.Inflight(r.session), id, strings.TrimSpace(token+" "+flags)).Err())
	}
	r.must(r.rdb.ZAdd(bg, r.keys.Sessions, redis.Z{Score: float64(now.UnixMicro()), Member: r.session}).Err())
	for {
		res, err := r.WithSessionTTL(ttl).Sessions().Reclaim(r.session, false).Next(bg)
		r.must(err)
		if res.Left == 0 {
			break
		}
	}
	r.session = "s" + NewID()
	r.open()
	r.check()
}

// The crash of a suspect that had run for another time than at its last crash doesn't count, but the next one does.
func testOtherAge(t *testing.T, r *rig) {
	r.open()
	at := func(crashes int, ages map[string]time.Duration) {
		t.Helper()
		same(t, "claimed", len(r.claim(MaxBatch)), len(ages))
		r.killed(ages)
		for id := range ages {
			same(t, "crashes of "+id, r.stored(id).Crashes, crashes)
		}
	}
	// The age is known to 5 s: a bomb that kills at the same age each time is never spared.
	r.put("bomb")
	at(1, map[string]time.Duration{"bomb": 3 * time.Second})
	at(2, map[string]time.Duration{"bomb": 61 * time.Second})
	at(3, map[string]time.Duration{"bomb": 64 * time.Second})
	at(4, map[string]time.Duration{"bomb": 60 * time.Second})
	same(t, "claimed", len(r.claim(1)), 1)
	r.killed(map[string]time.Duration{"bomb": 57 * time.Second})
	same(t, "dead", r.counts().Dead, 1)

	r.put("long", "short")
	at(1, map[string]time.Duration{"long": time.Hour, "short": time.Hour})
	at(2, map[string]time.Duration{"long": 0, "short": 0})
	same(t, "claimed", len(r.claim(2)), 2)
	r.killed(map[string]time.Duration{"long": 30 * time.Second, "short": 0})
	same(t, "crashes of one that had run for longer", r.stored("long").Crashes, 2)
	same(t, "crashes of one that had just begun", r.stored("short").Crashes, 3)
	equal(t, "those with more crashes run first", r.rdb.LRange(bg, r.keys.ReadySuspect, 0, -1).Val(), []string{"short", "long"})
	r.settled(settlement(r.one(), Completed))

	at(3, map[string]time.Duration{"long": time.Hour}) // only one is spared
	at(3, map[string]time.Duration{"long": 10 * time.Minute})
	at(4, map[string]time.Duration{"long": 10 * time.Minute})
	at(4, map[string]time.Duration{"long": 0})
	r.settled(settlement(r.one(), Completed))
}

// A job that crashed, and then ends by itself five times in a row, has crashed no more. Returns, and deliveries whose handler wasn't called, change
// nothing.
func testSurvived(t *testing.T, r *rig) {
	r.open()
	jobs := map[string]signalbox.Job{
		"plain": {}, "grouped": {Group: "g", Retain: time.Hour, ExpireAfter: time.Hour, Priority: signalbox.PriorityHigh}, "kept": {Retain: time.Hour},
		"serial": {Group: "s", Serial: true},
	}
	for id, job := range jobs {
		job.ID, job.Kind = id, "k"
		it, err := NewItem(&job, When{})
		r.must(err)
		it.Unique(Unique{Key: wire.UniqueKey("k", id, false), Scope: wire.UntilEnded})
		r.enqueued(it)
		d := r.one()
		before, due := r.rdb.HGet(bg, r.keys.Jobs, id).Val(), ""
		for crashes := range SuspectAt {
			r.crash()
			d = r.one()
			same(t, "crashes", d.Job.Crashes, crashes+1)
		}
		for n := range 2 * SurvivedAt {
			s := settlement(d, Delay)
			switch s.Delay = time.Hour; {
			case n%2 == 1:
				s.Survived = true
			case n%4 == 0:
				s.Outcome = Return
			}
			r.settled(s)
			r.check()
			record := r.rdb.HGet(bg, r.keys.Jobs, id).Val()
			same(t, "survived", wire.SurvivedOf([]byte(record)), (n+1)/2%SurvivedAt)
			for _, due = range r.rdb.ZRange(bg, r.keys.Due, 0, -1).Val() {
				r.makeDue(due)
			}
			if n < 2*SurvivedAt-1 {
				d = r.one()
				same(t, "crashes", d.Job.Crashes, SuspectAt)
			}
		}
		record := r.rdb.HGet(bg, r.keys.Jobs, id).Val()
		same(t, "the record, but for its due time", record[:12]+record[20:], before[:12]+before[20:])
		reply := r.call(ClaimRequest{Want: 1}) // by who can't have a suspect
		equal(t, "claimed", ids(reply.Deliveries), []string{id})
		r.settled(settlement(reply.Deliveries[0], Completed))
	}
}

// One good delivery between two crashes, or four, is not enough: such a job is dead at its fifth crash.
func testSurvivedTooFew(t *testing.T, r *rig) {
	r.open()
	r.put("a")
	for crashes := range CrashLimit {
		for range SurvivedAt - 1 {
			s := settlement(r.one(), Retry)
			s.Survived = true
			r.settled(s)
		}
		same(t, "crashes", r.one().Job.Crashes, crashes)
		r.crash()
	}
	same(t, "dead", r.counts().Dead, 1)
}

// A suspect with three crashes runs without other suspects until it has run for long enough.
func testThirdCrash(t *testing.T, r *rig) {
	r.open()
	r.crashed(3, "a", "b")
	equal(t, "claimed", ids(r.claim(10)), []string{"a"})
	equal(t, "claimed beside it", ids(r.claim(10)), []string{})
	reply := r.call(ClaimRequest{Want: 10, Suspects: true, Apart: time.Hour})
	equal(t, "claimed while it keeps others out", ids(reply.Deliveries), []string{})
	r.later()
	reply = r.call(ClaimRequest{Want: 10, Suspects: true, Apart: time.Microsecond})
	equal(t, "claimed when it has run long enough", ids(reply.Deliveries), []string{"b"})
}

// A suspect with two crashes doesn't run beside one with three, and the other way round.
func testMixedSuspects(t *testing.T, r *rig) {
	r.open()
	r.crashed(3, "three")
	r.suspects1("two", "two-too")
	got := r.claim(1)
	equal(t, "claimed", ids(got), []string{"three"})
	equal(t, "claimed beside it", ids(r.claim(10)), []string{})
	other := r.beside("other")
	equal(t, "claimed by another", ids(other.claim(1)), []string{"two"})
	r.settled(settlement(got[0], Return)) // to the head
	equal(t, "claimed beside one with two", ids(other.claim(10)), []string{})
	equal(t, "claimed by who has none", ids(r.claim(10)), []string{"three"})
}

// suspects1 makes suspects with two crashes while other suspects wait. It puts them behind those.
func (r *rig) suspects1(ids ...string) {
	r.t.Helper()
	waiting := r.rdb.LRange(bg, r.keys.ReadySuspect, 0, -1).Val()
	r.must(r.rdb.Del(bg, r.keys.ReadySuspect).Err())
	r.suspects(ids...)
	for _, id := range slices.Backward(waiting) {
		r.must(r.rdb.LPush(bg, r.keys.ReadySuspect, id).Err())
	}
}

// A suspect on its last crash never runs beside another one, however long either of them runs. So no suspect dies because of another
// one.
func testLastCrash(t *testing.T, r *rig) {
	r.open()
	r.crashed(CrashLimit-1, "last")
	r.suspects1("a", "b")
	patient := ClaimRequest{Want: 10, Suspects: true, Apart: time.Microsecond}
	got := r.call(patient).Deliveries
	equal(t, "claimed", ids(got), []string{"last"})
	equal(t, "claimed beside it", ids(r.call(patient).Deliveries), []string{})
	other := r.beside("other")
	equal(t, "claimed by another", ids(other.claim(1)), []string{"a"})
	r.settled(settlement(got[0], Return))
	equal(t, "claimed beside one that has run long enough", ids(other.call(patient).Deliveries), []string{})
	r.check()
}

func testSuspectNeighbours(t *testing.T, r *rig) {
	r.open()
	r.suspects("poison")
	r.put("a", "b")
	got := r.claim(10)
	equal(t, "claimed", ids(got), []string{"poison", "a", "b"})
	returned, _ := r.crash()
	slices.Sort(returned)
	equal(t, "returned", returned, []string{"a", "b", "poison"})
	crashes := map[string]int{}
	for _, d := range r.claim(10) {
		crashes[d.Job.ID] = d.Job.Crashes
	}
	same(t, "crashes of the suspect", crashes["poison"], SuspectAt+1)
	same(t, "crashes of another", crashes["a"], 1)
	same(t, "crashes of another", crashes["b"], 1)
}

// A poison job is found, even if it always runs beside an innocent suspect.
func testFreshPoison(t *testing.T, r *rig) {
	r.open()
	r.suspects("innocent")
	r.put("poison")
	for range 20 {
		got := r.claim(1)
		got = append(got, r.claim(1)...)
		if slices.Contains(ids(got), "poison") {
			r.crash()
			continue
		}
		var settle []Settlement
		for _, d := range got {
			settle = append(settle, settlement(d, Completed))
		}
		r.call(ClaimRequest{Settle: settle})
	}
	same(t, "dead", r.counts().Dead, 1)
	same(t, "completed", r.counts().Total.Completed, 1)
}

// A job kills its worker, together with innocent jobs. It ends dead, and none of the innocent jobs does.
func testPoison(t *testing.T, r *rig) {
	r.open()
	innocent := numbered("i", 49)
	r.put(innocent[:20]...)
	r.put("poison")
	r.put(innocent[20:]...)
	done := map[string]bool{}
	deaths := 0
	for range 500 {
		got := r.claim(50)
		if len(got) == 0 {
			break
		}
		if slices.Contains(ids(got), "poison") {
			deaths++
			r.crash() // all jobs of the session crash with it
			r.check()
			continue
		}
		for _, d := range got {
			done[d.Job.ID] = true
			r.settled(settlement(d, Completed))
		}
	}
	same(t, "deaths", deaths, CrashLimit)
	same(t, "innocent jobs done", len(done), len(innocent))
	c := r.counts()
	same(t, "dead", c.Dead, 1)
	var job signalbox.Job
	r.must(wire.Decode([]byte(r.rdb.HGet(bg, r.keys.Jobs, "poison").Val()), &job))
	same(t, "crashes", job.Crashes, CrashLimit)
	if !strings.Contains(job.LastError, "5 times") {
		t.Errorf("last error %q", job.LastError)
	}
}

// A suspect that is settled with an outcome other than completed remains a suspect.
func testSuspectReturns(t *testing.T, r *rig) {
	r.open()
	r.suspects("a")
	for _, o := range []Outcome{Return, Delay, Retry} {
		d := r.one()
		r.settled(settlement(d, o))
		same(t, "claimed by who can't have a suspect", len(r.call(ClaimRequest{Want: 1}).Deliveries), 0)
		r.check()
	}
	r.settled(settlement(r.one(), Completed))
}

// If a job dies, its reply has the details and the time without being asked for them.
func testDeadTold(t *testing.T, r *rig) {
	r.open()
	r.put("poison")
	for range CrashLimit - 1 {
		r.claim(1)
		r.crash()
	}
	last := r.one()
	r.note(last, "lost")
	r.put("beside")
	r.claim(1)
	r.expire()
	before, err := r.Now(bg)
	r.must(err)
	res := r.reclaim(r.session)
	after, err := r.Now(bg)
	r.must(err)
	if res.At.Before(before) || res.At.After(after) {
		t.Errorf("it was at %v, between %v and %v", res.At, before, after)
	}
	equal(t, "returned", res.Returned, []string{"beside"})
	same(t, "lost", len(res.Lost), 0)
	if equal(t, "dead", ids(res.Dead), []string{"poison"}); len(res.Dead) != 1 {
		t.FailNow()
	}
	d := res.Dead[0]
	r.must(d.Err)
	same(t, "kind", d.Job.Kind, "k")
	same(t, "crashes", d.Job.Crashes, CrashLimit)
	same(t, "span", d.Span, "lost")
	same(t, "token", d.Job.Token, last.Job.Token)
}

// A job died before its last span reached Redis. It has no span, although the attempt before had one.
func testDeadUnheard(t *testing.T, r *rig) {
	r.open()
	r.put("poison")
	for range CrashLimit - 1 {
		r.note(r.one(), "before")
		r.crash()
	}
	last := r.one()
	same(t, "span of the attempt before", last.Span, "before")
	r.expire()
	res := r.reclaim(r.session)
	equal(t, "dead", ids(res.Dead), []string{"poison"})
	if len(res.Dead) != 1 {
		t.Fatalf("a reclaim of the last crash: %+v", res)
	}
	same(t, "span", res.Dead[0].Span, "")
	same(t, "token", res.Dead[0].Job.Token, last.Job.Token)
	same(t, "spans", r.rdb.HLen(bg, r.keys.Notes).Val(), 0)
}

// If the records of all jobs don't fit into one call, some jobs are left for the next call.
func testLostBounded(t *testing.T, r *rig) {
	r.open()
	r.put("first")
	big := []string{"a", "b", "c", "d", "e"}
	for _, id := range big {
		r.bigOne(id, wire.MaxEnvelope-100)
	}
	r.put("last")
	var want []string
	for range 7 {
		want = append(want, ids(r.claim(10))...)
	}
	r.expire()
	var lost []string
	for calls := 1; ; calls++ {
		before := r.rdb.HLen(bg, r.keys.Inflight(r.session)).Val()
		res, err := r.Sessions().Reclaim(r.session, true).Next(bg)
		r.must(err)
		bytes := 0
		for _, d := range res.Lost {
			r.must(d.Err)
			bytes += len(d.Job.Payload)
		}
		equal(t, "lost", ids(res.Lost), res.Returned)
		if bytes > maxLost || int64(res.Left+len(res.Lost)) != before {
			t.Errorf("call %d: %d bytes come back, of %v; %d are left of %d", calls, bytes, res.Returned, res.Left, before)
		}
		lost = append(lost, res.Returned...)
		r.check()
		if res.Left == 0 {
			same(t, "calls", calls, 3)
			break
		}
		if calls == 10 {
			t.Fatal("there is no end")
		}
	}
	slices.Reverse(lost)
	equal(t, "lost", lost, want)
	r.session = "s2"
	r.open()
	var again []string
	for range 7 {
		again = append(again, ids(r.claim(10))...)
	}
	equal(t, "claimed", again, want)
}

// bigOne enqueues a job with a payload of the given size in bytes.
func (r *rig) bigOne(id string, bytes int) {
	r.t.Helper()
	it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: make([]byte, bytes)}, When{})
	r.must(err)
	r.enqueued(it)
}

// If a record is too large for any call, the call leaves the record out and continues.
func testLostTooLarge(t *testing.T, r *rig) {
	r.open()
	r.put("a", "huge", "b", "huger", "c")
	want := ids(r.claim(10))
	for _, id := range []string{"huge", "huger"} {
		record := r.rdb.HGet(bg, r.keys.Jobs, id).Val()
		r.must(r.rdb.HSet(bg, r.keys.Jobs, id, record+strings.Repeat("x", maxLost)).Err())
	}
	r.must(r.rdb.HSet(bg, r.keys.Stats, "largest", 2*maxLost).Err())
	r.expire()
	var lost, returned []string
	for calls := 1; ; calls++ {
		res, err := r.Sessions().Reclaim(r.session, true).Next(bg)
		r.must(err)
		lost, returned = append(lost, ids(res.Lost)...), append(returned, res.Returned...)
		if res.Left == 0 {
			break
		}
		if calls == 10 {
			t.Fatalf("there is no end: %v, %v", returned, lost)
		}
	}
	equal(t, "lost", lost, []string{"c", "b", "a"})
	slices.Reverse(returned)
	equal(t, "returned", returned, want)
}

// A caller that doesn't ask for jobs that run again isn't told about them, and the call doesn't read their records.
func testLostUnasked(t *testing.T, r *rig) {
	r.open()
	r.put("empty")
	for _, id := range []string{"a", "b", "c"} {
		r.bigOne(id, wire.MaxEnvelope-100)
	}
	for range 4 {
		r.claim(1)
	}
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "empty", "").Err())
	r.expire()
	res := r.reclaim(r.session)
	equal(t, "returned", res.Returned, []string{"c", "b"})
	same(t, "lost", len(res.Lost), 0)
	same(t, "left", res.Left, 2)
	equal(t, "returned next", r.reclaim(r.session).Returned, []string{"a", "empty"})
}

// Jobs that are settled while their session is taken back are left alone.
func testReclaimLate(t *testing.T, r *rig) {
	r.open()
	want := numbered("j", maxReclaim+10)
	r.put(want...)
	got := r.claim(MaxBatch)
	r.expire()
	recovery := r.Sessions().Reclaim(r.session, false)
	res, err := recovery.Next(bg)
	r.must(err)
	same(t, "returned", len(res.Returned), maxReclaim)
	same(t, "done", res.Done, false)
	r.settled(settlement(got[0], Completed), settlement(got[1], Return))
	res, err = recovery.Next(bg)
	r.must(err)
	same(t, "returned next", len(res.Returned), 8)
	same(t, "done", res.Done, true)
	same(t, "sessions", r.rdb.ZCard(bg, r.keys.Sessions).Val(), 0)
	same(t, "crashed", r.counts().Total.Crashed, int64(len(want)-2))
}

// A full call takes back jobs of usual size with all of their records.
func testLostAll(t *testing.T, r *rig) {
	r.open()
	items := make([]Item, maxReclaim)
	for i, id := range numbered("j", len(items)) {
		it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Payload: make([]byte, 4000)}, When{})
		r.must(err)
		items[i] = it
	}
	r.enqueued(items...)
	for range 3 {
		r.claim(MaxBatch)
	}
	r.expire()
	res, err := r.Sessions().Reclaim(r.session, true).Next(bg)
	r.must(err)
	same(t, "lost", len(res.Lost), len(items))
}
