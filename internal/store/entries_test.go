package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

var entryTests = []storeTest{
	{"EntryIsAnnounced", testAnnounce},
	{"EntryOfTwoSchedulers", testTwoAnnounce},
	{"EntryIsPaused", testPausedEntry},
	{"EntryLastTick", testLastOfPaused},
	{"EntryIsForgotten", testForgetEntry},
	{"EntryThatTicksIsKept", testForgetTickingEntry},
	{"EntryRunsNow", testRunEntry},
	{"EntryOfAnUnknownName", testUnknownEntry},
	{"EntryWithGarbage", testGarbageEntry},
	{"EntryOfANewerQueue", testAnnounceOutdated},
}

// notice returns the notice of an entry whose jobs have the payload.
func notice(name, spec, payload string) Notice {
	return NewNotice(Plan{Entry: name}, Description{Spec: spec, Zone: "UTC"}, &signalbox.Job{Kind: "digest", Payload: []byte(payload)}, false)
}

func (r *rig) entry(name string) Entry {
	r.t.Helper()
	all, err := r.Cron().Entries(bg, []string{name})
	r.must(err)
	if len(all) != 1 {
		r.t.Fatalf("%d entries %s", len(all), name)
	}
	return all[0]
}

// unseen makes it so long ago that a scheduler said it had the entry.
func (r *rig) unseen(name string, ago time.Duration) {
	r.t.Helper()
	value, err := r.rdb.HGet(bg, r.keys.Entries, seenField+name).Result()
	r.must(err)
	_, digest, _ := strings.Cut(value, " ")
	now, err := r.Now(bg)
	r.must(err)
	r.must(r.rdb.HSet(bg, r.keys.Entries, seenField+name, fmt.Sprintf("%d %s", now.Add(-ago).UnixMicro(), digest)).Err())
}

// ticked makes it so long ago that the entry last ticked.
func (r *rig) ticked(name string, ago time.Duration) {
	r.t.Helper()
	now, err := r.Now(bg)
	r.must(err)
	r.must(r.rdb.HSet(bg, r.keys.Cron, name, now.Add(-ago).UnixMicro()).Err())
}

func (r *rig) verdict(want Verdict) func(Verdict, error) {
	return func(got Verdict, err error) {
		r.t.Helper()
		r.must(err)
		same(r.t, "verdict", got, want)
	}
}

func testAnnounce(t *testing.T, r *rig) {
	before, err := r.Now(bg)
	r.must(err)
	names, err := r.Cron().EntryNames(bg)
	r.must(err)
	same(t, "entries of a new queue", len(names), 0)
	b, a := notice("b", "@daily", "1"), NewNotice(Plan{Entry: "a"}, Description{Spec: "0 9 * * *", Zone: "Europe/Berlin", Missed: "once"}, &signalbox.Job{Kind: "report"}, false)
	r.must(r.Cron().Announce(bg, []Notice{b, a}))
	names, err = r.Cron().EntryNames(bg)
	r.must(err)
	equal(t, "entries", names, []string{"a", "b"})
	all, err := r.Cron().Entries(bg, []string{"a", "nobodys", "b"})
	r.must(err)
	same(t, "found", len(all), 2)
	for i, want := range []Entry{
		{Name: "a", Kind: "report", Spec: "0 9 * * *", Zone: "Europe/Berlin", Missed: "once"},
		{Name: "b", Kind: "digest", Spec: "@daily", Zone: "UTC"},
	} {
		want.Seen = all[i].Seen
		same(t, "entry", all[i], want)
		if all[i].Seen.Before(before) {
			t.Errorf("seen at %v, before %v", all[i].Seen, before)
		}
	}
	queues, err := Queues(bg, r.rdb, "")
	r.must(err)
	if !strings.Contains(strings.Join(queues, " "), r.Name()) {
		t.Error("a queue that has only cron entries is not registered")
	}

	r.later()
	lacking, err := r.Cron().Remind(bg, []Notice{b, a, notice("c", "@daily", "")})
	r.must(err)
	equal(t, "lacking", lacking, []string{"c"})
	if got := r.entry("b"); !got.Seen.After(all[1].Seen) {
		t.Errorf("after a reminder it was seen at %v", got.Seen)
	}
	same(t, "an entry that was not described", r.rdb.HLen(bg, r.keys.Entries).Val(), 6)
}

