package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

func (r *rig) pauseGroup(want bool, keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		changed, err := r.Settings().PauseGroup(bg, key)
		r.must(err)
		same(r.t, "paused "+key, changed, want)
	}
}

func (r *rig) resumeGroup(want bool, keys ...string) {
	r.t.Helper()
	for _, key := range keys {
		changed, err := r.Settings().ResumeGroup(bg, key)
		r.must(err)
		same(r.t, "resumed "+key, changed, want)
	}
}

// No delivery of a paused group begins until it is resumed: of jobs in its line, of those that come, and of those that come due. Others go on.
func TestPauseGroup(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"ga", "sa"} {
		r := onShared(t)
		r.open()
		r.pauseGroup(true, key)
		r.pauseGroup(false, key)
		r.putIn(key, "a1", "a2")
		r.putIn("gb", "b1")
		r.putIn("sb", "b2")
		r.put("plain")
		r.enqueued(r.grouped("a3", key, When{After: time.Hour}, signalbox.PriorityHigh))
		got := r.call(ClaimRequest{Want: 9, Address: r.address()})
		equal(t, "claimed", slices.Sorted(slices.Values(ids(got.Deliveries))), []string{"b1", "b2", "plain"})
		same(t, "nothing more", got.More || got.CutShort, false)
		r.makeDue("aa3")
		equal(t, "when a job has come due", ids(r.claim(9)), []string{})
		r.putIn(key, "a4")
		got = r.call(ClaimRequest{Want: 9, Address: r.address()})
		equal(t, "when another one has come", ids(got.Deliveries), []string{})
		if !r.registered() || got.More || got.Next == 0 {
			t.Errorf("a worker rests beside a paused group: %+v", got.Hints)
		}
		r.check()
		r.noFindings()
		r.must(func() error { _, err := r.Settings().Pause(bg); return err }())
		r.resumeGroup(true, key)
		equal(t, "while the queue is paused", ids(r.claim(9)), []string{})
		r.must(func() error { _, err := r.Settings().Resume(bg); return err }())
		want := []string{"a3", "a1", "a2", "a4"}
		if key[0] == 's' {
			want = want[:1]
		}
		equal(t, "resumed", ids(r.claim(9)), want)
		r.check()
		r.resumeGroup(false, key)
		same(t, "what is left of it", r.rdb.Exists(bg, r.keys.Limits).Val(), 0)
	}
}

// A pause is over at once for a worker that waits, and wakes nobody while the queue itself is paused or nothing waits.
func TestResumeGroupWakes(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.listen()
	r.pauseGroup(true, "ga")
	r.putIn("ga", "a1")
	r.dropWake()
	equal(t, "claimed", ids(r.claim(5)), []string{})
	r.dropWake()
	r.resumeGroup(true, "ga")
	r.idle.hears(r.keys.Control(), Look)
	r.takeWake()
	equal(t, "claimed", ids(r.claim(5)), []string{"a1"})
	r.dropWake()
	r.pauseGroup(true, "ga")
	r.resumeGroup(true, "ga")
	same(t, "woken for nothing", r.wakes(), 0)
}

// A job of a serial group that waits for its retry holds the group. It doesn't start again while the group is paused, and runs first when it is resumed.
func TestPauseSerialRetry(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.putIn("sa", "a1", "a2")
	a1 := r.one()
	r.pauseGroup(true, "sa")
	retry := settlement(a1, Retry)
	retry.Delay = time.Hour
	retry.Record, _ = a1.Failed(1, "x")
	r.settled(retry)
	r.makeDue("1a1")
	for range 2 { // it is due again in a while
		equal(t, "paused", ids(r.claim(5)), []string{})
		if next := r.call(ClaimRequest{}).Next; next < 5*time.Minute || next > 10*time.Minute {
			t.Errorf("a worker looks again in %v", next)
		}
		r.check()
		r.noFindings()
		same(t, "the job's state", r.states()["a1"], "due")
		r.makeDue("1a1")
	}
	equal(t, "paused", ids(r.claim(5)), []string{})
	r.resumeGroup(true, "sa")
	d := r.one()
	same(t, "resumed", d.Job.ID, "a1")
	r.check()
	r.settled(settlement(d, Completed))
	same(t, "behind it", r.one().Job.ID, "a2")
}

// Jobs that are taken back from a dead worker, and suspects among them, don't start while their group is paused.
func TestPauseReclaimed(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"ga", "sa"} {
		for _, crashes := range []int{1, 2} {
			r := onShared(t)
			r.open()
			r.putIn(key, "a1", "a2", "a3")
			want := []string{"a1"}
			if key == "ga" {
				want = append(want, "a2")
			}
			for range crashes - 1 {
				same(t, "claimed", len(r.claim(len(want))), len(want))
				r.crash()
			}
			for range want {
				same(t, "claimed", len(r.call(ClaimRequest{Want: 1, Suspects: true}).Deliveries), 1)
				r.session = "s" + NewID()
				r.open()
			}
			sessions, err := r.rdb.ZRange(bg, r.keys.Sessions, 0, -1).Result()
			r.must(err)
			r.pauseGroup(true, key)
			for _, session := range sessions {
				if session != r.session {
					_, _, err := r.Sessions().Renew(bg, session, 0, "")
					r.must(err)
					r.reclaim(session)
				}
			}
			for range 3 {
				equal(t, fmt.Sprint(key, crashes, " paused"), ids(r.claim(9)), []string{})
				r.check()
			}
			r.noFindings()
			r.resumeGroup(true, key)
			seen := []string{}
			for range 9 {
				for _, d := range r.claim(9) {
					seen = append(seen, d.Job.ID)
					r.settled(settlement(d, Completed))
				}
			}
			r.check()
			slices.Sort(seen)
			equal(t, fmt.Sprint(key, crashes, " resumed"), seen, []string{"a1", "a2", "a3"})
		}
	}
}

