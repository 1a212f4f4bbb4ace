package store

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

var keptTests = []storeTest{
	{"CompletedAreKept", testCompletedAreKept},
	{"CompletedKeptByLimits", testCompletedKeptByLimits},
	{"CompletedKeptNoMore", testCompletedKeptNoMore},
	{"CompletedDroppedInParts", testCompletedDroppedInParts},
	{"CompletedWithoutARecord", testCompletedWithoutARecord},
	{"CompletedKeptTwice", testCompletedKeptTwice},
	{"CompletedAreReplaced", testCompletedAreReplaced},
	{"CompletedRunAgain", testCompletedRunAgain},
	{"CompletedAndCancelled", testCompletedAndCancelled},
	{"CompletedSettings", testCompletedSettings},
	{"LargestAmongCompleted", testLargestAmongCompleted},
	{"EndedRoom", testEndedRoom},
}

var successOf = Attempt{Number: 1, At: time.UnixMicro(1_750_000_000_000_000), Ran: 30 * time.Millisecond, Worker: "w1"}

// kept is the settlement of a completed job that is to be kept.
func kept(d Delivery) Settlement {
	s := settlement(d, Completed)
	s.Keep = Kept(&successOf, []byte("7"))
	return s
}

// buryCompleted completes jobs whose worker asks to keep them.
func (r *rig) buryCompleted(ids ...string) {
	r.t.Helper()
	r.put(ids...)
	for range ids {
		r.settled(kept(r.claim(1)[0]))
	}
}

func (r *rig) keepCompleted(limits signalbox.Retention) {
	r.t.Helper()
	r.must(r.Settings().SetCompleted(bg, limits))
}

// shown returns what the queue has of a job.
func (r *rig) shown(id string) looks.View {
	r.t.Helper()
	v, _, found, err := r.Looks().Show(bg, id)
	r.must(err)
	if !found {
		r.t.Fatalf("there is no job %s", id)
	}
	return v
}

func testCompletedAreKept(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.put("a")
	d := r.one()
	retry := settlement(d, Retry)
	var err error
	retry.Record, err = d.FailedAttempt("boom", &Attempt{Number: 1, Error: "boom", Worker: "w0"})
	r.must(err)
	r.settled(retry)
	begin, err := r.Now(bg)
	r.must(err)
	r.settled(kept(r.one()))

	same(t, "counts", r.counts(), looks.Counts{Completed: 1, Total: looks.Totals{Enqueued: 1, Retried: 1, Completed: 1}})
	v := r.shown("a")
	same(t, "state", v.State, signalbox.StateCompleted)
	if v.Success == nil || *v.Success != successOf {
		t.Errorf("the attempt that completed it: %+v", v.Success)
	}
	same(t, "result", string(v.Result), "7")
	if len(v.Attempts) != 1 || v.Attempts[0].Worker != "w0" || v.Job.LastError != "boom" {
		t.Errorf("its failed attempts: %+v, %q", v.Attempts, v.Job.LastError)
	}
	if v.At.Before(begin.Truncate(time.Microsecond)) || v.Job.Kind != "k" || string(v.Job.Payload) != `"a"` {
		t.Errorf("it ended at %v, after %v: %+v", v.At, begin, v.Job)
	}
	d2, err := r.Looks().Depths(bg)
	r.must(err)
	same(t, "depths", d2, looks.Depths{Completed: 1})
	page, err := r.listed(looks.Listing{State: signalbox.StateCompleted})
	r.must(err)
	equal(t, "listed", viewed(page), []string{"a"})
	if page[0].Success == nil || page[0].Success.Worker != "w1" {
		t.Errorf("a listed one was completed by %+v", page[0].Success)
	}
	size := r.rdb.HStrLen(bg, r.keys.Jobs, "a").Val()
	same(t, "bytes", r.rdb.HGet(bg, r.keys.Stats, "completed_bytes").Val(), strconv.FormatInt(size, 10))
}