// The scheduler that began last describes an entry, while it has it. Then another does.
func testTwoAnnounce(t *testing.T, r *rig) {
	older, newer := notice("e", "@daily", "1"), notice("e", "@hourly", "1")
	r.must(r.Cron().Announce(bg, []Notice{older}))
	r.must(r.Cron().Announce(bg, []Notice{newer}))
	remind := func(n Notice, want ...string) {
		t.Helper()
		lacking, err := r.Cron().Remind(bg, []Notice{n})
		r.must(err)
		equal(t, "lacking", lacking, want)
	}
	remind(older)
	same(t, "spec", r.entry("e").Spec, "@hourly")
	r.unseen("e", NoticePatience-time.Minute)
	seen := r.entry("e").Seen
	remind(older)
	same(t, "when it was seen", r.entry("e").Seen, seen)
	remind(newer)
	if got := r.entry("e"); !got.Seen.After(seen) {
		t.Errorf("after a reminder it was seen at %v", got.Seen)
	}
	for _, ago := range []time.Duration{NoticePatience + time.Minute, -time.Hour} { // that one has gone; the clock was wrong then
		r.unseen("e", ago)
		remind(older, "e")
	}
	r.must(r.Cron().Announce(bg, []Notice{older}))
	remind(older)
	same(t, "spec", r.entry("e").Spec, "@daily")

	other := notice("e", "@daily", "2") // with other jobs
	r.must(r.Cron().Announce(bg, []Notice{other}))
	seen = r.entry("e").Seen
	remind(older)
	same(t, "when it was seen", r.entry("e").Seen, seen)

	r.must(r.rdb.Del(bg, r.keys.Entries).Err()) // Redis has lost its memory
	remind(older, "e")
}

// The ticks of a paused entry pass without jobs, each once, and aren't made up for.
func testPausedEntry(t *testing.T, r *rig) {
	r.open()
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@every 1s", "1"), notice("f", "@every 1s", "1")}))
	now, err := r.Now(bg)
	r.must(err)
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	same(t, "before", r.tick("e", at(-50), "e1"), PutIn)
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e"))
	first := r.entry("e")
	if !first.Paused || first.PausedSince.Before(now) {
		t.Errorf("it is paused: %v, since %v", first.Paused, first.PausedSince)
	}
	r.verdict(EntryAsItWas)(r.Cron().PauseEntry(bg, "e"))
	same(t, "since when", r.entry("e").PausedSince, first.PausedSince)

	same(t, "while it is paused", r.tick("e", at(-40), "e2"), Passed)
	same(t, "by another scheduler", r.tick("e", at(-40), "e2x"), Taken)
	same(t, "one before", r.tick("e", at(-50), "e1x"), Taken)
	same(t, "of another entry", r.tick("f", at(-40), "f1"), PutIn)
	same(t, "an early one", r.tick("e", at(60_000), "e3"), Early)
	same(t, "a late one", r.reckoned("e", at(-30), "e3", Reckoning{Known: true, Skew: time.Hour}), Late)
	same(t, "one after the clock was set back", r.reckoned("e", at(-3_600_000), "e4", Reckoning{Known: true, Skew: -time.Hour}), Passed)
	same(t, "in a call with others", r.fates(
		r.item("e5", When{At: at(-20), Entry: "e"}, 0), r.item("plain", When{}, 0), r.item("f2", When{At: at(-20), Entry: "f"}, 0),
	), "p11")

	r.verdict(EntryChanged)(r.Cron().ResumeEntry(bg, "e"))
	r.verdict(EntryAsItWas)(r.Cron().ResumeEntry(bg, "e"))
	same(t, "paused", r.entry("e").Paused, false)
	same(t, "the passed tick", r.tick("e", at(-20), "e5x"), Taken)
	same(t, "the next one", r.tick("e", at(-10), "e6"), PutIn)
	equal(t, "jobs", ids(r.claim(10)), []string{"e1", "f1", "plain", "f2", "e6"})
}