// A job that waits for the end of its group's pause, and then is cancelled, moved to another time or priority, or deleted, leaves nothing behind.
func TestPausedHolderIsActedOn(t *testing.T) {
	t.Parallel()
	for what, act := range map[string]Act{
		"cancelled": CancelJobs(""), "deleted": DeleteJobs(), "run": RunJobs(time.Time{}), "later": RunJobs(time.Now().Add(time.Hour)), "high": PrioritiseJobs(signalbox.PriorityHigh),
	} {
		r := onShared(t)
		r.open()
		r.putIn("sa", "a1", "a2")
		a1 := r.one()
		r.pauseGroup(true, "sa")
		r.settled(settlement(a1, Return))
		equal(t, "paused", ids(r.claim(5)), []string{})
		same(t, what, r.did(act, "a1").Acted, Done)
		for range 2 {
			equal(t, what+", paused", ids(r.claim(5)), []string{})
			r.check()
		}
		r.resumeGroup(true, "sa")
		if what == "later" { // whoever asked for that didn't ask for the end of the pause
			equal(t, what+", resumed", ids(r.claim(5)), []string{})
			r.check()
			r.makeDue("1a1")
		}
		first := r.one().Job.ID
		same(t, what+", resumed", first, map[bool]string{true: "a2", false: "a1"}[what == "cancelled" || what == "deleted"])
		r.check()
	}
}

// A job of a paused group that hasn't started in time ends, and one that has started doesn't.
func TestExpiryInAPausedGroup(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	r.expiring(time.Hour, "sa", When{}, "a1", "a2")
	a1 := r.one()
	r.pauseGroup(true, "sa")
	r.settled(settlement(a1, Return))
	equal(t, "paused", ids(r.claim(5)), []string{})
	r.check()
	r.resumeGroup(true, "sa")
	same(t, "resumed", r.one().Job.ID, "a1")
	r.check()
}

// Limits, a hold and a pause of one group don't undo each other.
func TestPauseBesideLimits(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	rate := signalbox.Limits{Running: 5, Rate: signalbox.Rate{Jobs: 1, Per: time.Hour, Burst: 2}}
	_, err := r.Settings().SetLimitsOf(bg, "a", rate)
	r.must(err)
	r.putIn("ga", numbered("a", 4)...)
	same(t, "claimed", len(r.claim(1)), 1)
	r.pauseGroup(true, "ga")
	_, err = r.Settings().SetLimitsOf(bg, "a", signalbox.Limits{Running: 9})
	r.must(err)
	_, err = r.Settings().SetGroupLimits(bg, signalbox.Limits{})
	r.must(err)
	equal(t, "another limit", ids(r.claim(9)), []string{})
	_, err = r.Settings().HoldBack(bg, "ga", "", time.Hour)
	r.must(err)
	_, err = r.Settings().HoldBack(bg, "ga", "", 0)
	r.must(err)
	equal(t, "a hold that is over", ids(r.claim(9)), []string{})
	r.check()
	_, err = r.Settings().HoldBack(bg, "ga", "", time.Hour)
	r.must(err)
	r.resumeGroup(true, "ga")
	equal(t, "held back", ids(r.claim(9)), []string{})
	_, err = r.Settings().HoldBack(bg, "ga", "", 0)
	r.must(err)
	same(t, "at last", len(r.claim(9)), 3)
	r.check()
}

// Paused groups are listed, each once, however many there are; and what is in use says that it is paused.
func TestPausedGroups(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	before := r.rdb.Time(bg).Val()
	const n = 2500
	for i := range n {
		r.pauseGroup(true, fmt.Sprintf("gt%d", i))
	}
	_, err := r.Settings().SetLimitsOf(bg, "pa", signalbox.Limits{Running: 1})
	r.must(err)
	paused, err := r.Settings().PausedGroups(bg)
	r.must(err)
	same(t, "paused", len(paused), n)
	if since := paused["gt7"]; since.Before(before) || since.After(r.rdb.Time(bg).Val()) {
		t.Errorf("paused since %v", since)
	}
	own, err := r.Settings().GroupLimits(bg)
	r.must(err)
	same(t, "limits of their own", len(own), 1)
	r.putIn("gt7", "a1")
	r.putIn("gu", "b1", "b2")
	groups, _, err := r.Looks().GroupsInUse(bg, 9)
	r.must(err)
	same(t, "groups", fmt.Sprint(len(groups), groups[0].Paused, groups[1].Paused, groups[1].Since.Equal(paused["gt7"])), "2 false true true")
	same(t, "why a job waits", r.shown("a1").Brakes.Paused, true)
	same(t, "why another one does", r.shown("b1").Brakes.Paused, false)
	r.must(r.rdb.HSet(bg, r.keys.Limits, "pgx", "soon").Err())
	r.putIn("gx", "x1")
	equal(t, "with a time that can't be read", ids(r.claim(9)), []string{"b1", "b2"})
}
