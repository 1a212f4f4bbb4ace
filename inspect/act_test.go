package inspect_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// does acts on a job that is in a state for that, and returns the job afterwards.
func (s *stage) does(id string, a inspect.Action, was signalbox.State) inspect.Job {
	s.t.Helper()
	got, err := s.ins.Do(s.t.Context(), s.Name(), id, a)
	if err != nil || got != was {
		s.t.Fatalf("%T of %s: it was %q, %v; want %q", a, id, got, err, was)
	}
	job, err := s.ins.Job(s.t.Context(), s.Name(), id)
	if err != nil && !errors.Is(err, inspect.ErrNoJob) {
		s.t.Fatal(err)
	}
	return job
}

// What each action makes of a job, seen from outside. internal/store has the table of all states.
func TestDo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		s.states()
		const scheduled, ready, running, dead, cancelled = signalbox.StateScheduled, signalbox.StateReady, signalbox.StateRunning, signalbox.StateDead, signalbox.StateCancelled
		is := func(job inspect.Job, state signalbox.State) {
			t.Helper()
			if job.State != state {
				t.Errorf("%s is %q, want %q", job.ID, job.State, state)
			}
		}
		job := s.does("in2h", inspect.Cancel{Why: "refunded"}, scheduled)
		is(job, cancelled)
		if job.LastError != "job cancelled: refunded" {
			t.Errorf("the last error of a cancelled job: %q", job.LastError)
		}
		job = s.does("running1", inspect.Cancel{}, running)
		is(job, running)
		if !job.Cancelling {
			t.Error("a job that runs doesn't say that it is being cancelled")
		}
		job = s.does("dead1", inspect.Retry{}, dead)
		is(job, ready)
		if job.Failed != 0 || job.LastError != "broken pipe" {
			t.Errorf("a dead job that is retried: %+v", job)
		}
		at := time.Now().Add(3 * time.Hour).Truncate(time.Microsecond)
		job = s.does("normal1", inspect.Reschedule{At: at}, ready)
		is(job, scheduled)
		if !job.DueAt.Equal(at) {
			t.Errorf("it is due at %v, want %v", job.DueAt, at)
		}
		is(s.does("in30m", inspect.Delete{}, scheduled), "")
		job = s.does("low", inspect.Prioritise{To: signalbox.PriorityHigh}, ready)
		is(job, ready)
		if job.Priority != signalbox.PriorityHigh {
			t.Errorf("its priority is %v", job.Priority)
		}
		job = s.does("dead2", inspect.Edit{Payload: []byte("{}"), MaxAttempts: 3, Timeout: time.Minute}, dead)
		is(job, dead)
		if string(job.Payload) != "{}" || job.MaxAttempts != 3 || job.Timeout != time.Minute || job.LastError != "out of cheese" {
			t.Errorf("an edited job: %+v", job)
		}
		job = s.does("dead2", inspect.Edit{Payload: []byte("[1]"), Run: true}, dead)
		is(job, ready)
		if string(job.Payload) != "[1]" || job.MaxAttempts != 3 || job.Failed != 0 {
			t.Errorf("a job that is edited and retried: %+v", job)
		}
		s.does("dead2", inspect.Edit{Payload: []byte{}}, ready)
	})
}

