package store

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

var tickTests = []storeTest{
	{"TickFiresOnce", testTick},
	{"TickInTheFuture", testEarlyTick},
	{"TickWhoseJobIsThere", testTickOfJob},
	{"TicksInBulk", testTicks},
	{"OnlyEarlyTicks", testOnlyEarly},
	{"LateTicks", testLateTick},
	{"TicksByAReckoning", testReckoning},
	{"TicksOfTheFuture", testMarkAhead},
}

// tick enqueues the job of a tick through its own lane, like another scheduler.
func (r *rig) tick(entry string, at time.Time, id string) Fate {
	r.t.Helper()
	return r.reckoned(entry, at, id, Reckoning{})
}

// reckoned is like tick, for a scheduler that has watched the server's clock.
func (r *rig) reckoned(entry string, at time.Time, id string, by Reckoning) Fate {
	r.t.Helper()
	lane := r.NewLane()
	lane.Next()
	items := []Item{r.item(id, When{At: at, Entry: entry}, signalbox.PriorityNormal)}
	fates, err := r.EnqueueTicks(bg, lane, items, by)
	r.must(err)
	if fates.Now.IsZero() {
		r.t.Error("no server time")
	}
	again, err := r.EnqueueTicks(bg, lane, items, by)
	r.must(err)
	same(r.t, "the same call again", again.Of(0), fates.Of(0))
	return fates.Of(0)
}

func testTick(t *testing.T, r *rig) {
	r.open()
	now, err := r.Now(bg)
	r.must(err)
	first, second := now.Add(-20*time.Millisecond), now.Add(-10*time.Millisecond)
	same(t, "the first tick", r.tick("e", first, "e1"), PutIn)
	same(t, "by another scheduler", r.tick("e", first, "e1x"), Taken)
	same(t, "the second", r.tick("e", second, "e2"), PutIn)
	same(t, "the first, late", r.tick("e", first, "e1y"), Taken)
	same(t, "of another entry", r.tick("f", first, "f1"), PutIn)
	got := r.claim(10)
	equal(t, "claimed", ids(got), []string{"e1", "e2", "f1"})
	same(t, "scheduled", got[0].Job.ScheduledAt.UnixMicro(), first.UnixMicro())

	r.settled(settlement(got[0], Completed), settlement(got[1], Completed), settlement(got[2], Completed))
	same(t, "when the job has come and gone", r.tick("e", second, "e2"), Taken)
}

func testEarlyTick(t *testing.T, r *rig) {
	now, err := r.Now(bg)
	r.must(err)
	before := r.dump()
	same(t, "a tick to come", r.tick("e", now.Add(time.Minute), "e1"), Early)
	r.unchanged("an early tick", before)
	same(t, "one that is", r.tick("e", now, "e1"), PutIn)
}

// The mark of a tick was lost, but its job still exists. The job is not enqueued again. The mark is written again, so that no scheduler
// tries once more.
func testTickOfJob(t *testing.T, r *rig) {
	now, err := r.Now(bg)
	r.must(err)
	r.put("e1")
	same(t, "a tick whose job is there", r.tick("e", now, "e1"), Taken)
	same(t, "again", r.tick("e", now, "e1x"), Taken)
	same(t, "ready", r.counts().Ready, 1)
}

// Ticks of many entries go into one call, together with other jobs. The script decides about each tick separately.
func testTicks(t *testing.T, r *rig) {
	r.open()
	now, err := r.Now(bg)
	r.must(err)
	tick := func(entry string, at time.Duration, id string) Item {
		return r.item(id, When{At: now.Add(at), Entry: entry}, signalbox.PriorityNormal)
	}
	same(t, "the first call", r.fates(
		tick("a", -20*time.Millisecond, "a1"), tick("b", -20*time.Millisecond, "b1"), r.item("plain", When{}, 0),
		tick("c", time.Hour, "c1"), tick("a", -10*time.Millisecond, "a2"), tick("a", -10*time.Millisecond, "a2x"), tick("a", -20*time.Millisecond, "a1x"),
		r.item("later", When{After: time.Hour}, 0), tick("d", -10*time.Millisecond, "plain"),
	), "111e1tt1t")
	items := []Item{
		tick("a", -10*time.Millisecond, "a2y"), tick("b", -10*time.Millisecond, "b2"), tick("c", time.Hour, "c1"), tick("d", -10*time.Millisecond, "d1"), r.item("plain", When{}, 0),
	}
	same(t, "another scheduler's", r.fates(items...), "t1et0")
	before := r.dump()
	again, err := r.Enqueue(bg, r.producer, items)
	r.must(err)
	same(t, "the same call again", again.list, "t1et0")
	r.unchanged("the same call again", before)
	equal(t, "claimed", ids(r.claim(10)), []string{"a1", "b1", "plain", "a2", "b2"})
	same(t, "enqueued in all", r.counts().Total.Enqueued, 6)
	marks, err := r.rdb.HGetAll(bg, r.keys.cron).Result()
	r.must(err)
	same(t, "marks", len(marks), 3) // a, b, d
	r.must(r.rdb.HSet(bg, r.keys.cron, "a", "nonsense").Err())
	before = r.dump()
	r.producer.Next()
	if _, err := r.Enqueue(bg, r.producer, []Item{r.item("x", When{}, 0), tick("a", 0, "a3")}); err == nil {
		t.Error("a mark that is no number is accepted")
	}
	r.unchanged("a mark that is no number", before)
}

