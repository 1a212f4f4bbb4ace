package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	{"MissedTicks", testMissedTick},
	{"PlansInTurn", testPlans},
	{"PlanThatEnds", testPlanEnds},
	{"PlansComeBack", testPlansComeBack},
	{"PlanIsSet", testPlanIsSet},
	{"PlanIsSetAhead", testPlanIsSetAhead},
	{"PlanAfterAPause", testPlanAfterAPause},
	{"DescriptionOfAPlan", testDescriptionOfAPlan},
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
	fates, err := r.Cron().EnqueueTicks(bg, lane, items, by)
	r.must(err)
	if fates.Now.IsZero() {
		r.t.Error("no server time")
	}
	again, err := r.Cron().EnqueueTicks(bg, lane, items, by)
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
	marks, err := r.rdb.HGetAll(bg, r.keys.Cron).Result()
	r.must(err)
	same(t, "marks", len(marks), 3) // a, b, d
	r.must(r.rdb.HSet(bg, r.keys.Cron, "a", "nonsense").Err())
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
		r.must(r.rdb.HSet(bg, r.keys.Cron, "e", now.Add(ahead).UnixMicro()).Err())
	}
	mark(24 * time.Hour)
	same(t, "to one that is new", r.tick("e", now, "e1"), Taken)
	same(t, "to one that goes by a clock as far ahead", r.reckoned("e", now, "e2", Reckoning{Known: true, Skew: 24 * time.Hour}), Taken)
	same(t, "to one that knows the clock", r.reckoned("e", now, "e3", Reckoning{Known: true}), PutInAnew)
	same(t, "after that", r.reckoned("e", now, "e4", Reckoning{Known: true}), Taken)
	mark(TickAhead - time.Second)
	same(t, "a little ahead", r.reckoned("e", now, "e5", Reckoning{Known: true}), Taken)
	planned := r.planned(NewPlan("e"), NewPlan("none"))
	same(t, "the last tick", planned[0].Last.UnixMicro(), now.Add(TickAhead-time.Second).UnixMicro())
	same(t, "that of an entry without one", planned[1].Last.IsZero(), true)
}

// planned registers plans.
func (r *rig) planned(plans ...Plan) []Planned {
	r.t.Helper()
	begins := make([]Registration, len(plans))
	for i, p := range plans {
		begins[i].Plan = p
	}
	planned, err := r.Cron().RegisterPlans(bg, begins)
	r.must(err)
	return planned
}

// again registers a plan that was new at a time, as a scheduler does that has begun before.
func (r *rig) again(p Plan, born time.Time) Planned {
	r.t.Helper()
	planned, err := r.Cron().RegisterPlans(bg, []Registration{{Plan: p, Born: born}})
	r.must(err)
	return planned[0]
}

// since changes since when the plan in force counts, and when it and all others were registered last.
func (r *rig) since(entry string, since, seen time.Duration) {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	plans, err := r.rdb.HGet(bg, r.keys.Cron, "plan "+entry).Result()
	r.must(err)
	at := func(d time.Duration) string { return strconv.FormatInt(now.Add(-d).UnixMicro(), 10) }
	list := strings.Split(plans, ",")
	for i, p := range list {
		f := strings.Fields(p)
		if i == 0 {
			f[1] = at(since)
		}
		list[i] = f[0] + " " + f[1] + " " + at(seen) + " " + f[3]
	}
	r.must(r.rdb.HSet(bg, r.keys.Cron, "plan "+entry, strings.Join(list, ",")).Err())
}

// planTick enqueues the job of a tick of a plan.
func (r *rig) planTick(p Plan, ago, late time.Duration) Fate {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	lane := r.NewLane()
	lane.Next()
	item := r.item(NewID(), When{At: now.Add(-ago), Entry: p.Entry, Plan: p.Digest, Late: late}, signalbox.PriorityNormal)
	fates, err := r.Cron().EnqueueTicks(bg, lane, []Item{item}, Reckoning{})
	r.must(err)
	return fates.Of(0)
}

