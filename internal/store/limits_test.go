package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

// No more jobs of a queue run than its limit says, across all sessions. Who waits is woken when there is room.
func TestQueueLimit(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put(numbered("j", 5)...)
	before := r.claim(1) // it counts, though the limit comes later
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 3})
	r.must(err)
	got := r.call(ClaimRequest{Want: 10, Address: r.address()})
	equal(t, "claimed", ids(got.Deliveries), []string{"j0001", "j0002"})
	if got.More || got.CutShort || got.Next == 0 || !r.registered() {
		t.Errorf("a session that gets less than it wants waits: %+v", got.Hints)
	}
	first := r.session
	r.session = "s2"
	r.open()
	equal(t, "another session", ids(r.claim(10)), []string{})
	r.check()
	reply := r.call(ClaimRequest{Session: first, Settle: []Settlement{settlement(before[0], Completed)}})
	same(t, "more", reply.More, true)
	equal(t, "in its place", ids(r.claim(10)), []string{"j0003"})
	equal(t, "and no more", ids(r.claim(10)), []string{})
	r.check()
	_, err = r.Settings().SetLimits(bg, signalbox.Limits{})
	r.must(err)
	equal(t, "without a limit", ids(r.claim(10)), []string{"j0004"})
	same(t, "what is counted", r.rdb.Exists(bg, r.keys.Running).Val(), 0)
}

// A session that wants more than the limits of an empty queue allow waits for wake-ups, as one without limits does.
func TestEmptyQueueWithLimits(t *testing.T) {
	t.Parallel()
	for what, l := range map[string]signalbox.Limits{
		"running": {Running: 3}, "rate": {Rate: signalbox.Rate{Jobs: 100, Burst: 3}},
	} {
		r := onShared(t)
		r.open()
		_, err := r.Settings().SetLimits(bg, l)
		r.must(err)
		_, err = r.Settings().SetGroupLimits(bg, l)
		r.must(err)
		reply := r.call(ClaimRequest{Want: 10, Address: r.address()})
		if reply.More || reply.CutShort || !r.registered() {
			t.Errorf("%s, empty: %+v", what, reply)
		}
		r.put("a")
		r.putIn("ga", "b")
		reply = r.call(ClaimRequest{Want: 10, Address: r.address()})
		equal(t, what, slices.Sorted(slices.Values(ids(reply.Deliveries))), []string{"a", "b"})
		if reply.More || reply.CutShort || !r.registered() {
			t.Errorf("%s, with less than may start: %+v", what, reply)
		}
	}
}

// A line whose rate allows a job again is no reason to call while the queue gives no jobs.
func TestLineThatIsReadyInAPause(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("ga", "a", "b")
	_, err := r.Settings().SetGroupLimits(bg, signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Minute}})
	r.must(err)
	same(t, "claimed", len(r.claim(5)), 1)
	_, err = r.Settings().Pause(bg)
	r.must(err)
	r.must(r.rdb.ZAddXX(bg, r.keys.Parked, z(1, "1ga")).Err())
	for what, next := range map[string]time.Duration{"a claim": r.call(ClaimRequest{Want: 5}).Next, "a renewal": r.renewed().Next} {
		if next == 0 {
			t.Errorf("%s is asked for another call at once", what)
		}
	}
	_, err = r.Settings().Resume(bg)
	r.must(err)
	same(t, "after the pause", r.renewed().Next, 0)
	r.claim(5)
	if next := r.renewed().Next; next < 30*time.Second {
		t.Errorf("the line waits for %v", next)
	}
}

// A job that expires has no group, though it waits in a line: its handler holds back the queue.
func TestHoldBackByAJobThatExpires(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.expiring(time.Hour, "", When{}, "a")
	groups, _, err := r.Looks().GroupsInUse(bg, 10)
	r.must(err)
	same(t, "groups in use", len(groups), 0)
	d := r.one()
	same(t, "its group", d.Group(), "")
	_, err = r.Settings().HoldBack(bg, d.Group(), d.Job.ID, time.Minute)
	r.must(err)
	r.put("b")
	equal(t, "claimed", ids(r.claim(5)), []string{})
	r.settled(settlement(d, Completed))
}

