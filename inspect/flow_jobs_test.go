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
		text += fmt.Sprintf("%s waits for %s: %s. ", c.ID, c.Awaits, c.State)
	}
	for _, g := range jobs.Failed {
		text += fmt.Sprintf("%d %s, %s: %s. ", g.Count, g.Filter.State, g.Error, g.Example)
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
		for _, c := range jobs.Callbacks {
			if c.Payload != nil || c.Cursor != "" || (c.Waits == "") != (c.State != signalbox.StateAwaiting) {
				t.Errorf("%s: %+v", when, c)
			}
		}
	}
	earlier := s.batch("news", "x")
	_, err := s.SealFlow(t.Context(), earlier, store.Sealing{})
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
	failed := "2 dead, smtp <*>: b. 1 cancelled, no such address: c. "
	is("when members have failed", "news-e waits for end: awaiting. news-f waits for failure: ready. news-s waits for success: cancelled. "+failed)
	if jobs, err := inspect.FlowJobsOf(s.ins, t.Context(), s.Name(), "news", 2); err != nil || !jobs.Partial {
		t.Errorf("%s, %v", told(jobs), err)
	}
	_, err = s.SealFlow(t.Context(), ref, store.Sealing{})
	s.must(err)
	s.must(s.ins.SetCompletedRetention(t.Context(), s.Name(), signalbox.Retention{Jobs: 10}))
	s.end(store.Completed, "", d[4])
	callbacks := s.claim(3) // old-f, news-f, news-e
	is("when it is over", "news-f waits for failure: running. news-e waits for end: running. news-s waits for success: cancelled. "+failed)
	s.end(store.Retry, "smtp 503", callbacks[1])
	s.end(store.Completed, "", callbacks[2])
	is("at the end", "news-f waits for failure: scheduled. news-s waits for success: cancelled. news-e waits for end: completed. "+failed)
	s.end(store.Completed, "", callbacks[0])
}