// A missed tick is made up for within its bound, if it comes after the time since when its plan counts.
func testMissedTick(t *testing.T, r *rig) {
	p := NewPlan("e", "@daily")
	same(t, "without any plan", r.planTick(p, 3*time.Hour, 24*time.Hour), Late)
	r.planned(p)
	same(t, "from before the entry was there", r.planTick(p, 3*time.Hour, 24*time.Hour), Late)
	r.since("e", 4*time.Hour, 0)
	same(t, "from before, by a little", r.planTick(p, 5*time.Hour, 24*time.Hour), Late)
	same(t, "beyond the bound", r.planTick(p, 3*time.Hour, 2*time.Hour), Late)
	same(t, "a missed tick", r.planTick(p, 3*time.Hour, 24*time.Hour), PutIn)
	same(t, "one before it", r.planTick(p, 4*time.Hour-time.Second, 24*time.Hour), Taken)
	same(t, "the next one", r.planTick(p, 2*time.Hour, 24*time.Hour), PutIn)
	same(t, "without a plan", r.tick("e", time.Now().Add(-time.Hour), "x"), Late)
	same(t, "in time, with a small bound", r.planTick(p, time.Second, 0), PutIn)
}

// One plan of an entry is in force at a time: the one that was new last. A scheduler that starts again with an older one changes nothing.
func testPlans(t *testing.T, r *rig) {
	older, newer, other := NewPlan("e", "@daily"), NewPlan("e", "@hourly"), NewPlan("f", "@daily")
	same(t, "the first one", r.planned(older)[0].InForce, true)
	same(t, "a tick", r.planTick(older, time.Second, 0), PutIn)
	got := r.planned(newer, other)
	same(t, "a newer one", got[0].InForce, true)
	same(t, "that of another entry", got[1].InForce, true)
	if now, err := r.Now(bg); err != nil || now.Sub(got[0].Since) > time.Minute {
		t.Errorf("the newer one counts since %v", got[0].Since)
	}
	same(t, "the older one, again", r.planned(older)[0].InForce, false)
	same(t, "a tick of the older one", r.planTick(older, 0, 0), Superseded)
	same(t, "a tick without a plan", r.tick("e", time.Now().Add(-time.Millisecond), NewID()), PutIn)
	same(t, "a tick of the newer one", r.planTick(newer, 0, 0), PutIn)
	for i := range 9 {
		p := NewPlan("e", strings.Repeat("x", i))
		same(t, "one more", r.planned(p)[0].InForce, true)
	}
	if text, err := r.rdb.HGet(bg, r.keys.Cron, "plan e").Result(); err != nil || len(text) > 8*(16+3*17)+7 {
		t.Errorf("%d bytes of plans: %s", len(text), text)
	}
}

// A plan that no scheduler registers any more gives way to one that is. Ticks since then are missed ticks of the other. A plan that nobody
// had for as long is a new one. But if all schedulers were away, the plan in force stays.
func testPlanEnds(t *testing.T, r *rig) {
	older, newer := NewPlan("e", "@daily"), NewPlan("e", "@hourly")
	r.planned(older)
	r.planned(newer)
	r.since("e", time.Hour, NoticePatience-time.Minute)
	same(t, "while it is there", r.planned(older)[0].InForce, false)
	r.since("e", time.Hour, NoticePatience+time.Minute)
	now, err := r.Now(bg)
	r.must(err)
	own := r.planned(newer)[0]
	same(t, "after all were away", own.InForce, true)
	if age := now.Sub(own.Since); age < time.Hour-time.Minute {
		t.Errorf("it counts since %v ago", age)
	}
	same(t, "the older one is there no more, and is new again", r.planned(older)[0].InForce, true)
	same(t, "so the other one is older", r.planned(newer)[0].InForce, false)

	seen := now.Add(-NoticePatience - time.Minute).UnixMicro()
	r.must(r.rdb.HSet(bg, r.keys.Cron, "plan e", fmt.Sprintf("%s %d %d 2,%s %d %d 1", newer.Digest, now.Add(-time.Hour).UnixMicro(), seen, older.Digest, now.Add(-2*time.Hour).UnixMicro(), now.UnixMicro())).Err())
	back := r.planned(older)[0]
	same(t, "the newer one has gone", back.InForce, true)
	same(t, "ticks are its own since then", back.Since.UnixMicro(), seen)
	resumed := now.Add(-time.Second).UnixMicro()
	r.must(r.rdb.HSet(bg, r.keys.Cron, "plan e", fmt.Sprintf("%s %d %d 2,%s 0 %d 1", newer.Digest, resumed, seen, older.Digest, now.UnixMicro())).Err())
	same(t, "those of a pause are nobody's", r.planned(older)[0].Since.UnixMicro(), resumed)
}