// Jobs of a session that died count until they are taken back.
func TestQueueLimitAfterACrash(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put(numbered("j", 5)...)
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 2})
	r.must(err)
	same(t, "claimed", len(r.claim(5)), 2)
	dead := r.session
	r.expire()
	r.session = "s2"
	r.open()
	same(t, "beside the dead session", len(r.claim(5)), 0)
	r.reclaim(dead)
	r.check()
	equal(t, "after it", ids(r.claim(5)), []string{"j0000", "j0001"})
}

// A cancelled job of a session that died makes room for one that waits.
func TestQueueLimitWakes(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a", "b")
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 1})
	r.must(err)
	same(t, "claimed", len(r.claim(5)), 1)
	_, err = r.Do(bg, CancelJobs("why"), []string{"a"})
	r.must(err)
	dead := r.session
	r.expire()
	r.session = "s2"
	r.open()
	r.listen()
	r.dropWake()
	r.reclaim(dead)
	same(t, "wake-ups", r.wakes(), 1)
	equal(t, "claimed", ids(r.claim(5)), []string{"b"})
}

// Jobs of a queue start by its rate.
func TestQueueRate(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put(numbered("j", 5)...)
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: 50 * time.Second, Burst: 2}})
	r.must(err)
	got := r.call(ClaimRequest{Want: 10})
	equal(t, "at once", ids(got.Deliveries), []string{"j0000", "j0001"})
	if got.More || got.Next <= 0 || got.Next > 50*time.Second {
		t.Errorf("then there is nothing until the next may start: %+v", got.Hints)
	}
	got = r.call(ClaimRequest{Want: 10})
	same(t, "then none", len(got.Deliveries), 0)
	if got.More || got.Next < 30*time.Second || got.Next > 50*time.Second {
		t.Errorf("the next one may start in less than a minute: %+v", got.Hints)
	}
	r.must(r.rdb.ZIncrBy(bg, r.keys.Rates, -50e6, "").Err()) // a minute later
	equal(t, "then the next", ids(r.claim(10)), []string{"j0002"})
	r.must(r.rdb.ZIncrBy(bg, r.keys.Rates, 1e15, "").Err()) // the clock was set back
	got = r.call(ClaimRequest{Want: 10})
	if got.Next > 50*time.Second {
		t.Errorf("a rate is kept by a time that is too far ahead: %v", got.Next)
	}
}

// Each group has the limits of all groups, or its own. Lines go on at once when they may.
func TestGroupLimits(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	for _, key := range []string{"ga", "gb", "gc", "sd"} {
		r.putIn(key, numbered(key[1:], 5)...)
	}
	_, err := r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 2})
	r.must(err)
	_, err = r.Settings().SetLimitsOf(bg, "b", signalbox.Limits{Running: 1})
	r.must(err)
	_, err = r.Settings().SetLimitsOf(bg, "c", unlimited)
	r.must(err)
	_, err = r.Settings().SetLimitsOf(bg, "d", signalbox.Limits{Running: 3}) // a serial group has one in any case
	r.must(err)
	count := func(ds []Delivery) string {
		n := make(map[byte]int)
		for _, id := range ids(ds) {
			n[id[0]]++
		}
		return fmt.Sprint(n['a'], n['b'], n['c'], n['d'])
	}
	got := r.claim(50)
	same(t, "each by its limit", count(got), "2 1 5 1")
	reply := r.call(ClaimRequest{Want: 5})
	if len(reply.Deliveries) > 0 || reply.More || reply.CutShort {
		t.Errorf("%v, %+v", ids(reply.Deliveries), reply.Hints)
	}
	r.check()
	r.listen()
	r.dropWake()
	_, err = r.Settings().SetLimitsOf(bg, "b", signalbox.Limits{})
	r.must(err)
	same(t, "wake-ups", r.wakes(), 1)
	same(t, "then it has the limit of all", count(r.claim(50)), "0 1 0 0")
	_, err = r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 3})
	r.must(err)
	r.check()
	same(t, "a higher limit", count(r.claim(50)), "1 1 0 0")
	_, err = r.Settings().SetGroupLimits(bg, signalbox.Limits{})
	r.must(err)
	same(t, "no limit", count(r.claim(50)), "2 2 0 0")
}