func testOnlyEarly(t *testing.T, r *rig) {
	now, err := r.Now(bg)
	r.must(err)
	early := func(at time.Duration) []Item {
		return []Item{
			r.item("a1", When{At: now.Add(at), Entry: "a"}, 0), r.item("b1", When{At: now.Add(at), Entry: "b"}, 0),
		}
	}
	before := r.dump()
	same(t, "early ones", r.fates(early(time.Hour)...), "ee")
	r.unchanged("early ones", before)
	fates, err := r.Enqueue(bg, r.producer, early(0))
	r.must(err)
	same(t, "the same call when it is time", fates.list, "11")
}

// The largest possible call of ticks.
func TestThousandTicks(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	now, err := r.Now(bg)
	r.must(err)
	var items []Item
	for i, id := range numbered("tick", MaxBatch) {
		items = append(items, r.item(id, When{At: now.Add(-time.Duration(i) * time.Millisecond), Entry: "entry" + id}, signalbox.Priority(i%3)))
	}
	want := strings.Repeat("1", MaxBatch)
	same(t, "fates", r.fates(items...), want)
	same(t, "again", r.fates(items...), strings.Repeat("t", MaxBatch))
	same(t, "claimed", len(r.claim(MaxBatch)), MaxBatch)
}

// The server itself refuses a tick that comes more than TickGrace after its time.
func testLateTick(t *testing.T, r *rig) {
	now, err := r.Now(bg)
	r.must(err)
	same(t, "a late tick", r.tick("e", now.Add(-TickGrace-time.Millisecond), "e1"), Late)
	same(t, "one in time", r.tick("e", now, "e2"), PutIn)
	same(t, "late, and taken", r.tick("e", now.Add(-time.Hour), "e3"), Taken)
	same(t, "enqueued", r.counts().Total.Enqueued, 1)
}

// While the server's clock is wrong, a scheduler that knows this uses its own reckoning for ticks. Their jobs are ready at once.
func testReckoning(t *testing.T, r *rig) {
	r.open()
	now, err := r.Now(bg)
	r.must(err)
	right := func(skew time.Duration) Reckoning { return Reckoning{Known: true, Skew: skew} }
	hour := time.Hour
	same(t, "a clock that is an hour behind", r.reckoned("behind", now.Add(hour), "b1", right(hour)), PutIn)
	same(t, "the same tick", r.reckoned("behind", now.Add(hour), "b2", right(hour)), Taken)
	same(t, "an early one", r.reckoned("behind", now.Add(hour+time.Minute), "b3", right(hour)), Early)
	same(t, "a late one", r.reckoned("other", now.Add(hour-2*TickGrace), "b4", right(hour)), Late)
	same(t, "a clock that is an hour ahead", r.reckoned("ahead", now.Add(-hour), "a1", right(-hour)), PutIn)
	same(t, "the same tick", r.reckoned("ahead", now.Add(-hour), "a2", right(-hour)), Taken)
	same(t, "an early one", r.reckoned("ahead", now.Add(-hour+time.Minute), "a3", right(-hour)), Early)
	equal(t, "ready", ids(r.claim(10)), []string{"b1", "a1"})
}

// A clock that was ahead leaves a last tick in the future. A scheduler that knows the clock ignores this tick; a new scheduler doesn't. A
// last tick that is only a few seconds ahead is never ignored. So a clock that is set back a little repeats no tick.
func testMarkAhead(t *testing.T, r *rig) {
	now, err := r.Now(bg)
	r.must(err)
	mark := func(ahead time.Duration) {
		t.Helper()
		r.must(r.rdb.HSet(bg, r.keys.cron, "e", now.Add(ahead).UnixMicro()).Err())
	}
	mark(24 * time.Hour)
	same(t, "to one that is new", r.tick("e", now, "e1"), Taken)
	same(t, "to one that goes by a clock as far ahead", r.reckoned("e", now, "e2", Reckoning{Known: true, Skew: 24 * time.Hour}), Taken)
	same(t, "to one that knows the clock", r.reckoned("e", now, "e3", Reckoning{Known: true}), PutInAnew)
	same(t, "after that", r.reckoned("e", now, "e4", Reckoning{Known: true}), Taken)
	mark(TickAhead - time.Second)
	same(t, "a little ahead", r.reckoned("e", now, "e5", Reckoning{Known: true}), Taken)
	last, err := r.LastTicks(bg, []string{"e", "none"})
	r.must(err)
	same(t, "the last tick", last[0].UnixMicro(), now.Add(TickAhead-time.Second).UnixMicro())
	same(t, "that of an entry without one", last[1].IsZero(), true)
}