// The last tick of an entry is the last that had a job, not one that passed in a pause.
func testLastOfPaused(t *testing.T, r *rig) {
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@every 1s", "1")}))
	now, err := r.Now(bg)
	r.must(err)
	at := func(ms int) time.Time {
		return now.Add(time.Duration(ms) * time.Millisecond).Truncate(time.Microsecond)
	}
	last := func(what string, want time.Time) {
		t.Helper()
		if got := r.entry("e"); !got.Last.Equal(want) || got.Err != nil {
			t.Errorf("%s: the last tick is %v, want %v (%v)", what, got.Last, want, got.Err)
		}
	}
	pause := func() { t.Helper(); r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e")) }
	resume := func() { t.Helper(); r.verdict(EntryChanged)(r.Cron().ResumeEntry(bg, "e")) }
	last("at first", time.Time{})
	pause()
	resume()
	last("after an empty pause", time.Time{})
	pause()
	same(t, "a tick", r.tick("e", at(-90), "e1"), Passed)
	last("in a pause", time.Time{})
	resume()
	last("after a pause", time.Time{})
	pause()
	last("in another pause", time.Time{})
	resume()
	same(t, "a tick", r.tick("e", at(-80), "e2"), PutIn)
	last("after a job", at(-80))
	pause()
	last("in a pause", at(-80))
	same(t, "a tick", r.tick("e", at(-70), "e3"), Passed)
	last("in a pause, after a tick", at(-80))
	resume()
	last("after it", at(-80))
	pause()
	same(t, "a tick", r.tick("e", at(-60), "e4"), Passed)
	resume()
	last("after another pause", at(-80))
	same(t, "a tick", r.tick("e", at(-50), "e5"), PutIn)
	last("after another job", at(-50))
}

func testForgetEntry(t *testing.T, r *rig) {
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@every 1s", "1"), notice("f", "@daily", "1")}))
	now, err := r.Now(bg)
	r.must(err)
	same(t, "a tick", r.tick("e", now, "e1"), PutIn)
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e"))
	before := r.dump()
	r.verdict(EntryLives)(r.Cron().ForgetEntry(bg, "e"))
	r.unchanged("an entry that a scheduler has", before)
	r.unseen("e", NoticePatience+time.Minute)
	r.ticked("e", NoticePatience+time.Minute)
	r.verdict(EntryChanged)(r.Cron().ForgetEntry(bg, "e"))
	r.verdict(EntryUnknown)(r.Cron().ForgetEntry(bg, "e"))
	names, err := r.Cron().EntryNames(bg)
	r.must(err)
	equal(t, "entries", names, []string{"f"})
	same(t, "fields", r.rdb.HLen(bg, r.keys.Entries).Val(), 3)
	same(t, "last ticks", r.rdb.HLen(bg, r.keys.Cron).Val(), 0)
	same(t, "settings beside the layout", r.rdb.HLen(bg, r.keys.Settings).Val(), 1)
	same(t, "its job", r.counts().Ready, 1)
}

// An entry that still ticks is kept, also if its scheduler can't say that it has the entry. Else a tick would fire twice, and a pause
// would end.
func testForgetTickingEntry(t *testing.T, r *rig) {
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@every 1s", "1")}))
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e"))
	now, err := r.Now(bg)
	r.must(err)
	same(t, "a tick", r.tick("e", now, "e1"), Passed)
	for _, described := range []bool{true, false} {
		if described {
			r.unseen("e", NoticePatience+time.Minute)
		} else {
			r.must(r.rdb.Del(bg, r.keys.Entries).Err())
		}
		for _, ago := range []time.Duration{0, NoticePatience - time.Minute, time.Minute - NoticePatience} {
			r.ticked("e", ago)
			before := r.dump()
			r.verdict(EntryLives)(r.Cron().ForgetEntry(bg, "e"))
			r.unchanged("an entry that ticks", before)
		}
	}
	r.ticked("e", -time.Hour) // the clock was wrong then
	r.verdict(EntryChanged)(r.Cron().ForgetEntry(bg, "e"))
}

func testRunEntry(t *testing.T, r *rig) {
	r.open()
	template := &signalbox.Job{
		Kind: "digest", Payload: []byte(`{"n":1}`), Headers: map[string]string{"tenant": "acme"}, Priority: signalbox.PriorityHigh, MaxAttempts: 3, Timeout: time.Minute,
	}
	r.must(r.Cron().Announce(bg, []Notice{NewNotice(Plan{Entry: "e"}, Description{Spec: "@daily", Zone: "UTC"}, template, false), NewNotice(Plan{Entry: "sealed"}, Description{Spec: "@daily", Zone: "UTC"}, template, true)}))
	now, err := r.Now(bg)
	r.must(err)
	same(t, "a tick", r.tick("e", now, "e1"), PutIn)
	r.claim(1)
	marks := r.rdb.HGetAll(bg, r.keys.Cron).Val()
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e"))
	known, err := r.Cron().RunEntry(bg, "e", "now1")
	if !known || err != nil {
		t.Fatalf("known %v, %v", known, err)
	}
	same(t, "last ticks", fmt.Sprint(r.rdb.HGetAll(bg, r.keys.Cron).Val()), fmt.Sprint(marks))
	got := r.one().Job
	if got.ID != "now1" || got.Kind != template.Kind || string(got.Payload) != string(template.Payload) || got.Headers["tenant"] != "acme" ||
		got.Priority != template.Priority || got.MaxAttempts != 3 || got.Timeout != time.Minute || got.EffectKey() != "{"+r.Name()+"}now1" {
		t.Errorf("the job is %+v, with the effect key %s", got, got.EffectKey())
	}
	if got.ScheduledAt.Before(now) || !got.ScheduledAt.Equal(got.EnqueuedAt) {
		t.Errorf("it was scheduled at %v, enqueued at %v", got.ScheduledAt, got.EnqueuedAt)
	}
	before := r.dump()
	if known, err := r.Cron().RunEntry(bg, "sealed", "now2"); !known || !errors.Is(err, ErrSealed) {
		t.Errorf("an entry whose jobs are encoded: %v, %v", known, err)
	}
	if known, err := r.Cron().RunEntry(bg, "nobodys", "now2"); known || err != nil {
		t.Errorf("an unknown entry: %v, %v", known, err)
	}
	if known, err := r.Cron().RunEntry(bg, "e", "now1"); !known || err == nil || !strings.Contains(err.Error(), "now1") {
		t.Errorf("with the ID of a live job: %v, %v", known, err)
	}
	for key, was := range before {
		if is := r.dump()[key]; is != was {
			t.Errorf("%s was %s, and is %s", key, was, is)
		}
	}
}

func testUnknownEntry(t *testing.T, r *rig) {
	r.layout(layout.Protocol)
	before := r.dump()
	r.verdict(EntryUnknown)(r.Cron().PauseEntry(bg, "e"))
	r.verdict(EntryUnknown)(r.Cron().ResumeEntry(bg, "e"))
	r.verdict(EntryUnknown)(r.Cron().ForgetEntry(bg, "e"))
	r.unchanged("an unknown entry", before)
	// The description was lost, and the pause wasn't.
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")}))
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e"))
	r.must(r.rdb.Del(bg, r.keys.Entries).Err())
	r.verdict(EntryChanged)(r.Cron().ResumeEntry(bg, "e"))
	r.unchanged("a pause without a description", before)
}

// Garbage in the hashes is reported with the name of its key and field. Other entries are read, and garbage can be replaced.
func testGarbageEntry(t *testing.T, r *rig) {
	good := notice("good", "@daily", "1")
	r.must(r.Cron().Announce(bg, []Notice{good}))
	for _, c := range []struct{ key, field, value string }{
		{r.keys.Entries, specField + "e", "garbage"},
		{r.keys.Entries, seenField + "e", "garbage"},
		{r.keys.Cron, "e", "garbage"},
		{r.keys.Settings, pausedEntry + "e", "garbage"},
	} {
		r.must(r.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")}))
		r.must(r.rdb.HSet(bg, c.key, c.field, c.value).Err())
		all, err := r.Cron().Entries(bg, []string{"e", "good"})
		if err != nil || len(all) != 2 || all[1].Err != nil {
			t.Fatalf("with %s: %+v, %v", c.field, all, err)
		}
		if err := all[0].Err; err == nil || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), "field "+c.field+" ") {
			t.Errorf("%s of %s: %v", c.field, c.key, err)
		}
		r.must(r.rdb.HDel(bg, r.keys.Cron, "e").Err())
		r.must(r.rdb.HDel(bg, r.keys.Settings, pausedEntry+"e").Err())
	}
	for _, value := range []string{"x", "1", "1garbage", "9\x0a\x01k"} {
		r.must(r.rdb.HSet(bg, r.keys.Entries, jobField+"e", value).Err())
		if known, err := r.Cron().RunEntry(bg, "e", "now"); !known || err == nil || !strings.Contains(err.Error(), r.keys.Entries) || !strings.Contains(err.Error(), "job:e") {
			t.Errorf("with the job %q: %v, %v", value, known, err)
		}
	}
	same(t, "ready", r.counts().Ready, 0)
	r.must(r.rdb.HSet(bg, r.keys.Entries, quietTicks+"e", "garbage", seenField+"e", "garbage").Err())
	lacking, err := r.Cron().Remind(bg, []Notice{notice("e", "@daily", "1")})
	r.must(err)
	equal(t, "lacking", lacking, []string{"e"})
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")}))
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e"))
	r.verdict(EntryChanged)(r.Cron().ResumeEntry(bg, "e"))
	if e := r.entry("e"); e.Err != nil {
		t.Errorf("when it is mended: %v", e.Err)
	}
}

