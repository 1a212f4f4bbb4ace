package inspect_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/scheduler"
)

// announce describes a cron entry as a scheduler does.
func announce(t *testing.T, q *store.Queue, name, spec, zone string) {
	t.Helper()
	n := store.NewNotice(store.Plan{Entry: name}, store.Description{Spec: spec, Zone: zone, Missed: "skip"}, &signalbox.Job{Kind: "task", Payload: []byte("{}"), MaxAttempts: 3}, false)
	if err := q.Cron().Announce(t.Context(), []store.Notice{n}); err != nil {
		t.Fatal(err)
	}
}

// tick enqueues a tick of an entry as a scheduler does, and returns what became of it.
func tick(t *testing.T, q *store.Queue, entry string, at time.Time) store.Fate {
	t.Helper()
	item, err := store.NewItem(&signalbox.Job{ID: store.NewID(), Kind: "task"}, store.When{At: at, Entry: entry})
	if err != nil {
		t.Fatal(err)
	}
	lane := q.NewLane()
	lane.Next()
	fates, err := q.Enqueue(t.Context(), lane, []store.Item{item})
	if err != nil {
		t.Fatal(err)
	}
	return fates.Of(0)
}

func TestEntries(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	namespace := redistest.Name(t)
	ins := inspector(t, rdb, namespace)
	if entries, err := ins.Entries(t.Context()); len(entries) != 0 || err != nil {
		t.Errorf("of a new namespace: %v, %v", entries, err)
	}
	a, b := store.New(rdb, namespace, "a"), store.New(rdb, namespace, "b")
	announce(t, b, "nightly", "30 2 * * *", "Europe/Berlin")
	announce(t, a, "two", "@every 1h", "UTC")
	announce(t, a, "one", "CRON_TZ=America/New_York 0 9 * * *", "America/New_York")
	now, err := a.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := now.Truncate(time.Second)
	if got := tick(t, a, "two", at); got != store.PutIn {
		t.Fatalf("the tick was %c", got)
	}
	if changed, err := ins.PauseEntry(t.Context(), "b", "nightly"); !changed || err != nil {
		t.Fatal(changed, err)
	}
	entries, err := ins.Entries(t.Context())
	if err != nil || len(entries) != 3 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, want := range []struct{ queue, name, spec, zone string }{
		{"a", "one", "CRON_TZ=America/New_York 0 9 * * *", "America/New_York"}, {"a", "two", "@every 1h", "UTC"}, {"b", "nightly", "30 2 * * *", "Europe/Berlin"},
	} {
		e := entries[i]
		if e.Queue != want.queue || e.Name != want.name || e.Spec != want.spec || e.Zone != want.zone || e.Kind != "task" || e.Err != nil || e.Gone {
			t.Errorf("entry %d is %+v, want %+v", i, e, want)
		}
		if wait := e.Next.Sub(now); wait <= 0 || wait > 26*time.Hour {
			t.Errorf("the next tick of %s is in %v", e.Name, wait)
		}
		if e.Seen.Before(now.Add(-time.Minute)) || e.Seen.After(now.Add(time.Minute)) {
			t.Errorf("%s was seen at %v", e.Name, e.Seen)
		}
		if paused := e.Name == "nightly"; e.Paused != paused || e.PausedSince.IsZero() == paused {
			t.Errorf("%s is paused: %v, since %v", e.Name, e.Paused, e.PausedSince)
		}
		if want := e.Name == "two"; e.Last.Equal(at) != want || e.Last.IsZero() == want {
			t.Errorf("the last tick of %s was %v", e.Name, e.Last)
		}
		one, err := ins.Entry(t.Context(), e.Queue, e.Name)
		if err != nil || one.Name != e.Name || one.Spec != e.Spec || one.Paused != e.Paused {
			t.Errorf("alone it is %+v, %v", one, err)
		}
	}
}

// The ticks of an entry follow the wall clock of its zone, by the same rules as those of a scheduler.
func TestEntryTicks(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	announce(t, s.Queue, "e", "30 2 * * *", "Europe/Berlin")
	announce(t, s.Queue, "fixed", "0 0 * * *", "UTC+05:45")
	ticks := func(name, after string, n int) []string {
		t.Helper()
		e, err := s.ins.Entry(t.Context(), s.Name(), name)
		s.must(err)
		from, err := time.Parse(time.RFC3339, after)
		s.must(err)
		var all []string
		for at := range e.Ticks(from) {
			if all = append(all, at.Format(time.RFC3339)); len(all) == n {
				break
			}
		}
		return all
	}
	want := []string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"} // 02:30 doesn't exist on the 29th
	if got := ticks("e", "2026-03-27T12:00:00Z", 3); !slices.Equal(got, want) {
		t.Errorf("in spring: %v", got)
	}
	want = []string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"} // it comes twice on the 25th
	if got := ticks("e", "2026-10-24T12:00:00Z", 2); !slices.Equal(got, want) {
		t.Errorf("in autumn: %v", got)
	}
	want = []string{"2026-10-25T00:00:00+05:45"}
	if got := ticks("fixed", "2026-10-24T12:00:00Z", 1); !slices.Equal(got, want) {
		t.Errorf("with an offset: %v", got)
	}
}