func TestDoInVain(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.states()
	for _, c := range []struct {
		queue, id string
		a         inspect.Action
		want      error
		says      string
	}{
		{s.Name(), "none", inspect.Retry{}, inspect.ErrNoJob, `"none" in queue`},
		{"mial", "dead1", inspect.Retry{}, inspect.ErrNoQueue, `"mial"`},
		{s.Name(), "dead1", nil, signalbox.ErrInvalid, "it is nil"},
		{"{}", "dead1", inspect.Retry{}, signalbox.ErrInvalid, "queue"},
		{s.Name(), "running1", inspect.Retry{}, inspect.ErrState, "is running, and Retry is for jobs that are scheduled, ready, dead, cancelled or completed; cancel it, or wait"},
		{s.Name(), "running1", inspect.Edit{MaxAttempts: 1}, inspect.ErrState, "is running, and Edit is for"},
		{s.Name(), "dead1", inspect.Cancel{}, inspect.ErrState, "is dead, and Cancel is for jobs that are scheduled, ready, awaiting, running or cancelled; it has ended, and doesn't run again by itself; delete it"},
		{s.Name(), "dead1", inspect.Prioritise{}, inspect.ErrState, "scheduled, ready or awaiting; retry it first"},
		{s.Name(), "dead1", inspect.Prioritise{To: 9}, signalbox.ErrInvalid, "Prioritise.To"},
		{s.Name(), "dead1", inspect.Reschedule{}, signalbox.ErrInvalid, "Reschedule.At: it is zero"},
		{s.Name(), "dead1", inspect.Reschedule{At: time.UnixMicro(1 << 53)}, signalbox.ErrInvalid, "Reschedule.At: it is after 2255-06-05"},
		{s.Name(), "dead1", inspect.Reschedule{At: time.Date(400_000, 1, 1, 0, 0, 0, 0, time.UTC)}, signalbox.ErrInvalid, "Reschedule.At: it is after"},
		{s.Name(), "dead1", inspect.Edit{Run: true}, signalbox.ErrInvalid, "it changes nothing"},
		{s.Name(), "dead1", inspect.Edit{MaxAttempts: -1, Timeout: -1}, signalbox.ErrInvalid, "Edit.Timeout"},
		{s.Name(), "dead1", inspect.Edit{MaxAttempts: -1, Timeout: -1}, signalbox.ErrInvalid, "Edit.MaxAttempts"},
		{s.Name(), "dead1", inspect.Edit{Payload: make([]byte, 2<<20)}, signalbox.ErrInvalid, "payload"},
		{s.Name(), "high", inspect.Cancel{Why: strings.Repeat("x", 501)}, signalbox.ErrInvalid, "Cancel.Why"},
		{s.Name(), "high", inspect.Archive{Why: strings.Repeat("x", 501)}, signalbox.ErrInvalid, "Archive.Why"},
		{s.Name(), "running1", inspect.Archive{}, inspect.ErrState, "is running, and Archive is for jobs that are scheduled, ready, awaiting or dead; cancel it, or wait"},
	} {
		was, err := s.ins.Do(t.Context(), c.queue, c.id, c.a)
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%T of %s: %v; want %v and %q", c.a, c.id, err, c.want, c.says)
		}
		if known := errors.Is(err, inspect.ErrState); known != (was != "") {
			t.Errorf("%T of %s: it was %q", c.a, c.id, was)
		}
	}
	if c, err := s.Looks().Counts(t.Context()); err != nil || c.Dead != 2 || c.Ready != 4 || c.Due != 3 {
		t.Errorf("something was changed: %+v, %v", c, err)
	}
}

// All jobs of a state that a filter names, and no others.
func TestDoAll(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *stage) {
		const n = 1100
		all := numbered("j", n)
		s.puts(all...)
		for first := 0; first < n; first += 550 {
			for i, d := range s.claim(550) {
				s.end(store.Dead, fmt.Sprintf("boom %d", (first+i)%2), d)
			}
		}
		s.put(signalbox.Job{ID: "other", Kind: "other"}, store.When{})
		s.end(store.Dead, "boom 1", s.claim(1)...)
		var last inspect.BulkCounts
		reports := 0
		b := inspect.Bulk{Progress: func(p inspect.BulkCounts) {
			if p.Seen < last.Seen || p.Done < last.Done {
				t.Errorf("after %+v comes %+v", last, p)
			}
			last = p
			reports++
		}}
		do := func(f inspect.Filter, a inspect.Action, b inspect.Bulk, want inspect.BulkCounts) {
			t.Helper()
			last, reports = inspect.BulkCounts{}, 0
			got, err := s.ins.DoAll(t.Context(), s.Name(), f, a, b)
			if err != nil || got != want {
				t.Errorf("%T: %+v, %v; want %+v", a, got, err, want)
			}
			if b.Progress != nil && last != want {
				t.Errorf("%T: the last report was %+v", a, last)
			}
		}
		odd := inspect.Filter{State: signalbox.StateDead, Kind: "k", Error: "boom 1"}
		dry := b
		dry.DryRun = true
		do(odd, inspect.Retry{}, dry, inspect.BulkCounts{Seen: n + 1, Matched: n / 2})
		if c, err := s.Looks().Counts(t.Context()); err != nil || c.Dead != n+1 {
			t.Fatalf("a dry run: %+v, %v", c, err)
		}
		do(odd, inspect.Retry{}, b, inspect.BulkCounts{Seen: n + 1, Matched: n / 2, Done: n / 2})
		if reports < 4 {
			t.Errorf("%d reports", reports)
		}
		s.lists("the other kind", inspect.Filter{State: signalbox.StateDead, Kind: "other"}, "other")
		if c, err := s.Looks().Counts(t.Context()); err != nil || c.Ready != n/2 || c.Dead != n/2+1 || c.Total.Revived != n/2 {
			t.Errorf("after that: %+v, %v", c, err)
		}
		ready := inspect.Filter{State: signalbox.StateReady}
		do(inspect.Filter{State: signalbox.StateReady, Limit: 30}, inspect.Cancel{Why: "x"}, b, inspect.BulkCounts{Seen: 30, Matched: 30, Done: 30})
		left := int64(n/2 - 30)
		// Those that are given a lower priority come into a list that is read later: they are seen again, and left. But the last ones
		// are given it when all were read.
		do(ready, inspect.Prioritise{To: signalbox.PriorityLow}, b, inspect.BulkCounts{Seen: 2*left - left%200, Matched: left, Done: left})
		at := time.Now().Add(time.Hour)
		do(ready, inspect.Reschedule{At: at}, b, inspect.BulkCounts{Seen: left, Matched: left, Done: left})
		do(inspect.Filter{State: signalbox.StateScheduled}, inspect.Reschedule{At: at}, b, inspect.BulkCounts{Seen: left})
		do(inspect.Filter{State: signalbox.StateScheduled, IDPrefix: "j0001"}, inspect.Edit{MaxAttempts: 2}, b, inspect.BulkCounts{Seen: 50, Matched: 50, Done: 50})
		do(inspect.Filter{State: signalbox.StateScheduled}, inspect.Delete{}, b, inspect.BulkCounts{Seen: left, Matched: left, Done: left})
		s.puts("r1", "r2")
		s.claim(2)
		runs := inspect.Filter{State: signalbox.StateRunning}
		do(runs, inspect.Cancel{}, inspect.Bulk{}, inspect.BulkCounts{Seen: 2, Matched: 2, Done: 2})
		do(runs, inspect.Cancel{}, inspect.Bulk{}, inspect.BulkCounts{Seen: 2})
		do(inspect.Filter{State: signalbox.StateDead}, inspect.Delete{}, b, inspect.BulkCounts{Seen: n/2 + 1, Matched: n/2 + 1, Done: n/2 + 1})
		if c, err := s.Looks().Counts(t.Context()); err != nil || c.Ready+c.Due+c.Dead != 0 || c.Cancelled != 30 || c.Running != 2 {
			t.Errorf("at the end: %+v, %v", c, err)
		}
	})
}