// A scheduler that is too old for the queue describes nothing: a newer one may do it in another way.
func testAnnounceOutdated(t *testing.T, r *rig) {
	r.must(r.rdb.HSet(bg, r.keys.Settings, "layout", layout.Protocol+1).Err())
	before := r.dump()
	notices := []Notice{notice("e", "@daily", "1")}
	if err := r.Cron().Announce(bg, notices); !errors.Is(err, signalbox.ErrOutdated) {
		t.Errorf("Announce: %v", err)
	}
	if _, err := r.Cron().Remind(bg, notices); !errors.Is(err, signalbox.ErrOutdated) {
		t.Errorf("Remind: %v", err)
	}
	r.unchanged("a call that is too old", before)
	r.must(r.rdb.HDel(bg, r.keys.Settings, "layout").Err())
}

// Keys of another type are named.
func TestEntriesOfTheWrongType(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	r.must(r.rdb.Set(bg, r.keys.Entries, "x", 0).Err())
	for what, call := range map[string]func() error{
		"names":  func() error { _, err := r.Cron().EntryNames(bg); return err },
		"read":   func() error { _, err := r.Cron().Entries(bg, []string{"e"}); return err },
		"pause":  func() error { _, err := r.Cron().PauseEntry(bg, "e"); return err },
		"run it": func() error { _, err := r.Cron().RunEntry(bg, "e", "now"); return err },
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), r.keys.Entries) {
			t.Errorf("%s: %v", what, err)
		}
	}
	r.must(r.rdb.Del(bg, r.keys.Entries).Err())
}