// set registers a plan that was set at a time while the program ran.
func (r *rig) set(p Plan, at time.Time) Planned {
	r.t.Helper()
	planned, err := r.Cron().RegisterPlans(bg, []Registration{{Plan: p, Born: at, Set: true}})
	r.must(err)
	return planned[0]
}

// A plan that is set at run time counts as new, also if it was there before. In whatever order and however often Redis gets the calls, that which
// was set last is in force. A program that begins with it, or goes on with it, changes nothing.
func testPlanIsSet(t *testing.T, r *rig) {
	older, newer := NewPlan("e", "@daily"), NewPlan("e", "@hourly")
	r.planned(older)
	r.since("e", time.Hour, 0)
	born := r.planned(newer)[0].Born
	same(t, "a program begins with the older one", r.planned(older)[0].InForce, false)
	at := func(n int) time.Time { return born.Add(time.Duration(n) * time.Microsecond) }
	now, err := r.Now(bg)
	r.must(err)
	back := r.set(older, at(1))
	same(t, "it is set back", back.InForce, true)
	same(t, "it was new then", back.Born.Equal(at(1)), true)
	if back.Since.Before(now) {
		t.Errorf("it counts since %v, from before it was set", back.Since)
	}
	since := back.Since
	same(t, "a tick of it", r.planTick(older, 0, 0), PutIn)
	same(t, "a program goes on with the newer one", r.again(newer, born).InForce, false)
	same(t, "the call comes again", r.set(older, at(1)).Since.Equal(since), true)
	same(t, "another process sets it", r.set(older, at(4)).Since.Equal(since), true)
	same(t, "a call that was under way sets the newer one", r.set(newer, at(2)).InForce, false)
	same(t, "it stays", r.again(older, at(1)).InForce, true)
	third := NewPlan("e", "@weekly")
	same(t, "so does one that sets a third one", r.set(third, at(3)).InForce, false)
	same(t, "one that is set later", r.set(third, at(5)).InForce, true)

	// A wrong clock.
	now, err = r.Now(bg)
	r.must(err)
	ahead := r.set(newer, now.Add(time.Hour))
	same(t, "one that is set in the future", ahead.InForce, true)
	same(t, "is of now", ahead.Born.Sub(now) < time.Minute, true)
	r.must(r.rdb.HSet(bg, r.keys.Cron, "plan e", fmt.Sprintf("%s 0 %d %d", newer.Digest, now.UnixMicro(), now.Add(time.Hour).UnixMicro())).Err())
	same(t, "one that is newer than one of the future", r.set(older, now).InForce, true)
	same(t, "which goes on", r.again(newer, now.Add(time.Hour)).InForce, false)
}

// A scheduler's estimate of Redis' clock may be a little ahead of it, or the clock may not have moved since the last call. The plan that was set last
// is in force all the same, and each plan keeps the time when it was set.
func testPlanIsSetAhead(t *testing.T, r *rig) {
	older, newer := NewPlan("e", "@daily"), NewPlan("e", "@hourly")
	ahead := r.planned(older)[0].Born.Add(500 * time.Millisecond) // if that has passed when the calls come, they are told the same
	at := func(n int) time.Time { return ahead.Add(time.Duration(n) * time.Microsecond) }
	same(t, "one that is set a little ahead", r.set(newer, at(1)).Born.Equal(at(1)), true)
	same(t, "it is set back", r.set(older, at(2)).Born.Equal(at(2)), true)
	r.later()
	same(t, "the first call comes again", r.set(newer, at(1)).InForce, false)
}