// A line whose rate allows no job waits, and has others go on.
func TestGroupRates(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("ga", numbered("a", 5)...)
	r.putIn("gb", numbered("b", 2)...)
	_, err := r.Settings().SetLimitsOf(bg, "a", signalbox.Limits{Rate: signalbox.Rate{Jobs: 2, Per: 100 * time.Second, Burst: 2}})
	r.must(err)
	got := r.call(ClaimRequest{Want: 50})
	equal(t, "claimed", ids(got.Deliveries), []string{"a0000", "a0001", "b0000", "b0001"})
	if got.More || got.Next < 30*time.Second || got.Next > 50*time.Second {
		t.Errorf("the next one may start in a minute: %+v", got.Hints)
	}
	r.check()
	_, hints, err := r.Sessions().Renew(bg, r.session, time.Hour, "")
	r.must(err)
	if hints.More || hints.Next < 30*time.Second || hints.Next > 50*time.Second {
		t.Errorf("a renewal says so too: %+v", hints)
	}
	for _, key := range []string{r.keys.Rates, r.keys.Parked} { // a minute later
		for _, z := range r.rdb.ZRangeWithScores(bg, key, 0, -1).Val() {
			r.must(r.rdb.ZIncrBy(bg, key, -50e6, z.Member.(string)).Err())
		}
	}
	equal(t, "the next", ids(r.claim(50)), []string{"a0002"})
	r.check()
}

// The limits of a name are those of a group and of a serial group. Of a serial group the rate counts, and one job runs at a time.
func TestLimitsOfASerialGroup(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2", "a3")
	r.putIn("ga", numbered("g", 3)...)
	r.putIn("sb", "b1", "b2")
	own := signalbox.Limits{Running: 2, Rate: signalbox.Rate{Jobs: 1, Per: 100 * time.Second, Burst: 2}}
	_, err := r.Settings().SetLimitsOf(bg, "a", own)
	r.must(err)
	got := r.claim(50)
	equal(t, "at once", slices.Sorted(slices.Values(ids(got))), []string{"a1", "b1", "g0000", "g0001"})
	for _, d := range got {
		r.settled(settlement(d, Completed))
	}
	got = r.claim(50)
	equal(t, "the second of each serial group", slices.Sorted(slices.Values(ids(got))), []string{"a2", "b2"})
	for _, d := range got {
		r.settled(settlement(d, Completed))
	}
	equal(t, "the burst is used up", ids(r.claim(50)), []string{})
	r.check()
	groups, _, err := r.Looks().GroupsInUse(bg, 9)
	r.must(err)
	for _, g := range groups {
		if want := map[string]int{"sa": 1, "ga": 2}[g.Key]; g.Limits.Running != want || g.Limits.Rate != own.Rate {
			t.Errorf("%+v", g)
		}
	}
	r.listen()
	r.dropWake()
	_, err = r.Settings().SetLimitsOf(bg, "a", signalbox.Limits{})
	r.must(err)
	same(t, "wake-ups", r.wakes(), 1)
	equal(t, "without the rate", slices.Sorted(slices.Values(ids(r.claim(50)))), []string{"a3", "g0002"})
	r.check()
}