// The ticks of an entry with a jitter, a start and an end are those that a scheduler enqueues, and run-now follows its policy.
func TestEntryOptions(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	q := redistest.Name(t)
	sched, err := scheduler.New(s.rdb, scheduler.Config{Namespace: s.namespace, Logger: slog.New(slog.DiscardHandler)})
	s.must(err)
	now, err := s.Now(t.Context())
	s.must(err)
	end := now.Add(4 * time.Second).Truncate(time.Microsecond)
	s.must(sched.Cron("e", "@every 1s", task{}, scheduler.Queue(q), scheduler.Jitter(800*time.Millisecond), scheduler.Starting(now), scheduler.Ending(end)))
	s.must(sched.Cron("cancels", "@yearly", task{}, scheduler.Queue(q), scheduler.Overlap(scheduler.CancelOther)))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- sched.Run(ctx) }()
	var e inspect.Entry
	redistest.Eventually(t, func() bool {
		e, err = s.ins.Entry(t.Context(), q, "e")
		return err == nil && e.Next.IsZero() && !e.Last.IsZero()
	}, "the entry has ended")
	stop()
	s.must(<-ended)
	if e.Jitter != 800*time.Millisecond || !e.Start.Equal(now) || !e.End.Equal(end) || e.Overlap != "" || e.Err != nil {
		t.Errorf("the entry is %+v", e)
	}
	want := make(map[int64]bool) // an early one may have been before the scheduler was there
	for at := range e.Ticks(now.Add(-time.Second)) {
		want[at.UnixMicro()] = true
	}
	n := 0
	for job, err := range s.ins.Jobs(t.Context(), q, inspect.Filter{State: signalbox.StateReady}) {
		s.must(err)
		if n++; !want[job.DueAt.UnixMicro()] {
			t.Errorf("a tick at %v, the ticks are %v", job.DueAt, want)
		}
	}
	if n == 0 || len(want) > 5 {
		t.Errorf("%d jobs, of %d ticks", n, len(want))
	}

	first, err := s.ins.RunEntry(t.Context(), q, "cancels")
	s.must(err)
	if _, err := s.ins.RunEntry(t.Context(), q, "cancels"); err != nil {
		t.Error(err)
	}
	if job, err := s.ins.Job(t.Context(), q, first); err != nil || job.State != signalbox.StateCancelled || !strings.Contains(job.LastError, "a later job of the cron entry cancels") {
		t.Errorf("the first job is %+v, %v", job, err)
	}
	if e, err := s.ins.Entry(t.Context(), q, "cancels"); err != nil || e.Overlap != "cancel" {
		t.Errorf("%+v, %v", e, err)
	}
}

// An entry that no scheduler has any more is told apart, and can be forgotten. One that a scheduler has can't.
func TestGoneEntry(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	announce(t, s.Queue, "e", "@daily", "UTC")
	before := s.rdb.HGetAll(t.Context(), s.keys+"entries").Val()
	if err := s.ins.ForgetEntry(t.Context(), s.Name(), "e"); !errors.Is(err, inspect.ErrState) || !strings.Contains(err.Error(), "a scheduler has it") {
		t.Errorf("to forget an entry that a scheduler has: %v", err)
	}
	now, err := s.Now(t.Context())
	s.must(err)
	us, digest, _ := strings.Cut(before["seen:e"], " ")
	if len(us) != 16 {
		t.Fatalf("seen: %q", before["seen:e"])
	}
	for ago, gone := range map[time.Duration]bool{time.Minute: false, time.Hour: true, -time.Hour: true} {
		s.must(s.rdb.HSet(t.Context(), s.keys+"entries", "seen:e", strconv.FormatInt(now.Add(-ago).UnixMicro(), 10)+" "+digest).Err())
		if e, err := s.ins.Entry(t.Context(), s.Name(), "e"); err != nil || e.Gone != gone || !e.Seen.Equal(now.Add(-ago).Truncate(time.Microsecond)) {
			t.Errorf("seen %v ago: %+v, %v", ago, e, err)
		}
	}
	s.must(s.rdb.HSet(t.Context(), s.keys+"entries", "seen:e", strconv.FormatInt(now.Add(-time.Hour).UnixMicro(), 10)+" "+digest).Err())
	s.must(s.ins.ForgetEntry(t.Context(), s.Name(), "e"))
	if _, err := s.ins.Entry(t.Context(), s.Name(), "e"); !errors.Is(err, inspect.ErrNoEntry) {
		t.Errorf("after that: %v", err)
	}
}

