package inspect_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// told writes what FlowJobs returns.
func told(jobs inspect.FlowJobs) (text string) {
	for _, c := range jobs.Callbacks {
		released := ""
		if c.Released {
			released = ", released"
		}
		text += fmt.Sprintf("%s waits for %s: %s%s. ", c.ID, c.Awaits, c.State, released)
	}
	for _, g := range jobs.Failed {
		text += fmt.Sprintf("%d %s, %s: %s. ", g.Count, g.Filter.State, g.Error, g.Example)
	}
	for _, j := range jobs.FailedMembers {
		text += fmt.Sprintf("%s: %s, %s. ", j.ID, j.State, j.LastError)
	}
	if jobs.Partial {
		text += "There may be more."
	}
	return text
}

// The callbacks of a batch are found in whatever state they are, and its members that have failed by their errors. Jobs of other batches aren't among them, nor those of an earlier one of the same ID.
func TestFlowJobs(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	if _, err := s.ins.FlowJobs(t.Context(), s.Name()+"-other", "news"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Error(err)
	}
	if _, err := s.ins.FlowJobs(t.Context(), s.Name(), "a{b"); !errors.Is(err, signalbox.ErrInvalid) {
		t.Error(err)
	}
	is := func(when, want string) {
		t.Helper()
		jobs, err := s.ins.FlowJobs(t.Context(), s.Name(), "news")
		if s.must(err); told(jobs) != want {
			t.Errorf("%s: got %q, want %q", when, told(jobs), want)
		}
		for _, j := range jobs.FailedMembers {
			if j.Payload != nil || j.Cursor != "" || j.EndedAt.IsZero() {
				t.Errorf("%s: %+v", when, j)
			}
		}
		for _, c := range jobs.Callbacks {
			if c.Payload != nil || c.Cursor != "" || (c.Waits == "") != (c.State != signalbox.StateAwaiting) {
				t.Errorf("%s: %+v", when, c)
			}
		}
	}
	earlier := s.batch("news", "x")
	_, err := s.Flows().Seal(t.Context(), earlier, store.Sealing{})
	s.must(err)
	s.end(store.Dead, "an earlier batch", s.claim(1)...)
	s.end(store.Completed, "", s.claim(2)...)
	_, err = s.ins.Do(t.Context(), s.Name(), "news-s", inspect.Delete{})
	s.must(err)
	s.must(s.rdb.HDel(t.Context(), s.keys+"flows", "news").Err()) // it is forgotten, which takes a day else
	if _, err := s.ins.FlowJobs(t.Context(), s.Name(), "news"); !errors.Is(err, inspect.ErrNoFlow) {
		t.Error(err)
	}

	s.batch("old", "o1")
	ref := s.batch("news", "a", "b", "c", "d")
	is("at first", "news-e waits for end: awaiting. news-f waits for failure: awaiting. news-s waits for success: awaiting. ")
	d := s.claim(5)
	s.end(store.Dead, "the other batch", d[0])
	s.end(store.Dead, "smtp 503", d[1])
	s.end(store.Dead, "smtp 421", d[2])
	s.end(store.Cancelled, "no such address", d[3])
	failed := "2 dead, smtp <*>: b. 1 cancelled, no such address: c. a: dead, smtp 503. b: dead, smtp 421. c: cancelled, no such address. "
	is("when members have failed", "news-e waits for end: awaiting. news-f waits for failure: ready, released. news-s waits for success: cancelled. "+failed)
	if jobs, err := inspect.FlowJobsOf(s.ins, t.Context(), s.Name(), "news", 2); err != nil || !jobs.Partial {
		t.Errorf("%s, %v", told(jobs), err)
	}
	_, err = s.Flows().Seal(t.Context(), ref, store.Sealing{})
	s.must(err)
	s.must(s.ins.SetCompletedRetention(t.Context(), s.Name(), signalbox.Retention{Jobs: 10}))
	s.end(store.Completed, "", d[4])
	callbacks := s.claim(3) // old-f, news-f, news-e
	is("when it is over", "news-f waits for failure: running, released. news-e waits for end: running, released. news-s waits for success: cancelled. "+failed)
	s.end(store.Retry, "smtp 503", callbacks[1])
	s.end(store.Completed, "", callbacks[2])
	is("at the end", "news-f waits for failure: scheduled, released. news-s waits for success: cancelled. news-e waits for end: completed, released. "+failed)
	s.end(store.Completed, "", callbacks[0])
}

// Of many members that failed the first hundred to end are listed, and all are counted.
func TestFlowJobsOfMany(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	var ids []string
	for n := range 230 {
		ids = append(ids, fmt.Sprintf("m%03d", n))
	}
	s.batch("news", ids...)
	for range ids { // each later than the one before
		s.end(store.Dead, "smtp 503", s.claim(1)...)
	}
	jobs, err := s.ins.FlowJobs(t.Context(), s.Name(), "news")
	s.must(err)
	if len(jobs.Failed) != 1 || jobs.Failed[0].Count != 230 || len(jobs.FailedMembers) != 100 {
		t.Fatalf("%d members, of %+v", len(jobs.FailedMembers), jobs.Failed)
	}
	for n := range jobs.FailedMembers {
		if jobs.FailedMembers[n].ID != ids[n] {
			t.Fatalf("member %d is %s, want %s", n, jobs.FailedMembers[n].ID, ids[n])
		}
	}
}