// A job that holds its group counts for the group's rate when it runs again, and waits for it.
func TestGroupRatesOfRetries(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2")
	_, err := r.Settings().SetGroupLimits(bg, signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: 100 * time.Second}})
	r.must(err)
	first := r.claim(9)
	equal(t, "claimed", ids(first), []string{"a1"})
	again := settlement(first[0], Retry)
	got := r.call(ClaimRequest{Want: 9, Settle: []Settlement{again}})
	if len(got.Deliveries) > 0 || got.More || got.Next < 50*time.Second || got.Next > 100*time.Second {
		t.Errorf("its retry waits for the rate: %v, %+v", ids(got.Deliveries), got.Hints)
	}
	r.check()
	r.must(r.rdb.ZIncrBy(bg, r.keys.Rates, -100e6, "sa").Err()) // later
	r.must(r.rdb.ZIncrBy(bg, r.keys.Due, -100e6, "1a1").Err())
	second := r.claim(9)
	equal(t, "then it runs again", ids(second), []string{"a1"})
	again = settlement(second[0], Completed)
	got = r.call(ClaimRequest{Want: 9, Settle: []Settlement{again}})
	if len(got.Deliveries) > 0 || got.Next < 50*time.Second {
		t.Errorf("the retry counted: %v, %+v", ids(got.Deliveries), got.Hints)
	}
	r.check()
}

// A queue or a group that is held back starts no job until then.
func TestHoldBack(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("p1")
	r.putIn("ga", "a1")
	r.putIn("sb", "b1", "b2")
	r.listen()
	hold := func(group string, d time.Duration) {
		t.Helper()
		until, err := r.Settings().HoldBack(bg, group, "", d)
		r.must(err)
		same(t, "held back", !until.IsZero(), d > 0)
	}
	waits := func(want ...string) {
		t.Helper()
		got := r.call(ClaimRequest{Want: 9})
		equal(t, "claimed", ids(got.Deliveries), want)
		if got.More || got.Next < 20*time.Second || got.Next > 50*time.Second {
			t.Errorf("there is nothing until then: %+v", got.Hints)
		}
		r.check()
	}
	hold("", 50*time.Second)
	hold("", 10*time.Second) // it is held back for longer already
	waits()
	hold("", 0)
	hold("ga", 50*time.Second)
	hold("sb", 50*time.Second)
	waits("p1")
	hold("ga", 0)
	waits("a1")
	hold("sb", 0)
	equal(t, "the last", ids(r.claim(9)), []string{"b1"})
	r.put("p2")
	hold("", 50*time.Second)
	waits()
	r.must(r.rdb.ZIncrBy(bg, r.keys.Rates, -50e6, "h").Err()) // a minute later
	equal(t, "claimed", ids(r.claim(9)), []string{"p2"})
}

// Each hold says by which job it is. It is forgotten when it has passed, and limits of groups are not.
func TestHolds(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	own := signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Minute}}
	_, err := r.Settings().SetLimitsOf(bg, "a", own)
	r.must(err)
	r.putIn("ga", "a1", "a2")
	same(t, "claimed", len(r.claim(9)), 1) // now the group has a time in rates
	hold := func(group, by string, d time.Duration) time.Time {
		t.Helper()
		until, err := r.Settings().HoldBack(bg, group, by, d)
		r.must(err)
		return until
	}
	holds := func(what string, want ...string) {
		t.Helper()
		got, err := r.Settings().Holds(bg)
		r.must(err)
		names := []string{}
		for _, h := range got {
			names = append(names, h.Group+" "+h.By)
		}
		equal(t, what, names, append([]string{}, want...))
	}
	holds("none")
	hold("sb", "j1", time.Minute)
	until := hold("", "", time.Hour)
	hold("ga", "j2", time.Minute)
	holds("three", " ", "ga j2", "sb j1")
	same(t, "an end that is earlier", hold("", "j3", time.Minute).Equal(until), true)
	holds("changes nothing", " ", "ga j2", "sb j1")
	hold("sb", "j4", time.Hour)
	hold("ga", "", 0)
	holds("a later end, and one that is lifted", " ", "sb j4")
	for _, z := range r.rdb.ZRangeWithScores(bg, r.keys.Rates, 0, -1).Val() {
		r.must(r.rdb.ZIncrBy(bg, r.keys.Rates, -3600e6, z.Member.(string)).Err())
	}
	holds("when they have passed")
	r.claim(1)
	fields := r.rdb.HKeys(bg, r.keys.Limits).Val()
	equal(t, "what is left of them", slices.Sorted(slices.Values(fields)), []string{"ga", "oa"}) // its limits, and who has set them
	r.check()
}