func TestPauseEntry(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	ctx := t.Context()
	announce(t, s.Queue, "e", "@every 1s", "UTC")
	now, err := s.Now(ctx)
	s.must(err)
	for _, want := range []bool{true, false} {
		if changed, err := s.ins.PauseEntry(ctx, s.Name(), "e"); changed != want || err != nil {
			t.Errorf("PauseEntry = %v, %v", changed, err)
		}
	}
	if got := tick(t, s.Queue, "e", now); got != store.Passed {
		t.Errorf("the tick of a paused entry was %c", got)
	}
	id, err := s.ins.RunEntry(ctx, s.Name(), "e") // also while it is paused
	s.must(err)
	if job := s.one(id, signalbox.StateReady); job.Kind != "task" || job.MaxAttempts != 3 || job.EffectKey != "{"+s.namespace+":"+s.Name()+"}"+id {
		t.Errorf("the job is %+v", job)
	}
	other, err := s.ins.RunEntry(ctx, s.Name(), "e")
	if err != nil || other == id {
		t.Errorf("a second job: %q, %v", other, err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := s.ins.ResumeEntry(ctx, s.Name(), "e"); changed != want || err != nil {
			t.Errorf("ResumeEntry = %v, %v", changed, err)
		}
	}
	if e, err := s.ins.Entry(ctx, s.Name(), "e"); err != nil || e.Paused || !e.Last.IsZero() {
		t.Errorf("after that: %+v, %v", e, err)
	}
}

// Calls for an entry that is not known say which there are. Nothing is changed.
func TestNoSuchEntry(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	ctx := t.Context()
	announce(t, s.Queue, "digest", "@daily", "UTC")
	for name, call := range map[string]func(queue, entry string) error{
		"Entry":       func(queue, entry string) error { _, err := s.ins.Entry(ctx, queue, entry); return err },
		"PauseEntry":  func(queue, entry string) error { _, err := s.ins.PauseEntry(ctx, queue, entry); return err },
		"ResumeEntry": func(queue, entry string) error { _, err := s.ins.ResumeEntry(ctx, queue, entry); return err },
		"ForgetEntry": func(queue, entry string) error { return s.ins.ForgetEntry(ctx, queue, entry) },
		"RunEntry": func(queue, entry string) error {
			id, err := s.ins.RunEntry(ctx, queue, entry)
			if id != "" {
				t.Errorf("RunEntry of an unknown entry returns the ID %s", id)
			}
			return err
		},
	} {
		if err := call(s.Name(), "digets"); !errors.Is(err, inspect.ErrNoEntry) || !strings.Contains(err.Error(), "there are digest.") {
			t.Errorf("%s: %v", name, err)
		}
		if err := call("mial", "digest"); !errors.Is(err, inspect.ErrNoQueue) {
			t.Errorf("%s of an unknown queue: %v", name, err)
		}
		if err := call("{}", "a b"); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "entry name") || !strings.Contains(err.Error(), "queue") {
			t.Errorf("%s of wrong names: %v", name, err)
		}
	}
	if n := s.rdb.Exists(ctx, s.keys+"jobs").Val() + s.rdb.HLen(ctx, s.keys+"settings").Val() - 1; n != 0 { // one has the layout
		t.Errorf("%d keys were made", n)
	}
}

