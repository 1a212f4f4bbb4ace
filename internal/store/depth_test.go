package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

var depthTests = []storeTest{
	{"Depths", testDepths},
	{"OldestReady", testOldestReady},
	{"OneReports", testOneReports},
}

func (r *rig) depths() looks.Depths {
	r.t.Helper()
	d, err := r.Looks().Depths(bg)
	r.must(err)
	return d
}

func testDepths(t *testing.T, r *rig) {
	same(t, "an empty queue", r.depths(), looks.Depths{})
	r.open()
	r.bury(Dead, "dead")
	r.bury(Cancelled, "cancelled1", "cancelled2")
	r.put("a", "b", "c")
	r.enqueued(r.item("h", When{}, signalbox.PriorityHigh), r.item("d", When{After: time.Hour}, signalbox.PriorityLow))
	r.claim(1)
	other := &rig{Queue: r.Queue, t: r.t, lane: r.NewLane(), session: "s2"}
	other.open()
	other.claim(1)
	before := r.dump()
	d := r.depths()
	r.unchanged("counting", before)
	d.Oldest = 0
	same(t, "depths", d, looks.Depths{Ready: 2, Scheduled: 1, Running: 2, Dead: 1, Cancelled: 2})
}

func testOldestReady(t *testing.T, r *rig) {
	r.open()
	r.enqueued(r.item("later", When{After: time.Hour}, 0))
	same(t, "the age with none ready", r.depths().Oldest, 0)
	r.put("new")
	young := r.depths().Oldest
	if young < 0 || young > time.Minute {
		t.Errorf("a job that was put in just now waits for %v", young)
	}
	now, err := r.Now(bg)
	r.must(err)
	// A due job that a worker will promote is waiting as well.
	r.must(r.rdb.ZAdd(bg, r.keys.Due, redis.Z{Score: float64(now.Add(-time.Minute).UnixMicro()), Member: "1later"}).Err())
	if got := r.depths().Oldest; got < time.Minute || got > 2*time.Minute {
		t.Errorf("a job that was due a minute ago waits for %v", got)
	}
	r.enqueued(r.item("old", When{At: now.Add(-time.Hour)}, signalbox.PriorityLow)) // due at once
	if got := r.depths().Oldest; got < time.Minute || got > 2*time.Minute {
		t.Errorf("with one that was late when it came, the oldest waits for %v", got)
	}
	// Records that can't be read, and IDs without a record, have no age.
	r.must(r.rdb.HSet(bg, r.keys.Jobs, "new", "?", "old", "").Err())
	r.must(r.rdb.ZRem(bg, r.keys.Due, "1later").Err())
	same(t, "the age of what can't be read", r.depths().Oldest, 0)
	for _, d := range r.claim(3) {
		r.settled(settlement(d, Dead))
	}
	r.must(r.rdb.HDel(bg, r.keys.Jobs, "later").Err())
}

func testOneReports(t *testing.T, r *rig) {
	report := func(client Reporter) bool {
		t.Helper()
		mine, err := client.Begin(bg, r.Queue)
		r.must(err)
		return mine
	}
	for range 2 {
		same(t, "a reports", report("a"), true)
		same(t, "b reports beside a", report("b"), false)
	}
	if ttl := r.rdb.PTTL(bg, r.keys.Reporter).Val(); ttl <= ReportFor-10*time.Second || ttl > ReportFor {
		t.Errorf("a reports for %v, want %v", ttl, ReportFor)
	}
	r.must(Reporter("b").End(bg, r.Queue))
	same(t, "b reports after it stopped", report("b"), false)
	r.must(Reporter("a").End(bg, r.Queue))
	same(t, "b reports after a stopped", report("b"), true)
	r.must(r.rdb.PExpire(bg, r.keys.Reporter, 0).Err()) // b has not reported for too long
	same(t, "a reports after b fell silent", report("a"), true)
	r.must(Reporter("a").End(bg, r.Queue))
	same(t, "the key", r.rdb.Exists(bg, r.keys.Reporter).Val(), 0)
}

// A queue says what keeps its jobs from starting: that it is paused, until when it is held back, and whether its limits let none start now.
func TestDepthsSayWhatBlocks(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	says := func(what string, paused, held, limited bool) {
		t.Helper()
		d := r.depths()
		if d.Paused != paused || d.HeldUntil.IsZero() == held || d.Limited != limited {
			t.Errorf("%s: %+v", what, d)
		}
	}
	limit := func(l signalbox.Limits) {
		t.Helper()
		_, err := r.Settings().SetLimits(bg, l)
		r.must(err)
	}
	limit(signalbox.Limits{Running: 1})
	says("empty", false, false, false)
	r.put("a", "b", "c")
	says("room", false, false, false)
	same(t, "claimed", len(r.claim(5)), 1)
	says("as many as may", false, false, true)
	limit(signalbox.Limits{Running: 2})
	says("room again", false, false, false)
	limit(signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Hour}})
	same(t, "claimed", len(r.claim(5)), 1)
	says("the rate", false, false, true)
	limit(signalbox.Limits{})
	until, err := r.Settings().HoldBack(bg, "", "", time.Hour)
	r.must(err)
	says("held", false, true, false)
	if d := r.depths(); d.HeldUntil.Sub(until).Abs() > time.Millisecond {
		t.Errorf("held until %v, not %v", d.HeldUntil, until)
	}
	_, err = r.Settings().Pause(bg)
	r.must(err)
	says("both", true, true, false)
	_, err = r.Settings().HoldBack(bg, "", "", 0)
	r.must(err)
	_, err = r.Settings().Resume(bg)
	r.must(err)
	_, err = r.Settings().HoldBack(bg, "gx", "", time.Hour)
	r.must(err)
	says("a group", false, false, false)
	limit(signalbox.Limits{Running: 1})
	for _, d := range r.claim(5) {
		r.settled(settlement(d, Completed))
	}
}