// A job that leaves its state between reading and acting is left as it is.
func TestDoAllMeetsJobsThatMove(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	all := numbered("j", 400)
	s.puts(all...)
	moved := false
	p, err := s.ins.DoAll(t.Context(), s.Name(), inspect.Filter{State: signalbox.StateReady}, inspect.Cancel{}, inspect.Bulk{Progress: func(inspect.BulkCounts) {
		if moved {
			return
		}
		moved = true // the reader has the next jobs already
		got := s.claim(2)
		s.end(store.Completed, "", got[1])
	}})
	if want := (inspect.BulkCounts{Seen: 400, Matched: 400, Done: 398, Moved: 2}); err != nil || p != want {
		t.Errorf("got %+v, %v; want %+v", p, err, want)
	}
	running := s.list(inspect.Filter{State: signalbox.StateRunning})
	if len(running) != 1 || running[0].Cancelling {
		t.Errorf("running: %v", ids(running))
	}
}

func TestDoAllInVain(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.states()
	dead := inspect.Filter{State: signalbox.StateDead}
	for _, c := range []struct {
		queue string
		f     inspect.Filter
		a     inspect.Action
		want  error
		says  string
	}{
		{s.Name(), dead, nil, signalbox.ErrInvalid, "it is nil"},
		{s.Name(), inspect.Filter{}, inspect.Retry{}, signalbox.ErrInvalid, `Filter.State: it is ""`},
		{s.Name(), dead, inspect.Cancel{}, signalbox.ErrInvalid, "Cancel is for jobs that are scheduled, ready, awaiting, running or cancelled"},
		{s.Name(), inspect.Filter{State: signalbox.StateRunning}, inspect.Delete{}, signalbox.ErrInvalid, "Delete is for jobs"},
		{s.Name(), inspect.Filter{State: signalbox.StateDead, Limit: -1}, inspect.Retry{}, signalbox.ErrInvalid, "Filter.Limit"},
		{s.Name(), dead, inspect.Edit{}, signalbox.ErrInvalid, "it changes nothing"},
		{"mial", dead, inspect.Retry{}, inspect.ErrNoQueue, "mial"},
	} {
		p, err := s.ins.DoAll(t.Context(), c.queue, c.f, c.a, inspect.Bulk{})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || p != (inspect.BulkCounts{}) {
			t.Errorf("%T of %+v: %+v, %v; want %v and %q", c.a, c.f, p, err, c.want, c.says)
		}
	}
	if got := ids(s.list(dead)); !slices.Equal(got, []string{"dead1", "dead2"}) {
		t.Errorf("dead: %v", got)
	}
}

// Tokens may be ahead of the clock of Redis, after that was stepped back. Such jobs are listed, and can be cancelled, too.
func TestRunningAheadOfTheClock(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	s.must(s.rdb.Set(t.Context(), s.keys+"fence", time.Now().Add(time.Hour).UnixMicro(), 0).Err())
	s.puts("a", "b")
	s.claim(2)
	runs := inspect.Filter{State: signalbox.StateRunning}
	s.lists("running", runs, "a", "b")
	if p, err := s.ins.DoAll(t.Context(), s.Name(), runs, inspect.Cancel{}, inspect.Bulk{}); err != nil || p.Done != 2 {
		t.Errorf("%+v, %v", p, err)
	}
}