func testCompletedKeptByLimits(t *testing.T, r *rig) {
	r.open()
	r.kept.Jobs = 1 // of dead ones
	r.keepCompleted(signalbox.Retention{Jobs: 2})
	r.bury(Dead, "x", "y")
	r.buryCompleted("a", "b", "c")
	equal(t, "by number", r.buried(r.keys.Completed), []string{"b", "c"})
	equal(t, "dead", r.buried(r.keys.Dead), []string{"y"})
	one := r.rdb.HStrLen(bg, r.keys.Jobs, "c").Val()
	r.keepCompleted(signalbox.Retention{Bytes: one})
	r.buryCompleted("d")
	equal(t, "by bytes", r.buried(r.keys.Completed), []string{"d"})
	r.keepCompleted(signalbox.Retention{Age: time.Hour})
	r.buryCompleted("e", "f")
	r.age(r.keys.Completed, "d", time.Hour+time.Minute)
	r.age(r.keys.Completed, "e", time.Hour-time.Minute)
	same(t, "swept", r.sweep(), 1)
	equal(t, "by age", r.buried(r.keys.Completed), []string{"e", "f"})
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 3)
}

// After its limits were lowered, a queue has many jobs too many. One call drops a bounded number of them, however many jobs it settles.
func testCompletedDroppedInParts(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 100_000})
	const old, batch = 2_000, 30
	ids := numbered("old", old)
	for some := range slices.Chunk(ids, 500) {
		r.put(some...)
		var settle []Settlement
		for _, d := range r.claim(len(some)) {
			settle = append(settle, kept(d))
		}
		r.settled(settle...)
	}
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.put(numbered("new", batch)...)
	var settle []Settlement
	for _, d := range r.claim(batch) {
		settle = append(settle, kept(d))
	}
	r.settled(settle...)
	left := int(r.rdb.ZCard(bg, r.keys.Completed).Val())
	if dropped := old + batch - left; dropped < 500 || dropped > 700 {
		t.Errorf("a call that settles %d jobs drops %d", batch, dropped)
	}
	for r.sweep() > 0 {
	}
	equal(t, "left", r.buried(r.keys.Completed), numbered("new", batch)[batch-10:])
}

// The settings decide: a worker that has not heard yet that none are kept deletes its jobs all the same, and a sweep drops the others.
func testCompletedKeptNoMore(t *testing.T, r *rig) {
	r.open()
	r.buryCompleted("never")
	equal(t, "where none are kept", r.buried(r.keys.Completed), nil)
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.buryCompleted("a", "b")
	same(t, "a sweep drops", r.sweep(), 0)
	r.keepCompleted(signalbox.Retention{})
	r.buryCompleted("c")
	equal(t, "where none are kept any more", r.buried(r.keys.Completed), []string{"a", "b"})
	same(t, "a sweep drops", r.sweep(), 2)
	same(t, "records", r.rdb.HLen(bg, r.keys.Jobs).Val(), 0)
	same(t, "total", r.counts().Total, looks.Totals{Enqueued: 4, Completed: 4})
	for _, strange := range []string{"1 2", "1 2 0", "1 2 x", "1 2 3 4", " ", "01 2 3", "1000000000000000 1 1"} {
		r.must(r.rdb.HSet(bg, r.keys.Settings, "keep_completed", strange).Err())
		r.buryCompleted("d")
		equal(t, "with the setting "+strange, r.buried(r.keys.Completed), nil)
		ending, err := r.Settings().Ending(bg)
		r.must(err)
		got := ending.Completed
		same(t, "the setting "+strange, got, signalbox.Retention{})
	}
}

func testCompletedWithoutARecord(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.put("a", "b")
	got := r.claim(2)
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "a").Err())
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "b", "strange").Err())
	r.settled(kept(got[0]), kept(got[1]))
	equal(t, "completed", r.buried(r.keys.Completed), []string{"b"})
	same(t, "a record without a header", r.rdb.HGet(bg, r.keys.Jobs, "b").Val(), "strange")
	same(t, "total", r.counts().Total, looks.Totals{Enqueued: 2, Completed: 1})
}