// What can't be read of an entry is in its Err, and what can't be read of a queue in the error.
func TestEntriesWithGarbage(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	ctx := t.Context()
	announce(t, s.Queue, "badspec", "0 9 31 2 *", "UTC")
	announce(t, s.Queue, "badzone", "@daily", "Mars/Olympus")
	announce(t, s.Queue, "garbage", "@daily", "UTC")
	announce(t, s.Queue, "good", "@daily", "UTC")
	s.must(s.rdb.HSet(ctx, s.keys+"entries", "spec:garbage", "x").Err())
	entries, err := s.ins.Entries(ctx)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%+v, %v", entries, err)
	}
	for i, part := range []string{"0 9 31 2 *", "Mars/Olympus", s.keys + "entries", ""} {
		e := entries[i]
		if e.Err == nil != (part == "") || e.Err != nil && !strings.Contains(e.Err.Error(), part) || e.Next.IsZero() != (part != "") {
			t.Errorf("%s: next %v, %v", e.Name, e.Next, e.Err)
		}
		n := 0
		for range e.Ticks(time.Now()) {
			if n++; n == 3 {
				break
			}
		}
		if part == "" && n != 3 || part != "" && n != 0 {
			t.Errorf("%s has %d ticks", e.Name, n)
		}
	}
	broken := known(t, s.rdb, s.namespace)
	key := "signalbox:{" + s.namespace + ":" + broken.Name() + "}:entries"
	s.must(s.rdb.Set(ctx, key, "x", 0).Err())
	if entries, err := s.ins.Entries(ctx); len(entries) != 4 || err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), broken.Name()) {
		t.Errorf("with a key of another type: %d entries, %v", len(entries), err)
	}
	s.must(s.rdb.Del(ctx, key).Err())
}

// A call whose connection breaks returns the ID of the job, which may be in.
func TestRunEntryUncertain(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newStage(t, srv.Client())
	announce(t, s.Queue, "e", "@daily", "UTC")
	proxy := redistest.NewProxy(t, srv.Addr())
	ins := inspector(t, proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 }), s.namespace)
	if _, err := ins.RunEntry(t.Context(), s.Name(), "e"); err != nil { // loads the script
		t.Fatal(err)
	}
	proxy.CutReply(func(cmd []string) bool { return strings.EqualFold(cmd[0], "evalsha") }, 1)
	id, err := ins.RunEntry(t.Context(), s.Name(), "e")
	if err == nil || id == "" || !strings.Contains(err.Error(), id) {
		t.Fatalf("RunEntry = %q, %v", id, err)
	}
	s.one(id, signalbox.StateReady) // here it is in: only the reply was lost
}

// A call that was refused returns no ID: nothing is enqueued.
func TestRunEntryRefused(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	s := newStage(t, srv.Client())
	ctx := t.Context()
	announce(t, s.Queue, "e", "@daily", "UTC")
	s.must(s.rdb.Do(ctx, "ACL", "SETUSER", "viewer", "on", ">secret", "~*", "+@read", "+@connection", "+evalsha", "+eval", "+time").Err())
	viewer := inspector(t, srv.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "viewer", "secret" }), s.namespace)
	refused := func(why string, ins *inspect.Inspector) {
		t.Helper()
		if id, err := ins.RunEntry(ctx, s.Name(), "e"); err == nil || id != "" {
			t.Errorf("%s: RunEntry = %q, %v", why, id, err)
		}
		if n := s.rdb.HLen(ctx, s.keys+"jobs").Val(); n != 0 {
			t.Errorf("%s: there are %d jobs", why, n)
		}
	}
	refused("a user without the rights", viewer)
	s.must(s.rdb.ConfigSet(ctx, "maxmemory", "1").Err())
	refused("OOM", s.ins)
	s.must(s.rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	s.must(s.rdb.HSet(ctx, s.keys+"settings", "layout", layout.Protocol+1).Err())
	refused("a newer layout", s.ins)
	s.must(s.rdb.HSet(ctx, s.keys+"settings", "layout", layout.Protocol).Err())
	s.must(s.rdb.HSet(ctx, s.keys+"entries", "job:e", "garbage").Err())
	refused("garbage", s.ins)
}

// A scheduler describes its entries: a program that has run once can be looked at, and its entries be run, when it has ended.
func TestEntriesOfAScheduler(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	sched, err := scheduler.New(s.rdb, scheduler.Config{Namespace: s.namespace, Logger: slog.New(slog.DiscardHandler)})
	s.must(err)
	s.must(sched.Cron("e", "0 9 * * *", task{}, scheduler.Queue("cron-only"), scheduler.Priority(signalbox.PriorityHigh)))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- sched.Run(ctx) }()
	redistest.Eventually(t, func() bool {
		entries, err := s.ins.Entries(t.Context())
		return err == nil && len(entries) == 1 && entries[0].Queue == "cron-only" && entries[0].Next.Hour() == 9
	}, "the entry is listed")
	stop()
	s.must(<-ended)
	id, err := s.ins.RunEntry(t.Context(), "cron-only", "e")
	s.must(err)
	if job, err := s.ins.Job(t.Context(), "cron-only", id); err != nil || job.Priority != signalbox.PriorityHigh || string(job.Payload) != "{}" {
		t.Errorf("the job is %+v, %v", job, err)
	}
}
