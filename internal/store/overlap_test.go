package store

import (
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
)

var overlapTests = []storeTest{
	{"OverlapIsSkipped", testOverlapSkip},
	{"OverlapOfEachState", testOverlapStates},
	{"OverlapQueuesOne", testOverlapQueue},
	{"OverlapCancelsOthers", testOverlapCancel},
	{"OverlapInOneCall", testOverlapOneCall},
	{"OverlapOfPausedAndOtherPlans", testOverlapNotTaken},
	{"OverlapRunsNow", testOverlapRun},
	{"OverlapWithGarbage", testOverlapGarbage},
}

// A metronome makes the ticks of an entry, one after the other.
type metronome struct {
	r    *rig
	plan Plan
	how  Overlap
	at   time.Time

	group   string        // serial; "": none
	expires time.Duration // after its tick; 0: never
}

func (r *rig) metronome(entry string, how Overlap) *metronome {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	m := &metronome{r: r, plan: NewPlan(entry, "spec", how.String()), how: how, at: now}
	r.planned(m.plan)
	return m
}

func (m *metronome) item(id string) Item {
	m.r.later()
	now, err := m.r.Now(bg)
	m.r.must(err)
	m.at = now
	return m.again(id)
}

// again returns a job of the same tick.
func (m *metronome) again(id string) Item {
	m.r.t.Helper()
	it, err := NewItem(&signalbox.Job{ID: id, Kind: "k", Group: m.group, Serial: m.group != "", ExpireAfter: m.expires},
		When{At: m.at, Entry: m.plan.Entry, Plan: m.plan.Digest, Late: TickGrace, Overlap: m.how})
	m.r.must(err)
	return it
}

// tick enqueues the next tick. The call is made twice, as if its reply had been lost. Another scheduler comes too late.
func (m *metronome) tick(id string) Fate {
	m.r.t.Helper()
	it := m.item(id)
	lane := m.r.NewLane()
	lane.Next()
	fates, err := m.r.Enqueue(bg, lane, []Item{it})
	m.r.must(err)
	before := m.r.dump()
	again, err := m.r.Enqueue(bg, lane, []Item{it})
	m.r.must(err)
	same(m.r.t, "the same call again", again.Of(0), fates.Of(0))
	m.r.unchanged("the same call again", before)
	other := m.r.NewLane()
	other.Next()
	if fates.Of(0).In() || fates.Of(0) == Overlapped {
		late, err := m.r.Enqueue(bg, other, []Item{m.again(id + "-other")})
		m.r.must(err)
		same(m.r.t, "by another scheduler", late.Of(0), Taken)
	}
	return fates.Of(0)
}

func (m *metronome) jobs() string {
	m.r.t.Helper()
	jobs, err := m.r.Cron().EntryJobs(bg, m.plan.Entry)
	m.r.must(err)
	return strings.Join(jobs, " ")
}

func testOverlapSkip(t *testing.T, r *rig) {
	r.open()
	m := r.metronome("e", OverlapSkip)
	same(t, "the first tick", m.tick("e1"), PutIn)
	same(t, "while its job is ready", m.tick("e2"), Overlapped)
	last := r.planned(m.plan)[0].Last
	same(t, "the tick has passed", last.UnixMicro(), m.at.UnixMicro())
	d := r.claim(1)
	same(t, "while its job runs", m.tick("e3"), Overlapped)
	r.settled(settlement(d[0], Completed))
	same(t, "when it has ended", m.tick("e4"), PutIn)
	same(t, "the entry's jobs", m.jobs(), "e4")
	same(t, "of another entry", r.metronome("f", OverlapSkip).tick("f1"), PutIn)
	same(t, "enqueued in all", r.counts().Total.Enqueued, 3)
	same(t, "with another policy, in a later version", r.metronome("e", OverlapAllow).tick("e5"), PutIn)
}

// A job is live until it has ended: it waits for a retry, its worker has died, or it was cancelled while it runs.
func testOverlapStates(t *testing.T, r *rig) {
	r.open()
	m := r.metronome("e", OverlapSkip)
	same(t, "the first tick", m.tick("e1"), PutIn)
	d := r.claim(1)
	retry := settlement(d[0], Retry)
	retry.Delay = time.Hour
	r.settled(retry)
	same(t, "while it waits for a retry", m.tick("e2"), Overlapped)
	r.did(RunJobs(time.Time{}), "e1")
	d = r.claim(1)
	r.cancel("e1")
	same(t, "while it runs and is cancelled", m.tick("e3"), Overlapped)
	r.settled(settlement(d[0], Completed))
	for _, end := range []string{"cancelled", "dead", "kept", "deleted"} {
		id := "e4" + end
		same(t, "after the one before was "+end, m.tick(id), PutIn)
		switch end {
		case "cancelled":
			r.cancel(id)
		case "dead":
			r.settled(settlement(r.claim(1)[0], Dead))
		case "kept":
			r.must(r.rdb.HSet(bg, r.keys.Settings, "keep_completed", "10 10000 1000000000").Err())
			kept := settlement(r.claim(1)[0], Completed)
			kept.Keep = Kept(&successOf, nil)
			r.settled(kept)
		case "deleted":
			r.did(DeleteJobs(), id)
		}
		same(t, "jobs after that", r.counts().Ready, 0)
	}
	same(t, "at last", m.tick("e5"), PutIn)
}