// A repeated call, and one whose delivery was superseded, keep nothing twice. Other outcomes go in the same call.
func testCompletedKeptTwice(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.put("a", "b", "c", "d")
	got := r.claim(4)
	r.lane.Next()
	late := kept(got[3])
	late.Token--
	req := &ClaimRequest{Session: r.session, Settle: []Settlement{settlement(got[0], Completed), kept(got[1]), settlement(got[2], Dead), late, kept(got[1])}}
	for range 2 {
		reply, err := r.Sessions().Claim(bg, r.lane, req)
		r.must(err)
		equal(t, "refused", reply.Refused, []int{3, 4})
	}
	equal(t, "completed", r.buried(r.keys.Completed), []string{"b"})
	equal(t, "dead", r.buried(r.keys.Dead), []string{"c"})
	same(t, "total", r.counts().Total, looks.Totals{Enqueued: 4, Completed: 2, Dead: 1})
	same(t, "appended", strings.Count(r.rdb.HGet(bg, r.keys.Jobs, "b").Val(), "w1"), 1)
}

// The ID of a completed job is free: another job takes it, unless the caller wants none that replaces another.
func testCompletedAreReplaced(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.buryCompleted("a", "b", "c")
	cautious := r.item("a", When{}, 0)
	cautious.IfAbsent()
	tick := r.item("b", When{At: time.Now().Add(-time.Second), Entry: "e"}, 0)
	same(t, "fates", r.fates(cautious, tick, r.item("c", When{}, 0), r.item("c", When{}, 0)), "ftF0")
	equal(t, "completed", r.buried(r.keys.Completed), []string{"a", "b"})
	same(t, "the new one", r.one().Job.ID, "c")
}

func testCompletedRunAgain(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.buryCompleted("a", "b")
	same(t, "run", r.did(RunJobs(time.Time{}), "a"), Answer{Done, signalbox.StateCompleted})
	same(t, "deleted", r.did(DeleteJobs(), "b"), Answer{Done, signalbox.StateCompleted})
	same(t, "cancelled", r.did(CancelJobs(""), "a"), Answer{Done, signalbox.StateReady})
	same(t, "counts", r.counts(), looks.Counts{Cancelled: 1, Total: looks.Totals{Enqueued: 2, Completed: 2, Cancelled: 1, Deleted: 1, Revived: 1}})
	r.did(RunJobs(time.Time{}), "a")
	if v := r.shown("a"); v.Success != nil || v.Result != nil || v.State != signalbox.StateReady {
		t.Errorf("it is %s, completed by %+v, with the result %q", v.State, v.Success, v.Result)
	}
	d := r.one()
	same(t, "attempt", d.Job.Attempt, 1)
	s := settlement(d, Completed)
	s.Keep = Kept(&Attempt{Number: 1, Worker: "w2"}, nil)
	r.settled(s)
	again := r.shown("a")
	same(t, "completed by", again.Success.Worker, "w2")
	if again.Result != nil {
		t.Errorf("the run that set no result has that of the one before: %q", again.Result)
	}
	same(t, "an act that isn't for it", r.did(CancelJobs(""), "a"), Answer{Wrong, signalbox.StateCompleted})
}

// A job that was cancelled while it ran ends cancelled, also if its worker asks to keep it as completed. Its record says that the handler
// had finished.
func testCompletedAndCancelled(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.put("a")
	d := r.one()
	r.cancel("a")
	equal(t, "overruled", r.call(ClaimRequest{Settle: []Settlement{kept(d)}}).Overruled, []int{0})
	v := r.shown("a")
	if v.State != signalbox.StateCancelled || v.Err != nil || !v.Job.Finished || string(v.Job.Payload) != `"a"` {
		t.Errorf("%s: %+v, %v", v.State, v.Job, v.Err)
	}
}

func testCompletedSettings(t *testing.T, r *rig) {
	is := func(want signalbox.Retention) {
		t.Helper()
		ending, err := r.Settings().Ending(bg)
		r.must(err)
		got := ending.Completed
		same(t, "kept", got, want)
		s, err := r.Settings().Read(bg)
		r.must(err)
		same(t, "in the settings", s.Completed, want)
	}
	is(signalbox.Retention{})
	r.tells(settings.Wanted{Completed: signalbox.Retention{Jobs: 7, Age: time.Hour + time.Nanosecond}})
	seven := signalbox.Retention{Jobs: 7, Bytes: 256 << 20, Age: time.Hour}
	is(seven)
	r.tells(settings.Wanted{Completed: signalbox.Retention{Jobs: 7, Age: time.Hour}})
	is(seven)
	r.keepCompleted(signalbox.Retention{Bytes: 1})
	is(signalbox.Retention{Jobs: 100_000, Bytes: 1, Age: 30 * 24 * time.Hour})
	r.keepCompleted(signalbox.Retention{})
	is(signalbox.Retention{})
	r.tells(settings.Wanted{Completed: signalbox.Retention{Jobs: 7, Age: time.Hour}}) // somebody has set that none are kept
	is(signalbox.Retention{})
}

