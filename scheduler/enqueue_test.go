package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	res, err := s.Enqueue(ctx, note{7}, Queue(q.Name()), MaxAttempts(3), Priority(signalbox.PriorityHigh),
		Timeout(1500*time.Millisecond), Header("a", "1"), Headers(map[string]string{"b": "2"}))
	if err != nil || !res.New || res.ID == "" {
		t.Fatal(res, err)
	}
	jobs := claimAll(t, q)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	j := jobs[0]
	if j.ID != res.ID || j.Kind != "note" || string(j.Payload) != `{"N":7}` || j.Priority != signalbox.PriorityHigh ||
		j.MaxAttempts != 3 || j.Timeout != 1500*time.Millisecond || j.Attempt != 1 ||
		len(j.Headers) != 2 || j.Headers["a"] != "1" || j.Headers["b"] != "2" || !j.ScheduledAt.Equal(j.EnqueuedAt) {
		t.Errorf("got %+v", j)
	}
}

func TestEnqueueDefaults(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t) // for the default queue
	s := newScheduler(t, srv.Client())
	if _, err := s.Enqueue(context.Background(), note{}); err != nil {
		t.Fatal(err)
	}
	jobs := claimAll(t, store.New(srv.Client(), "", signalbox.DefaultQueue))
	if len(jobs) != 1 || jobs[0].MaxAttempts != signalbox.DefaultMaxAttempts || jobs[0].Headers != nil ||
		jobs[0].Timeout != 0 || jobs[0].Priority != signalbox.PriorityNormal {
		t.Errorf("got %+v", jobs)
	}
}

func TestWhen(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opt   EnqueueOption
		ready bool
	}{
		"past":     {At(time.Now().Add(-time.Hour)), true},
		"1969":     {At(time.Unix(-1, 0)), true},
		"future":   {At(time.Now().Add(time.Hour)), false},
		"negative": {After(-time.Second), true},
		"zero":     {After(0), true},
		"delay":    {After(time.Hour), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, q := setup(t)
			if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name()), tc.opt); err != nil {
				t.Fatal(err)
			}
			if got := len(claimAll(t, q)) == 1; got != tc.ready {
				t.Errorf("ready: %v", got)
			}
		})
	}
}

func TestDuplicateID(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	ctx := context.Background()
	for i, want := range []bool{true, false} {
		if res, err := s.Enqueue(ctx, note{i}, Queue(q.Name()), ID("x")); err != nil || res.New != want || res.ID != "x" {
			t.Fatal(i, res, err)
		}
	}
	results, err := s.EnqueueMany(ctx, []Item{
		{note{2}, []EnqueueOption{ID("x")}}, {note{3}, []EnqueueOption{ID("y")}}, {note{4}, []EnqueueOption{ID("y")}},
	}, Queue(q.Name()))
	if err != nil || results[0].New || !results[1].New || results[2].New {
		t.Fatal(results, err)
	}
	if jobs := claimAll(t, q); len(jobs) != 2 || string(jobs[0].Payload) != `{"N":0}` || string(jobs[1].Payload) != `{"N":3}` {
		t.Errorf("got %+v", jobs)
	}
}