// Jobs whose group lets none start are ready, and blocked: in lines that wait for the jobs that hold the group or for its rate, and in lines of groups that are
// paused or held back. None of them counts as the oldest job that could run. Another one does, in whatever group.
func TestDepthsOfGroups(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	says := func(what string, ready, blocked, paused int64) {
		t.Helper()
		d := r.depths()
		if d.Ready != ready || d.Blocked != blocked || d.PausedGroups != paused || d.Limited {
			t.Errorf("%s: %+v", what, d)
		}
		if free := ready > blocked; d.Oldest > 0 != free {
			t.Errorf("%s: the oldest that could run has waited for %v", what, d.Oldest)
		}
	}
	hold := func(key string, d time.Duration) {
		t.Helper()
		_, err := r.Settings().HoldBack(bg, key, "", d)
		r.must(err)
	}
	old := func(key string, ids ...string) { // has jobs wait, for longer than a look takes
		t.Helper()
		r.putIn(key, ids...)
		r.passes(time.Millisecond)
	}
	old("sa", "a1", "a2", "a3")
	says("a serial group", 3, 0, 0)
	a1 := r.one()
	says("whose first job runs", 2, 2, 0)
	old("gb", "b1", "b2")
	says("beside another group", 4, 2, 0)
	r.pauseGroup(true, "gb", "sb")
	says("that is paused before a claim has seen it", 4, 4, 1)
	same(t, "claimed", len(r.claim(5)), 0)
	says("and when one has", 4, 4, 1)
	r.resumeGroup(true, "gb", "sb")
	says("resumed", 4, 2, 0)
	hold("gb", time.Hour)
	hold("sb", time.Hour) // as inspect does: they have one name
	says("held back before a claim has seen it", 4, 4, 0)
	same(t, "groups that are held back", r.depths().HeldGroups, int64(1))
	same(t, "claimed", len(r.claim(5)), 0)
	says("and when one has", 4, 4, 0)
	r.rdb.ZAdd(bg, r.keys.Rates, redis.Z{Score: 1, Member: "hgb"}, redis.Z{Score: 1, Member: "hsb"})
	r.rdb.ZAdd(bg, r.keys.Parked, redis.Z{Score: 1, Member: "1gb"})
	says("when the hold is over, and no worker has looked", 4, 2, 0)
	same(t, "groups whose hold is over", r.depths().HeldGroups, int64(0))
	hold("gb", 0)
	_, err := r.Settings().SetGroupLimits(bg, signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Hour}})
	r.must(err)
	equal(t, "claimed", ids(r.claim(5)), []string{"b1"})
	says("what waits for the group's rate", 3, 3, 0)
	_, err = r.Settings().SetGroupLimits(bg, signalbox.Limits{})
	r.must(err)
	r.settled(settlement(a1, Completed))
	says("all may go on", 3, 0, 0)
	r.put("plain")
	r.passes(time.Millisecond)
	r.pauseGroup(true, "sa", "gb")
	says("a job of no group", 4, 3, 2)
	r.resumeGroup(true, "sa", "gb")
}

// passes returns when Redis' clock has moved on by more than d.
func (r *rig) passes(d time.Duration) {
	r.t.Helper()
	from, err := r.Now(bg)
	r.must(err)
	redistest.Eventually(r.t, func() bool {
		now, err := r.Now(bg)
		r.must(err)
		return now.Sub(from) > d
	}, "time passes")
}

// Of many lines that may go on the depths are an estimate. However many others are blocked, that changes nothing.
func TestDepthsOfManyGroups(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := onShared(t)
	r.open()
	fill := func(kind string, groups, jobs int) {
		t.Helper()
		items := make([]Item, 0, groups*jobs)
		for n := range groups * jobs {
			items = append(items, r.grouped(fmt.Sprintf("%s%d", kind, n), fmt.Sprintf("g%s%d", kind, n%groups), When{}, signalbox.PriorityNormal))
		}
		for some := range slices.Chunk(items, 500) {
			r.enqueued(some...)
		}
	}
	fill("p", 1500, 2)
	for n := range 1500 {
		r.pauseGroup(true, fmt.Sprintf("gp%d", n))
	}
	for range 10 {
		same(t, "claimed of paused groups", len(r.claim(5)), 0)
	}
	d := r.depths()
	if d.Ready != 3000 || d.Blocked != 3000 || d.Oldest != 0 || d.PausedGroups != 1500 {
		t.Errorf("all are paused: %+v", d)
	}
	fill("f", 400, 2)
	r.passes(time.Millisecond)
	if d = r.depths(); d.Ready != 3800 || d.Blocked != 3000 || d.Oldest == 0 {
		t.Errorf("800 jobs of 400 groups could run: %+v", d)
	}
	fill("m", 1600, 3)
	if d = r.depths(); d.Ready != 8600 || d.Blocked < 2000 || d.Blocked > 4500 {
		t.Errorf("5600 jobs of 2000 groups could run: %+v", d)
	}
}