// Kept jobs don't keep the size of the largest record from being reset once all large ones have ended.
func testLargestAmongCompleted(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.room = 8000
	item, err := NewItem(&signalbox.Job{ID: "large", Kind: "k", Payload: []byte(`"` + strings.Repeat("x", 9000) + `"`)}, When{})
	r.must(err)
	r.enqueued(item)
	r.settled(kept(r.one()))
	r.call(ClaimRequest{Want: 2})
	same(t, "largest", r.rdb.HGet(bg, r.keys.Stats, "largest").Val(), "4096")
}

// Where no completed job is kept, a claim pays nothing for those that might be: not a command, not an argument.
func TestCompletedRetentionIsFree(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a")
	d := r.one()
	r.lane.Next()
	var got []string
	spy := &keySpy{}
	rdb := r.rdb
	r.Queue.rdb = spy.wrap(t)
	_, _ = r.Sessions().Claim(bg, r.lane, &ClaimRequest{Session: r.session, Settle: []Settlement{settlement(d, Completed)}, Want: 1})
	r.Queue.rdb = rdb
	got = spy.keys
	want := scripts.Claim.Keys(&r.keys, r.lane.key, r.keys.Inflight(r.session))
	equal(t, "keys", got, want)
	args := r.Sessions().claimArgs(r.lane, &ClaimRequest{Session: r.session, Settle: []Settlement{settlement(d, Completed)}, Want: 1})
	same(t, "arguments", len(args), len(scripts.Claim.ArgNames)+2)
	r.settled(settlement(d, Completed))
}

// What the server runs for them says nothing of completed jobs either. It does once the queue keeps some.
func TestCompletedRetentionRunsNoCommands(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newQueue(t, srv.Client())
	r.open()
	log := monitor(t, srv.Addr())
	about := func(what string, s Settlement) (about, all int) {
		r.settled(s)
		r.must(r.rdb.Echo(bg, "end "+what).Err())
		for log.Scan() && !strings.Contains(log.Text(), `"end `+what+`"`) {
			if _, call, lua := strings.Cut(log.Text(), " lua] "); lua {
				all++
				if strings.Contains(call, `keep_completed"`) || strings.Contains(call, `:completed"`) {
					about++
				}
			}
		}
		return about, all
	}
	r.put("a", "b")
	got := r.claim(2)
	n, all := about("plain", settlement(got[0], Completed))
	if n != 0 || all < 10 {
		t.Errorf("%d of %d commands are about completed jobs that are kept", n, all)
	}
	if n, _ := about("kept", kept(got[1])); n == 0 {
		t.Error("the monitor doesn't see such commands")
	}
}

// Those who wait for ends are answered in the order in which they ask: as many as have room in a reply, and one at least.
func testEndedRoom(t *testing.T, r *rig) {
	r.open()
	r.keepCompleted(signalbox.Retention{Jobs: 10})
	r.buryCompleted("a", "b")
	r.put("c")
	for room, want := range map[int][]looks.EndState{1: {looks.Over}, 10_000: {looks.Over, looks.Over, looks.Live, looks.NoJob}} {
		r.room = room
		ends, err := r.Looks().Ended(bg, []string{"a", "b", "c", "d"})
		r.must(err)
		var got []looks.EndState
		for _, e := range ends {
			got = append(got, e.State)
			if e.State == looks.Over && (e.View.State != signalbox.StateCompleted || string(e.View.Result) != "7" || e.View.At.IsZero() || e.View.Err != nil) {
				t.Errorf("%+v", e.View)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("with room for %d bytes: %v, want %v", room, got, want)
		}
	}
}
