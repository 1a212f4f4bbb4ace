package store

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// soundLimits fills a queue that has limits. p1 and r1 run. A job of each of their groups waits for its rate, the latter in a serial group.
func (r *rig) soundLimits() {
	r.t.Helper()
	r.open()
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 9})
	r.must(err)
	_, err = r.Settings().SetGroupLimits(bg, signalbox.Limits{Running: 5, Rate: signalbox.Rate{Jobs: 1, Per: time.Hour}})
	r.must(err)
	r.putIn("gp", "p1", "p2")
	r.putIn("sr", "r1", "r2")
	got := r.claim(9)
	equal(r.t, "claimed", ids(got), []string{"p1", "r1"})
	r.settled(settlement(got[1], Completed))
	r.claim(9)
	equal(r.t, "states", r.rdb.HMGet(bg, r.keys.Groups, "gp", "sr").Val(), []any{".w.1", ".w.0"})
	r.put("run")
	r.claim(1)
}

func testDoctorRepairsLimits(t *testing.T, all *rig) {
	group := func(key, value string) func(r *rig) error {
		return func(r *rig) error { return r.rdb.HSet(bg, r.keys.Groups, key, value).Err() }
	}
	count := func(session, n string) func(r *rig) error {
		return func(r *rig) error { return r.rdb.HSet(bg, r.keys.Running, session, n).Err() }
	}
	testPlanted(t, all, []planted{
		{name: "a line that waits for no time", want: []facts.Fault{facts.WrongTurn}, differ: []string{"groups", "turns", "parked"}, spoil: func(r *rig) error {
			return r.rdb.ZRem(bg, r.keys.Parked, "1gp").Err()
		}},
		{name: "a serial line that waits for no time", want: []facts.Fault{facts.WrongTurn}, differ: []string{"groups", "turns", "parked"}, spoil: func(r *rig) error {
			return r.rdb.ZRem(bg, r.keys.Parked, "1sr").Err()
		}},
		{name: "no line waits for a time", want: []facts.Fault{facts.WrongTurn, facts.WrongTurn}, differ: []string{"groups", "turns", "parked"}, spoil: func(r *rig) error {
			return r.rdb.Del(bg, r.keys.Parked, r.keys.Turns).Err()
		}},
		{name: "a turn before its time", want: []facts.Fault{facts.WrongTurn}, spoil: func(r *rig) error {
			return r.rdb.ZAdd(bg, r.keys.Turns, redis.Z{Score: 1<<50 + 7, Member: "1gp"}).Err()
		}},
		{name: "held by more than there are", want: []facts.Fault{facts.WrongHolders}, spoil: group("gp", ".w.3")},
		{name: "held by fewer than there are", want: []facts.Fault{facts.WrongHolders}, spoil: group("gp", ".w.0")},
		{name: "a serial group, held by nobody", want: []facts.Fault{facts.WrongHolders}, spoil: group("sr", ".w.2")},
		{name: "more than it runs", want: []facts.Fault{facts.WrongRunning}, spoil: count("s1", "7")},
		{name: "no number", want: []facts.Fault{facts.WrongRunning}, spoil: count("s1", "x")},
		{name: "a session that is gone", want: []facts.Fault{facts.WrongRunning}, spoil: count("gone", "2")},
		{name: "a session that isn't counted", want: []facts.Fault{facts.WrongRunning}, spoil: func(r *rig) error {
			return r.rdb.HDel(bg, r.keys.Running, "s1").Err()
		}},
		{name: "a delivery without a record", want: []facts.Fault{facts.NoRecord}, differ: []string{"running"}, spoil: func(r *rig) error {
			return errors.Join(r.rdb.HSet(bg, r.keys.Inflight("s1"), "x", "7").Err(), count("s1", "3")(r))
		}},
	}, (*rig).soundLimits)
}

// A repaired line goes on by its rate.
func TestDoctorOfParkedLines(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.soundLimits()
	r.must(r.rdb.HSet(bg, r.keys.Groups, "gp", ".w.3").Err())
	r.findings(true)
	same(t, "state", r.rdb.HGet(bg, r.keys.Groups, "gp").Val(), ".w.1")
	r.must(r.rdb.Del(bg, r.keys.Parked).Err())
	r.findings(true)
	equal(t, "before its time", ids(r.claim(9)), []string{})
	equal(t, "lines that wait", r.rdb.ZRange(bg, r.keys.Parked, 0, -1).Val(), []string{"1gp", "1sr"})
	for _, key := range []string{r.keys.Rates, r.keys.Parked} {
		for _, z := range r.rdb.ZRangeWithScores(bg, key, 0, -1).Val() {
			r.must(r.rdb.ZIncrBy(bg, key, -3600e6, z.Member.(string)).Err())
		}
	}
	equal(t, "then", ids(r.claim(9)), []string{"p2", "r2"})
}

// A repaired count has a worker look at once.
func TestDoctorOfRunning(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.put("a", "b")
	_, err := r.Settings().SetLimits(bg, signalbox.Limits{Running: 2})
	r.must(err)
	r.must(r.rdb.HSet(bg, r.keys.Running, "gone", 2).Err())
	r.listen()
	r.dropWake()
	found, _ := r.findings(true)
	equal(t, "findings", faultsOf(found), []facts.Fault{facts.WrongRunning})
	same(t, "wake-ups", r.wakes(), 1)
	equal(t, "then", ids(r.claim(9)), []string{"a", "b"})
	r.check()
	_, err = r.Settings().SetLimits(bg, signalbox.Limits{})
	r.must(err)
	if found, _ := r.findings(false); len(found) > 0 {
		t.Errorf("without a limit: %+v", found)
	}
}