// unlimited is no limit for a group, whatever all groups have.
var unlimited = signalbox.Limits{Running: signalbox.NoLimit, Rate: signalbox.Rate{Jobs: signalbox.NoLimit}}

// The largest groups in use come first, with what bounds them.
func TestGroupsInUse(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("ga", numbered("a", 3)...)
	r.putIn("gb", numbered("b", 5)...)
	r.putIn("sa", numbered("s", 2)...)
	r.putIn("gc", "c1")
	_, err := r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 2})
	r.must(err)
	_, err = r.Settings().SetLimitsOf(bg, "a", signalbox.Limits{Running: 1})
	r.must(err)
	until, err := r.Settings().HoldBack(bg, "gc", "", time.Hour)
	r.must(err)
	same(t, "claimed", len(r.claim(50)), 4)
	got, more, err := r.Looks().GroupsInUse(bg, 3)
	r.must(err)
	same(t, "more", more, true)
	text := []string{}
	for _, g := range got {
		text = append(text, fmt.Sprint(g.Key, " ", g.Holding, " ", g.Waiting, " ", g.Limits.Running, " ", g.Until.IsZero()))
	}
	equal(t, "groups", text, []string{"gb 2 3 2 true", "ga 1 2 1 true", "sa 1 1 1 true"})
	got, more, err = r.Looks().GroupsInUse(bg, 9)
	r.must(err)
	same(t, "all", fmt.Sprint(len(got), more, got[3].Waiting, got[3].Until.Equal(until)), "4 false 1 true")
}

// A renewal says that there is more to claim only if the queue's own limits, and a hold, let a job start. It says when to look again.
func TestRenewalsOfLimitedQueues(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	renewed := func(what string, more bool, least, most time.Duration) {
		t.Helper()
		_, hints, err := r.Sessions().Renew(bg, r.session, time.Hour, "")
		if r.must(err); hints.More != more || hints.Next < least || hints.Next > most {
			t.Errorf("%s: more %v, next %v; want %v, %v to %v", what, hints.More, hints.Next, more, least, most)
		}
	}
	const lease = time.Hour // when nothing else is to be done, a worker looks when the first session ends
	limit := func(l signalbox.Limits) {
		_, err := r.Settings().SetLimits(bg, l)
		r.must(err)
	}
	r.put(numbered("j", 5)...)
	ran := r.claim(2)
	renewed("no limits", true, 0, lease)
	limit(signalbox.Limits{Running: 2})
	renewed("as many run as may", false, 50*time.Minute, lease)
	limit(signalbox.Limits{Running: 3})
	renewed("another one may", true, 0, lease)
	limit(signalbox.Limits{})

	_, err := r.Settings().HoldBack(bg, "", "", 20*time.Minute)
	r.must(err)
	renewed("held back", false, 15*time.Minute, 20*time.Minute)
	_, err = r.Settings().HoldBack(bg, "", "", 0)
	r.must(err)
	renewed("let go", true, 0, lease)

	hourly := signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: 30 * time.Minute, Burst: 1}}
	limit(hourly)
	renewed("the rate allows one", true, 0, lease)
	r.one()
	renewed("the rate is used up", false, 25*time.Minute, 30*time.Minute)
	limit(signalbox.Limits{Rate: signalbox.Rate{Jobs: 1, Per: time.Minute, Burst: 1}})
	renewed("the rate is higher", false, 30*time.Second, time.Minute)
	now, err := r.Now(bg)
	r.must(err)
	r.must(r.rdb.ZAdd(bg, r.keys.Rates, redis.Z{Score: float64(now.Add(9 * time.Hour).UnixMicro())}).Err())
	renewed("its time is from before a change, and a claim is to mend it", true, 0, lease)
	r.claim(1)
	renewed("one has", false, 30*time.Second, time.Minute)
	limit(signalbox.Limits{Running: 3})
	renewed("as many run as may", false, 50*time.Minute, lease)
	r.settled(settlement(ran[0], Completed))
	renewed("one has ended", true, 0, lease)
	_, err = r.Settings().Pause(bg)
	r.must(err)
	renewed("paused", false, 50*time.Minute, lease)
	r.check()
}