// A scheduler that was away isn't taken for one with a new plan, and a Redis that lost its memory, or whose clock was wrong, gets
// the plans back in their order.
func testPlansComeBack(t *testing.T, r *rig) {
	older, newer := NewPlan("e", "@daily"), NewPlan("e", "@hourly")
	first := r.planned(older)[0].Born
	second := r.planned(newer)[0].Born
	if !second.After(first) {
		t.Fatalf("the plans are of %v and %v", first, second)
	}
	field := func() *redis.IntCmd { return r.rdb.HDel(bg, r.keys.Cron, "plan e") }

	r.must(field().Err())
	same(t, "Redis lost all, the older one comes back first", r.again(older, first).InForce, true)
	same(t, "then the newer one", r.again(newer, second).InForce, true)
	same(t, "the older one, again", r.again(older, first).InForce, false)

	r.must(field().Err())
	same(t, "Redis lost all, the newer one comes back first", r.again(newer, second).InForce, true)
	back := r.again(older, first)
	same(t, "then the older one, which was away", back.InForce, false)
	same(t, "it was new at the same time", back.Born.Equal(first), true)
	same(t, "a tick of the newer one", r.planTick(newer, 0, 0), PutIn)

	r.since("e", time.Hour, NoticePatience+time.Minute)
	same(t, "all were away, the older one comes back first", r.again(older, first).InForce, false)
	same(t, "the newer one stayed away", r.again(older, first).InForce, true)
	same(t, "it comes back after all", r.again(newer, second).InForce, true)

	r.since("e", 0, -time.Hour)
	same(t, "the clock was ahead", r.again(older, first).InForce, false)
	text, err := r.rdb.HGet(bg, r.keys.Cron, "plan e").Result()
	r.must(err)
	now, err := r.Now(bg)
	r.must(err)
	if seen := microTime(strings.Fields(text)[2]); seen.After(now) {
		t.Errorf("the newer one is there until %v", seen.Add(NoticePatience))
	}
	same(t, "for all", r.again(newer, second).InForce, true)

	// It was ahead also when the newer one was new. A third one is newer still, and comes back as such.
	r.must(r.rdb.HSet(bg, r.keys.Cron, "plan e", fmt.Sprintf("%s 0 %d %d", newer.Digest, now.UnixMicro(), now.Add(time.Hour).UnixMicro())).Err())
	third := NewPlan("e", "@weekly")
	latest := r.planned(third)[0].Born
	r.must(field().Err())
	same(t, "the one from the future comes back first", r.again(newer, now.Add(time.Hour)).InForce, true)
	same(t, "then the third one", r.again(third, latest).InForce, true)
	r.must(field().Err())

	for i := range 9 {
		r.planned(NewPlan("e", strings.Repeat("x", i)))
	}
	same(t, "one of too many", r.again(older, first).InForce, false)
}

// Ticks that passed while their entry was paused are not made up for, also if no scheduler saw them pass.
func testPlanAfterAPause(t *testing.T, r *rig) {
	p := NewPlan("e", "@daily")
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")}))
	r.planned(p)
	r.since("e", 24*time.Hour, 0)
	if v, err := r.Cron().PauseEntry(bg, "e"); v != EntryChanged || err != nil {
		t.Fatal(v, err)
	}
	if v, err := r.Cron().ResumeEntry(bg, "e"); v != EntryChanged || err != nil {
		t.Fatal(v, err)
	}
	same(t, "in force", r.planned(p)[0].InForce, true)
	same(t, "a tick from before", r.planTick(p, time.Hour, 24*time.Hour), Late)
}

// Tools see the version of an entry whose plan is in force, whichever was described last.
func testDescriptionOfAPlan(t *testing.T, r *rig) {
	version := func(spec string) (Plan, Notice) {
		p := NewPlan("e", spec)
		return p, NewNotice(p, Description{Spec: spec, Zone: "UTC", Missed: "once"}, &signalbox.Job{Kind: "k"}, false)
	}
	remind := func(n Notice) []string {
		lacking, err := r.Cron().Remind(bg, []Notice{n})
		r.must(err)
		return lacking
	}
	older, olderNotice := version("@daily")
	newer, newerNotice := version("@hourly")
	r.planned(older)
	r.must(r.Cron().Announce(bg, []Notice{olderNotice}))
	same(t, "described", r.entry("e").Spec, "@daily")
	same(t, "missed", r.entry("e").Missed, "once")
	r.planned(newer)
	equal(t, "the newer one must be described", remind(newerNotice), []string{"e"})
	r.must(r.Cron().Announce(bg, []Notice{newerNotice}))
	same(t, "the newer one", r.entry("e").Spec, "@hourly")
	r.planned(older)
	r.must(r.Cron().Announce(bg, []Notice{olderNotice}))
	same(t, "after the older one has begun again", r.entry("e").Spec, "@hourly")
	same(t, "which needn't be described", len(remind(olderNotice)), 0)
	same(t, "nor the newer one", len(remind(newerNotice)), 0)
}
