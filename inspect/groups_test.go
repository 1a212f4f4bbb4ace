package inspect_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
)

// lines enqueues jobs of a group.
func (s *stage) lines(key string, serial bool, when store.When, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		item, err := store.NewItem(&signalbox.Job{ID: id, Kind: "k", Group: key, Serial: serial}, when)
		s.must(err)
		s.enqueue.Next()
		_, err = s.Enqueue(s.t.Context(), s.enqueue, []store.Item{item})
		s.must(err)
	}
}

// Jobs say which group they are of, and what they wait for.
func TestGroupsAreShown(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.lines("a", true, store.When{}, "a1", "a2")
	s.lines("b", false, store.When{}, "b1")
	s.puts("plain")
	s.claim(3)
	s.lines("b", false, store.When{}, "b2")
	for id, want := range map[string]inspect.Job{
		"a1":    {State: signalbox.StateRunning, Group: "a", Serial: true},
		"a2":    {State: signalbox.StateReady, Group: "a", Serial: true, Waits: "for the jobs of its group that run, or wait for a retry"},
		"b2":    {State: signalbox.StateReady, Group: "b", Waits: "for a free slot, and the turn of its group"},
		"plain": {State: signalbox.StateRunning},
	} {
		got := s.one(id, want.State)
		if got = (inspect.Job{State: got.State, Group: got.Group, Serial: got.Serial, Waits: got.Waits, Nowhere: got.Nowhere, Cancelling: got.Cancelling}); !reflect.DeepEqual(got, want) {
			t.Errorf("job %s is\n%+v, want\n%+v", id, got, want)
		}
	}
	for i, job := range s.list(inspect.Filter{State: signalbox.StateReady}) {
		if want := []string{"b2", "a2"}[i]; job.ID != want || job.Group != want[:1] || job.Waits != "" {
			t.Errorf("job %d that is listed: %+v", i, job)
		}
	}
	if jobs := s.list(inspect.Filter{State: signalbox.StateReady, Group: "b"}); len(jobs) != 1 || jobs[0].ID != "b2" {
		t.Errorf("of one group: %+v", jobs)
	}
	redistest.Eventually(t, func() bool { // the clock of the embedded Redis moves every millisecond
		q, err := s.ins.Queue(t.Context(), s.Name())
		if s.must(err); q.Ready != 2 {
			t.Fatalf("%d are ready", q.Ready)
		}
		return q.Oldest > 0
	}, "the oldest waits for some time")
}

// One group is found by its key, of either kind, while jobs hold it or wait in its lines. A hold of both kinds returns the later end.
func TestGroupsOf(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	ctx := t.Context()
	s.lines("a", true, store.When{}, "a1", "a2", "a3")
	s.lines("a", false, store.When{}, "b1")
	s.lines("c", false, store.When{After: time.Hour}, "c1")
	s.claim(2)
	s.must(s.ins.SetLimitsOf(ctx, s.Name(), "a", signalbox.Limits{Running: 7}))
	first, err := s.Settings().HoldBack(ctx, "ga", "", 2*time.Hour)
	s.must(err)
	until, err := s.ins.HoldBack(ctx, s.Name(), "a", time.Hour)
	if s.must(err); !until.Equal(first) {
		t.Errorf("held back until %v; want %v", until, first)
	}
	_, err = s.ins.PauseGroup(ctx, s.Name(), "a")
	s.must(err)
	groups, err := s.ins.GroupsOf(ctx, s.Name(), "a")
	if s.must(err); len(groups) != 2 {
		t.Fatalf("%+v", groups)
	}
	plain, serial := groups[0], groups[1]
	if plain.Serial || plain.Key != "a" || plain.Running != 1 || plain.Waiting != 0 || !plain.Paused || !plain.HeldUntil.Equal(first) || plain.Limits.Running != 7 {
		t.Errorf("%+v", plain)
	}
	if !serial.Serial || serial.Running != 1 || serial.Waiting != 2 || serial.Limits.Running != 1 || !serial.HeldUntil.Before(first) {
		t.Errorf("%+v", serial)
	}
	for _, key := range []string{"b", "c"} {
		if groups, err := s.ins.GroupsOf(ctx, s.Name(), key); err != nil || len(groups) != 0 {
			t.Errorf("%s: %+v, %v", key, groups, err)
		}
	}
	if _, err := s.ins.GroupsOf(ctx, s.Name(), "a b"); !errors.Is(err, signalbox.ErrInvalid) {
		t.Error(err)
	}
	if _, err := s.ins.GroupsOf(ctx, "mial", "a"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Error(err)
	}
}

