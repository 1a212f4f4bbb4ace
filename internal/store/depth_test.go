package store

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
)

var depthTests = []storeTest{
	{"Depths", testDepths},
	{"OldestReady", testOldestReady},
	{"OneReports", testOneReports},
}

func (r *rig) depths() Depths {
	r.t.Helper()
	d, err := r.Depths(bg)
	r.must(err)
	return d
}

func testDepths(t *testing.T, r *rig) {
	same(t, "an empty queue", r.depths(), Depths{})
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
	same(t, "depths", d, Depths{Ready: 2, Scheduled: 1, Running: 2, Dead: 1, Cancelled: 2})
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
	r.must(r.rdb.ZAdd(bg, r.keys.due, redis.Z{Score: float64(now.Add(-time.Minute).UnixMicro()), Member: "1later"}).Err())
	if got := r.depths().Oldest; got < time.Minute || got > 2*time.Minute {
		t.Errorf("a job that was due a minute ago waits for %v", got)
	}
	r.enqueued(r.item("old", When{At: now.Add(-time.Hour)}, signalbox.PriorityLow)) // due at once
	if got := r.depths().Oldest; got < time.Minute || got > 2*time.Minute {
		t.Errorf("with one that was late when it came, the oldest waits for %v", got)
	}
	// Records that can't be read, and IDs without a record, have no age.
	r.must(r.rdb.HSet(bg, r.keys.jobs, "new", "?", "old", "").Err())
	r.must(r.rdb.ZRem(bg, r.keys.due, "1later").Err())
	same(t, "the age of what can't be read", r.depths().Oldest, 0)
	for _, d := range r.claim(3) {
		r.settled(settlement(d, Dead))
	}
	r.must(r.rdb.HDel(bg, r.keys.jobs, "later").Err())
}

func testOneReports(t *testing.T, r *rig) {
	report := func(client string) bool {
		t.Helper()
		mine, err := r.Report(bg, client)
		r.must(err)
		return mine
	}
	for range 2 {
		same(t, "a reports", report("a"), true)
		same(t, "b reports beside a", report("b"), false)
	}
	if ttl := r.rdb.PTTL(bg, r.keys.reporter).Val(); ttl <= ReportFor-10*time.Second || ttl > ReportFor {
		t.Errorf("a reports for %v, want %v", ttl, ReportFor)
	}
	r.must(r.StopReporting(bg, "b"))
	same(t, "b reports after it stopped", report("b"), false)
	r.must(r.StopReporting(bg, "a"))
	same(t, "b reports after a stopped", report("b"), true)
	r.must(r.rdb.PExpire(bg, r.keys.reporter, 0).Err()) // b has not reported for too long
	same(t, "a reports after b fell silent", report("a"), true)
	r.must(r.StopReporting(bg, "a"))
	same(t, "the key", r.rdb.Exists(bg, r.keys.reporter).Val(), 0)
}

func TestStrangeDepths(t *testing.T) {
	t.Parallel()
	good := []any{"ok", int64(10), int64(1), int64(2), int64(3), int64(4), int64(5), int64(4), int64(7), "", "", "", "", ""}
	d, err := parseDepths(&reply{list: good})
	if err != nil || d != (Depths{Ready: 1, Scheduled: 2, Running: 3, Dead: 4, Cancelled: 5, Completed: 7, Oldest: 6 * time.Microsecond}) {
		t.Fatalf("%+v, %v", d, err)
	}
	for i := range good {
		bad := append([]any(nil), good...)
		bad[i] = 1.5
		if _, err := parseDepths(&reply{list: bad}); err == nil {
			t.Errorf("field %d as %v is accepted", i, bad[i])
		}
		if _, err := parseDepths(&reply{list: good[:i]}); err == nil {
			t.Errorf("a reply that ends before field %d is accepted", i)
		}
	}
}

// A queue says what keeps its jobs from starting: that it is paused, until when it is held back, and whether its limits let none start now.
func TestDepthsSayWhatBlocks(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.open()
	says := func(what string, paused, held, limited bool) {
		t.Helper()
		d := r.depths()
		if d.Paused != paused || d.Held.IsZero() == held || d.Limited != limited {
			t.Errorf("%s: %+v", what, d)
		}
	}
	limit := func(l signalbox.Limits) {
		t.Helper()
		_, err := r.SetLimits(bg, l)
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
	until, err := r.HoldBack(bg, "", "", time.Hour)
	r.must(err)
	says("held", false, true, false)
	if d := r.depths(); d.Held.Sub(until).Abs() > time.Millisecond {
		t.Errorf("held until %v, not %v", d.Held, until)
	}
	_, err = r.Pause(bg)
	r.must(err)
	says("both", true, true, false)
	_, err = r.HoldBack(bg, "", "", 0)
	r.must(err)
	_, err = r.Resume(bg)
	r.must(err)
	_, err = r.HoldBack(bg, "gx", "", time.Hour)
	r.must(err)
	says("a group", false, false, false)
	limit(signalbox.Limits{Running: 1})
	for _, d := range r.claim(5) {
		r.settled(settlement(d, Completed))
	}
}
