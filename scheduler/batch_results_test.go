package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// inside returns the context of a handler whose job is of a batch.
func (w *waiting) inside(b *Batch) context.Context {
	return context.WithValue(w.Context(), parcelseam.FlowKey{}, parcelseam.Flow{Queue: w.q, Of: b.ref})
}

// batch makes a batch with members of these IDs, which are kept when they complete.
func (w *waiting) batch(ids ...string) *Batch {
	w.Helper()
	b, err := w.s.Batch(w.Context(), w.q.Name())
	if err != nil {
		w.Fatal(err)
	}
	for _, id := range ids {
		if _, err := b.Add(w.Context(), note{1}, ID(id), Retain(time.Hour)); err != nil {
			w.Fatal(err)
		}
	}
	return b
}

// results writes what Results yields.
func results(t *testing.T, ctx context.Context) string {
	t.Helper()
	var all []string
	for m, err := range Results[note](ctx) {
		if err != nil {
			t.Fatal(err)
		}
		said := fmt.Sprint(m.Value.N)
		var ended *EndedError
		switch {
		case errors.As(m.Err, &ended):
			said = string(ended.Status.State)
		case errors.Is(m.Err, ErrNoResult):
			said = "no result"
		case m.Err != nil:
			said = m.Err.Error()
		}
		all = append(all, m.Status.Ref.ID+": "+said)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// The members of a batch that are kept are read with their results, or with why they have none. Those of other batches are not among them.
func TestResults(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	w := newWaiting(t, rdb, rdb)
	b, other := w.batch("a", "b", "c", "d"), w.batch("x", "y")
	if got := results(t, w.inside(b)); got != "" {
		t.Errorf("at first: %s", got)
	}
	w.run(with(`{"N":7}`))
	w.run(func(r *store.Settlement, d *store.Delivery) {
		with("")(r, d)
		r.Keep = store.Kept(&store.Attempt{Number: 1}, nil)
	})
	w.run(dies)
	w.run(func(r *store.Settlement, _ *store.Delivery) { r.Outcome = store.Cancelled })
	w.run(with(`{"N":8}`))
	w.run(dies)
	if _, err := b.Add(t.Context(), note{1}, ID("unkept")); err != nil {
		t.Fatal(err)
	}
	w.run(func(r *store.Settlement, _ *store.Delivery) { r.Outcome = store.Completed })
	if got, want := results(t, w.inside(b)), "a: 7, b: no result, c: dead, d: cancelled"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := results(t, w.inside(other)), "x: 8, y: dead"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for m, err := range Results[struct{}](w.inside(b)) { // nobody asks for a result
		if err != nil || m.Err != nil && m.Status.State == signalbox.StateCompleted {
			t.Errorf("%+v, %v", m, err)
		}
	}
	for m, err := range Results[[]int](w.inside(other)) {
		if err != nil || m.Err == nil {
			t.Errorf("a result of another type: %+v, %v", m, err)
		}
		break // the rest isn't read
	}
	later := &Batch{ref: facts.FlowRef{Name: other.ref.Name, Mark: store.NewFlowMark()}}
	for what, ctx := range map[string]context.Context{"a job of no batch": t.Context(), "a batch that is forgotten": w.inside(later)} {
		n := 0
		for m, err := range Results[note](ctx) {
			if n++; !errors.Is(err, ErrNoBatch) || n > 1 || m.Status.Ref != (Ref{}) {
				t.Errorf("%s: %+v, %v", what, m, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d errors", what, n)
		}
	}
	ended, end := context.WithCancel(w.inside(b))
	end()
	for _, err := range Results[note](ended) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("a context that has ended: %v", err)
		}
	}
}

// Many results come in pages. When all members that have completed were found, no more calls are made for others.
func TestResultsOfMany(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	rdb := srv.Client()
	w := newWaiting(t, rdb, rdb)
	var ids []string
	for n := range 600 {
		ids = append(ids, fmt.Sprintf("m%03d", n))
	}
	b := w.batch(ids...)
	for n := range ids {
		w.run(with(fmt.Sprintf(`{"N":%d}`, n)))
	}
	few := w.batch("first")
	w.run(with(`{"N":1}`))
	var got []int
	for m, err := range Results[note](w.inside(b)) {
		if err != nil || m.Err != nil {
			t.Fatal(m, err)
		}
		got = append(got, m.Value.N)
	}
	slices.Sort(got)
	if len(got) != len(ids) || got[0] != 0 || got[len(got)-1] != len(ids)-1 || len(slices.Compact(got)) != len(ids) {
		t.Errorf("%d results: %v", len(got), got)
	}
	if got := results(t, w.inside(few)); got != "first: 1" {
		t.Error(got)
	}
}