// At most one job runs, and one waits. A job that waits for its retry has begun.
func testOverlapQueue(t *testing.T, r *rig) {
	r.open()
	m := r.metronome("e", OverlapQueue)
	m.group = "g"
	same(t, "the first tick", m.tick("e1"), PutIn)
	same(t, "while its job waits", m.tick("e2"), Overlapped)
	d := r.claim(5)
	equal(t, "claimed", ids(d), []string{"e1"})
	same(t, "while it runs", m.tick("e3"), PutIn)
	same(t, "its jobs", m.jobs(), "e3 e1")
	same(t, "while one runs and one waits", m.tick("e4"), Overlapped)
	same(t, "claimed while it runs", len(r.claim(5)), 0)
	retry := settlement(d[0], Retry)
	retry.Delay = time.Hour
	r.settled(retry)
	same(t, "while one waits for its retry, and one for that", m.tick("e5"), Overlapped)
	same(t, "claimed while it waits for its retry", len(r.claim(5)), 0)
	r.cancel("e3")
	same(t, "while one waits for its retry", m.tick("e6"), PutIn)
	r.cancel("e1")
	equal(t, "claimed when it has ended", ids(r.claim(5)), []string{"e6"})
	same(t, "the next", m.tick("e7"), PutIn)
	r.did(RunJobs(m.at.Add(time.Hour)), "e7") // an operator puts it off
	same(t, "while it is put off", m.tick("e8"), Overlapped)
	same(t, "its jobs", m.jobs(), "e7 e6")

	now := r.metronome("now", OverlapQueue)
	now.group = "n"
	job := &signalbox.Job{Kind: "digest", Group: "n", Serial: true}
	r.must(r.Cron().Announce(bg, []Notice{NewNotice(Plan{Entry: "now"}, Description{Spec: "@daily", Zone: "UTC", Overlap: "queue"}, job, false)}))
	_, err := r.Cron().RunEntry(bg, "now", "n1")
	r.must(err)
	if _, err := r.Cron().RunEntry(bg, "now", "n2"); err == nil || !strings.Contains(err.Error(), "n1") {
		t.Errorf("a second one that is run now: %v", err)
	}
	same(t, "a tick while it waits", now.tick("n3"), Overlapped)
	equal(t, "claimed", ids(r.claim(5)), []string{"n1"})
	same(t, "a tick while it runs", now.tick("n4"), PutIn)
	same(t, "in one call", r.fates(now.item("n5"), now.item("n6")), "oo")

	plain := r.metronome("changes", OverlapSkip)
	same(t, "of an older version", plain.tick("p1"), PutIn)
	r.claim(1)
	changed := r.metronome("changes", OverlapQueue)
	changed.group = "c"
	same(t, "while a job runs that isn't in the group", changed.tick("p2"), Overlapped)
	bad := r.metronome("bad", OverlapQueue).item("bad")
	r.producer.Next()
	if _, err := r.Enqueue(bg, r.producer, []Item{bad}); err == nil || !strings.Contains(err.Error(), "not valid") {
		t.Errorf("without a group: %v", err)
	}
}

func testOverlapCancel(t *testing.T, r *rig) {
	r.open()
	m := r.metronome("e", OverlapCancel)
	same(t, "the first tick", m.tick("e1"), PutIn)
	d := r.claim(1)
	same(t, "while its job runs", m.tick("e2"), PutIn)
	same(t, "the newest stands first", m.jobs(), "e2 e1")
	n, err := r.Cron().CancelOverlapped(bg, "e")
	r.must(err)
	same(t, "cancelled", n, 1)
	marks, err := r.Sessions().Cancelled(bg, map[string]int64{"e1": d[0].Job.Token})
	r.must(err)
	same(t, "marks of its deliveries", len(marks), 1)
	before := r.dump()
	_, err = r.Cron().CancelOverlapped(bg, "e")
	r.must(err)
	r.unchanged("the same again", before)
	same(t, "while one waits and one runs", m.tick("e3"), PutIn)
	same(t, "all that are live", m.jobs(), "e3 e2 e1")
	_, err = r.Cron().CancelOverlapped(bg, "e") // by a scheduler that did not enqueue the tick
	r.must(err)
	r.settled(settlement(d[0], Completed))
	got := r.claim(10)
	equal(t, "what is left", ids(got), []string{"e3"})
	same(t, "cancelled in all", r.counts().Total.Cancelled, 2)
	same(t, "the next", m.tick("e4"), PutIn)
	same(t, "those that have ended are gone", m.jobs(), "e4 e3")
	r.settled(settlement(got[0], Completed))
	for _, id := range numbered("more", 12) {
		same(t, "a tick", m.tick(id), PutIn)
	}
	if got := strings.Fields(m.jobs()); len(got) != 8 || got[0] != "more0011" {
		t.Errorf("the list has %v", got)
	}
}

