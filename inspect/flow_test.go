package inspect_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// batch makes a batch with callbacks and members.
func (s *stage) batch(name string, members ...string) facts.FlowRef {
	s.t.Helper()
	ref := facts.FlowRef{Name: name, Mark: store.NewFlowMark()}
	item := func(id string) store.Item {
		it, err := store.NewItem(&signalbox.Job{ID: id, Kind: "k"}, store.When{})
		s.must(err)
		return it
	}
	var callbacks []store.Callback
	for _, role := range []byte{store.AwaitsSuccess, store.AwaitsEnd, store.AwaitsFailure} {
		callbacks = append(callbacks, store.Callback{Role: role, Item: item(name + "-" + string(role))})
	}
	_, _, err := s.Flows().Create(s.t.Context(), ref, store.FlowTerms{Within: time.Hour, Timeout: 2 * time.Hour}, callbacks)
	s.must(err)
	var items []store.Item
	for _, id := range members {
		it := item(id)
		it.Join(ref)
		items = append(items, it)
	}
	lane := s.NewLane()
	lane.Next()
	_, err = s.Flows().Add(s.t.Context(), lane, &store.Addition{Flow: ref, Items: items, Digest: "d"})
	s.must(err)
	return ref
}

// Batches are listed, shown and cancelled, and their jobs say which they are of, and what they wait for.
func TestFlows(t *testing.T) {
	t.Parallel()
	s := newStage(t, redistest.Start(t).Client())
	if _, err := s.ins.Flow(t.Context(), s.Name()+"-other", "news"); !errors.Is(err, inspect.ErrNoQueue) {
		t.Error(err)
	}
	s.batch("old", "o1")
	ref := s.batch("news", "a", "b", "c")
	if _, err := s.ins.Flow(t.Context(), s.Name(), "mail"); !errors.Is(err, inspect.ErrNoFlow) {
		t.Error(err)
	}
	if _, err := s.ins.CancelFlow(t.Context(), s.Name(), "mail"); !errors.Is(err, inspect.ErrNoFlow) {
		t.Error(err)
	}
	f, err := s.ins.Flow(t.Context(), s.Name(), "news")
	if s.must(err); f.State() != "unsealed" || f.Total != 3 || f.Open != 3 || f.Callbacks != 3 || f.SealBy.Sub(f.CalledAt) != time.Hour || f.EndBy.Sub(f.CreatedAt) != 2*time.Hour || !f.EndedAt.IsZero() {
		t.Errorf("%+v", f)
	}
	flows, more, err := s.ins.Flows(t.Context(), s.Name(), 1)
	if s.must(err); len(flows) != 1 || !more || flows[0] != f {
		t.Errorf("%+v, %v", flows, more)
	}
	if job := s.one("a", signalbox.StateReady); job.Batch != "news" {
		t.Errorf("%+v", job)
	}
	for role, want := range map[string]string{"s": "for all jobs of batch news to complete", "e": "for batch news to be over", "f": "for a job of batch news that doesn't complete; if all do, it is deleted"} {
		if job := s.one("news-"+role, signalbox.StateAwaiting); job.Waits != want || job.Batch != "news" || !job.State.Live() || !job.DueAt.Equal(job.EnqueuedAt) {
			t.Errorf("%s: %+v", role, job)
		}
	}
	var listed []string
	for _, job := range s.list(inspect.Filter{State: signalbox.StateAwaiting}) {
		listed = append(listed, job.ID)
	}
	if jobs := s.list(inspect.Filter{State: signalbox.StateAwaiting, OlderThan: time.Hour}); len(jobs) > 0 {
		t.Errorf("they are an hour old: %v", jobs)
	}
	if got := fmt.Sprint(listed); got != "[news-e old-e news-f old-f news-s old-s]" {
		t.Error(got)
	}

	_, err = s.Flows().Seal(t.Context(), ref, store.Sealing{})
	s.must(err)
	s.end(store.Dead, "boom", s.claim(2)...)                                                            // o1 and a
	if q, err := s.ins.Queue(t.Context(), s.Name()); err != nil || q.Awaiting != 2 || q.Length() != 6 { // both batches have failed: what waited for success is cancelled, and may wait again
		t.Errorf("%+v, %v", q, err)
	}
	if f, err = s.ins.Flow(t.Context(), s.Name(), "news"); err != nil || f.State() != "failed" || f.Dead != 1 || !f.SealBy.IsZero() {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "news-s", inspect.Retry{}); !errors.Is(err, inspect.ErrInBatch) || !strings.Contains(err.Error(), "retry the members") {
		t.Error(err)
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "b", inspect.Move{To: s.beside().Name()}); !errors.Is(err, inspect.ErrInBatch) {
		t.Error(err)
	}
	if _, err := s.ins.Do(t.Context(), s.Name(), "news-e", inspect.Retry{}); !errors.Is(err, inspect.ErrState) || !strings.Contains(err.Error(), "waits for its batch") {
		t.Error(err)
	}
	if f, err = s.ins.CancelFlow(t.Context(), s.Name(), "news"); err != nil || f.State() != "over" || !f.Cancelled || f.Gone != 2 || f.Callbacks != 2 || f.EndedAt.IsZero() {
		t.Errorf("%+v, %v", f, err)
	}
	_, err = s.ins.CancelFlow(t.Context(), s.Name(), "old")
	s.must(err)
	s.end(store.Completed, "", s.claim(4)...)
}