// A pause, and the description of an entry, outlive the server's restart.
func TestEntriesOutliveTheServer(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	r := newQueue(t, srv.Client())
	r.must(r.Cron().Announce(bg, []Notice{notice("e", "@daily", "1")}))
	r.verdict(EntryChanged)(r.Cron().PauseEntry(bg, "e"))
	want := r.entry("e")
	srv.Kill()
	srv.Restart()
	same(t, "after a restart", r.entry("e"), want)
	now, err := r.Now(bg)
	r.must(err)
	same(t, "a tick", r.tick("e", now, "e1"), Passed)
}

// Many entries, with names that HSCAN and HMGET read in several calls.
func TestManyEntries(t *testing.T) {
	t.Parallel()
	r := onShared(t)
	var all []Notice
	want := numbered("entry", 2*entriesPerCall+1)
	for _, name := range want {
		all = append(all, notice(name, "@daily", strings.Repeat("x", 100)))
	}
	for len(all) > 0 {
		n := min(len(all), MaxNotices)
		r.must(r.Cron().Announce(bg, all[:n]))
		all = all[n:]
	}
	names, err := r.Cron().EntryNames(bg)
	r.must(err)
	equal(t, "names", names, want)
	entries, err := r.Cron().Entries(bg, names)
	r.must(err)
	same(t, "entries", len(entries), len(want))
	for i := range entries {
		if entries[i].Name != want[i] || entries[i].Err != nil || entries[i].Spec != "@daily" {
			t.Fatalf("%+v, want %s", entries[i], want[i])
		}
	}
}