// The jobs of a file come into the lines of their groups, where one of a serial group runs at a time. DeleteWaiting empties lines.
func TestGroupsInFiles(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.lines("a", true, store.When{}, "a1", "a2", "a3")
	s.lines("b", false, store.When{After: time.Hour}, "b1")
	s.claim(1)
	file := s.exported()
	to := s.beside()
	if done := to.imports(file, inspect.Importing{}); done.Done != 4 {
		t.Fatalf("import: %+v", done)
	}
	if q, err := s.ins.Queue(t.Context(), to.Name()); err != nil || q.Scheduled != 4 {
		t.Errorf("%+v, %v", q, err)
	}
	to.claim(0) // promotes them
	q, err := s.ins.Queue(t.Context(), to.Name())
	if s.must(err); q.Ready != 3 || q.Scheduled != 1 {
		t.Errorf("%d are ready, %d scheduled", q.Ready, q.Scheduled)
	}
	if got := to.claim(1); got[0].Job.ID != "a1" {
		t.Errorf("%s runs first", got[0].Job.ID)
	}
	if job := to.one("a2", signalbox.StateReady); job.Group != "a" || !strings.Contains(job.Waits, "its group") {
		t.Errorf("the next: %+v", job)
	}
	p, err := s.ins.DeleteWaiting(t.Context(), to.Name(), inspect.Waiting{Scheduled: true})
	if s.must(err); p.Done != 3 {
		t.Errorf("deleted: %+v", p)
	}
	s.must(check.Queue(t.Context(), to.Site()))
	bad := strings.ReplaceAll(file, `"extras_base64":"AnNh"`, `"extras_base64":"AnhhAA=="`)
	if bad == file {
		t.Fatal(file)
	}
	other := s.beside()
	if _, err := s.ins.Import(t.Context(), other.Name(), strings.NewReader(bad), inspect.Importing{}); err == nil || !strings.Contains(err.Error(), "they name no group") {
		t.Errorf("a file with a group that can't be: %v", err)
	}
	s.must(check.Queue(t.Context(), other.Site()))
}

// A group is paused and resumed by its key, serial or not. Whoever looks can see it, also at a job that waits for its retry.
func TestPauseGroup(t *testing.T) {
	t.Parallel()
	s, ctx := newStage(t, redistest.Start(t).Client()), t.Context()
	s.lines("a", true, store.When{}, "a1")
	s.lines("a", false, store.When{}, "a2")
	s.lines("a", true, store.When{After: time.Hour}, "later")
	for _, want := range []bool{true, false} {
		changed, err := s.ins.PauseGroup(ctx, s.Name(), "a")
		if s.must(err); changed != want {
			t.Errorf("paused: %v", changed)
		}
	}
	_, err := s.ins.PauseGroup(ctx, s.Name(), "none-of-it")
	s.must(err)
	paused, err := s.ins.PausedGroups(ctx, s.Name())
	s.must(err)
	if since := time.Since(paused["a"]); len(paused) != 2 || since < -time.Minute || since > time.Minute {
		t.Errorf("paused groups: %v", paused)
	}
	groups, _, err := s.ins.Groups(ctx, s.Name(), 9)
	s.must(err)
	if len(groups) != 2 || !groups[0].Paused || !groups[1].Paused || groups[0].PausedSince.Before(paused["a"]) {
		t.Errorf("groups: %+v", groups)
	}
	if later := s.one("later", signalbox.StateScheduled); later.Waits != "its group is paused" {
		t.Errorf("a job that is due later waits %q", later.Waits)
	}
	file := s.exported()
	to := s.beside()
	to.imports(file, inspect.Importing{Settings: true})
	paused, err = s.ins.PausedGroups(ctx, to.Name())
	s.must(err)
	if len(paused) != 2 || paused["a"].IsZero() {
		t.Errorf("paused groups of the other queue: %v", paused)
	}
	for _, want := range []bool{true, false} {
		changed, err := s.ins.ResumeGroup(ctx, s.Name(), "a")
		if s.must(err); changed != want {
			t.Errorf("resumed: %v", changed)
		}
	}
	if got := s.one("a1", signalbox.StateReady).Waits; strings.Contains(got, "paused") {
		t.Errorf("it waits %q", got)
	}
	for _, wrong := range []string{"", "a b", strings.Repeat("x", 201)} {
		if _, err := s.ins.PauseGroup(ctx, s.Name(), wrong); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("group %q: %v", wrong, err)
		}
	}
	if _, err := s.ins.ResumeGroup(ctx, "mial", "a"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("an unknown queue: %v", err)
	}
	if _, err := s.ins.PausedGroups(ctx, "mial"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("an unknown queue: %v", err)
	}
}

// A job that holds its paused serial group, as one that waits for its retry, is put off each time that it is due. It says that its group is paused, and runs when that is resumed.
func TestPausedHolderSaysWhy(t *testing.T) {
	t.Parallel()
	s, ctx := newStage(t, redistest.Start(t).Client()), t.Context()
	s.lines("a", true, store.When{}, "a1", "a2")
	s.open()
	s.end(store.Retry, "smtp: 451", s.claim(1)...)
	_, err := s.ins.PauseGroup(ctx, s.Name(), "a")
	s.must(err)
	s.does("a1", inspect.Retry{}, signalbox.StateScheduled) // now
	s.lane.Next()
	reply, err := s.Sessions().Claim(ctx, s.lane, &store.ClaimRequest{Session: s.session, Want: 5})
	if s.must(err); len(reply.Deliveries) > 0 {
		t.Errorf("jobs start while their group is paused: %v", reply.Deliveries)
	}
	a1 := s.one("a1", signalbox.StateScheduled)
	if a1.Waits != "its group is paused" || time.Until(a1.DueAt) < 5*time.Minute {
		t.Errorf("it waits %q, and is due at %v", a1.Waits, a1.DueAt)
	}
	_, err = s.ins.ResumeGroup(ctx, s.Name(), "a")
	s.must(err)
	if got := s.claim(1); got[0].Job.ID != "a1" {
		t.Errorf("resumed: %v", got)
	}
}
