package inspect_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A job that runs after it was acted on, and comes back into the filter's state, isn't acted on again.
func TestDoAllActsOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		state     signalbox.State
		outcome   store.Outcome
		lastError string
		f         inspect.Filter
		a         inspect.Action
	}{
		{"dead", signalbox.StateDead, store.Dead, "boom", inspect.Filter{}, inspect.Retry{}},
		{"dead, by age", signalbox.StateDead, store.Dead, "boom", inspect.Filter{NewerThan: time.Hour}, inspect.Retry{}},
		{"dead, edited", signalbox.StateDead, store.Dead, "boom", inspect.Filter{}, inspect.Edit{MaxAttempts: 7, Run: true}},
		{"cancelled", signalbox.StateCancelled, store.Cancelled, "boom", inspect.Filter{}, inspect.Retry{}},
		{"completed", signalbox.StateCompleted, store.Completed, "", inspect.Filter{}, inspect.Retry{}},
		{"scheduled", signalbox.StateScheduled, store.Retry, "boom", inspect.Filter{}, inspect.Retry{}},
		{"scheduled, snoozed", signalbox.StateScheduled, store.Delay, "", inspect.Filter{}, inspect.Retry{}},
		{"scheduled, rescheduled", signalbox.StateScheduled, store.Retry, "boom", inspect.Filter{}, inspect.Reschedule{At: time.Unix(1, 0)}},
		{"scheduled, edited", signalbox.StateScheduled, store.Retry, "boom", inspect.Filter{}, inspect.Edit{MaxAttempts: 70, Run: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, redistest.Start(t).Client())
			const n = 600 // some pages
			s.must(s.Settings().SetCompleted(t.Context(), signalbox.Retention{Jobs: n}))
			for first := 0; first < n; first += 200 {
				s.puts(numbered("j", n)[first : first+200]...)
				s.end(c.outcome, c.lastError, s.claim(200)...)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			runs, ran := map[string]int{}, int64(0)
			c.f.State = c.state
			p, err := s.ins.DoAll(ctx, s.Name(), c.f, c.a, inspect.Bulk{Progress: func(p inspect.BulkCounts) { // the worker
				if p.Done > ran {
					got := s.claim(int(p.Done - ran))
					for _, d := range got {
						runs[d.Job.ID]++
					}
					s.end(c.outcome, c.lastError, got...)
					ran = p.Done
				}
				if ran > 3*n {
					cancel() // it would never end
				}
			}})
			if err != nil || p.Done != n || p.Matched != n || p.Moved != 0 {
				t.Errorf("%+v, %v; want %d done", p, err, n)
			}
			for id, times := range runs {
				if times != 1 {
					t.Fatalf("%s was run %d times", id, times)
				}
			}
			if len(runs) != n {
				t.Errorf("%d jobs were run, want %d", len(runs), n)
			}
		})
	}
}

// Records that can't be edited don't keep DoAll from the other jobs, and are named at the end. Another call finds them, and only them.
func TestDoAllEditsTheOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	const n = 450
	s.puts(numbered("j", n)...)
	s.end(store.Dead, "boom", s.claim(n)...)
	sound := map[string]string{}
	for _, id := range []string{"j000003", "j000004", "j000005", "j000210", "j000449"} {
		sound[id] = s.rdb.HGet(t.Context(), s.keys+"jobs", id).Val()
		s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", id, "no record").Err())
	}
	f, edit := inspect.Filter{State: signalbox.StateDead}, inspect.Edit{Payload: []byte("[7]"), MaxAttempts: 3, Timeout: time.Minute}
	var last inspect.BulkCounts
	p, err := s.ins.DoAll(t.Context(), s.Name(), f, edit, inspect.Bulk{Progress: func(p inspect.BulkCounts) { last = p }})
	want := inspect.BulkCounts{Seen: n, Matched: n, Done: n - 5, Failed: 5}
	if p != want || last != want {
		t.Errorf("got %+v, reported %+v; want %+v", p, last, want)
	}
	if err == nil || !strings.Contains(err.Error(), "5 jobs") || !strings.Contains(err.Error(), "job j000003: ") || !strings.Contains(err.Error(), "job j000005: ") ||
		strings.Contains(err.Error(), "j000449") {
		t.Errorf("the error: %v; want one that names the first jobs", err)
	}
	if job, err := s.ins.Job(t.Context(), s.Name(), "j000448"); err != nil || string(job.Payload) != "[7]" || job.MaxAttempts != 3 || job.Timeout != time.Minute {
		t.Errorf("behind them: %+v, %v", job, err)
	}
	for id, record := range sound {
		s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", id, record).Err())
	}
	p, err = s.ins.DoAll(t.Context(), s.Name(), f, edit, inspect.Bulk{})
	if want := (inspect.BulkCounts{Seen: n, Matched: 5, Done: 5}); err != nil || p != want {
		t.Errorf("another call: %+v, %v; want %+v", p, err, want)
	}
}

// A job whose record can't be read keeps its place when it is to get another priority.
func TestPrioritiseWithoutRecord(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	for _, id := range []string{"a", "b"} {
		s.put(signalbox.Job{ID: id}, store.When{After: time.Hour})
	}
	s.must(s.rdb.HSet(t.Context(), s.keys+"jobs", "a", "no record").Err())
	high := inspect.Prioritise{To: signalbox.PriorityHigh}
	if _, err := s.ins.Do(t.Context(), s.Name(), "a", high); err == nil || !strings.Contains(err.Error(), "job a: its record can't be read") {
		t.Errorf("Do: %v", err)
	}
	f := inspect.Filter{State: signalbox.StateScheduled}
	p, err := s.ins.DoAll(t.Context(), s.Name(), f, high, inspect.Bulk{})
	if want := (inspect.BulkCounts{Seen: 2, Matched: 2, Done: 1, Failed: 1}); p != want || err == nil || !strings.Contains(err.Error(), "job a: ") {
		t.Errorf("DoAll: %+v, %v; want %+v", p, err, want)
	}
	if got := len(s.list(f)); got != 2 {
		t.Errorf("%d jobs are scheduled", got)
	}
}