// Ticks of one entry in one call, as when missed ones are made up for.
func testOverlapOneCall(t *testing.T, r *rig) {
	r.open()
	m, c := r.metronome("e", OverlapSkip), r.metronome("c", OverlapCancel)
	same(t, "in one call", r.fates(m.item("e1"), c.item("c1"), m.item("e2"), r.item("plain", When{}, 0), c.item("c2")), "11o11")
	same(t, "jobs of the one", m.jobs(), "e1")
	same(t, "jobs of the other", c.jobs(), "c2 c1")
	same(t, "in the next call", r.fates(m.item("e3"), c.item("c3")), "o1")
}

// A tick that passes, since the entry is paused or has another plan, touches no job.
func testOverlapNotTaken(t *testing.T, r *rig) {
	r.open()
	c := r.metronome("c", OverlapCancel)
	same(t, "the first tick", c.tick("c1"), PutIn)
	r.must(r.Cron().Announce(bg, []Notice{notice("c", "@daily", "")}))
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "c"))
	same(t, "while the entry is paused", c.tick("c2"), Passed)
	same(t, "its jobs", c.jobs(), "c1")
	r.verdict(EntryChanged)(r.Cron().ResumeEntry(bg, "c"))
	other := r.metronome("c", OverlapSkip)
	same(t, "of the older version", c.tick("c3"), Superseded)
	same(t, "of the newer version, while a job of the older is live", other.tick("c4"), Overlapped)
	same(t, "its jobs", c.jobs(), "c1")
	n, err := r.Cron().CancelOverlapped(bg, "c")
	r.must(err)
	same(t, "to be cancelled", n, 0)
}

// A tool runs an entry now: by the entry's policy.
func testOverlapRun(t *testing.T, r *rig) {
	r.open()
	for _, how := range []Overlap{OverlapSkip, OverlapCancel} {
		name := "e" + string(how)
		n := NewNotice(Plan{Entry: name}, Description{Spec: "@daily", Zone: "UTC", Overlap: how.String()}, &signalbox.Job{Kind: "digest"}, false)
		r.must(r.Cron().Announce(bg, []Notice{n}))
		m := r.metronome(name, how)
		last := r.planned(m.plan)[0].Last
		_, err := r.Cron().RunEntry(bg, name, name+"-1")
		r.must(err)
		same(t, "its jobs", m.jobs(), name+"-1")
		same(t, "the last tick", r.planned(m.plan)[0].Last, last)
		fate, want := PutIn, name+"-2 "+name+"-1"
		if how == OverlapSkip {
			fate, want = Overlapped, name+"-1"
		}
		same(t, "a tick after that", m.tick(name+"-2"), fate)
		same(t, "jobs", m.jobs(), want)
		_, err = r.Cron().RunEntry(bg, name, name+"-3")
		if live, is := err.(*LiveError); is != (how == OverlapSkip) || is && strings.Join(live.IDs, " ") != name+"-1" || !is && err != nil {
			t.Errorf("%s runs again: %v", name, err)
		}
		same(t, "the policy", r.entry(name).Overlap, how.String())
	}
	same(t, "a job that replaced others cancelled them", r.counts().Total.Cancelled, 2)
}

func testOverlapGarbage(t *testing.T, r *rig) {
	r.open()
	m := r.metronome("e", OverlapSkip)
	r.must(r.rdb.HSet(bg, r.keys.Cron, "jobs e", "  \x00nonsense {} ").Err())
	same(t, "with a list that says nothing", m.tick("e1"), PutIn)
	same(t, "jobs", m.jobs(), "e1")
	before := r.dump()
	for _, when := range []string{"&e", "&e x", "& s", "&e s ", "&{} s", "&" + strings.Repeat("e", 201) + " s", "=1 e s", "=1 e abc s", "=1 e abc 5 x", "=1 e abc 5 ss"} {
		it := r.item("x", When{}, 0)
		it.when = when
		r.producer.Next()
		if _, err := r.Enqueue(bg, r.producer, []Item{it}); err == nil || !strings.Contains(err.Error(), "not valid") {
			t.Errorf("%q: %v", when, err)
		}
	}
	r.unchanged("wrong arguments", before)
}
