package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	other := checked(t, redistest.Start(t).Client())
	items := many(2345)
	for i := range items {
		switch {
		case i%100 == 7:
			items[i].Args = unencodableArgs{make(chan int)}
		case i%100 == 8:
			items[i].Options = []Option{MaxAttempts(0)}
		case i%2 == 1:
			items[i].Options = []Option{Queue(other.Name()), Header("k", "v")}
		}
	}
	results, err := s.EnqueueMany(context.Background(), items, Queue(q.Name()))
	if !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "48 of 2345") || !strings.Contains(err.Error(), "item 7") {
		t.Errorf("got %v", err)
	}
	want := map[string]int{}
	for i, r := range results {
		if bad := i%100 == 7 || i%100 == 8; bad != (r.Err != nil) || bad == r.New {
			t.Fatalf("item %d: %+v", i, r)
		} else if !bad {
			want[r.ID] = i
		}
	}
	jobs := append(claimAll(t, q), claimAll(t, other)...)
	if len(jobs) != len(want) {
		t.Errorf("%d jobs, want %d", len(jobs), len(want))
	}
	for _, j := range jobs {
		if i := want[j.ID]; string(j.Payload) != fmt.Sprintf(`{"N":%d}`, i) || (j.Queue == other.Name()) != (i%2 == 1) {
			t.Errorf("job %d: %s in %s", i, j.Payload, j.Queue)
		}
	}
}

func TestEnqueueManyBounds(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	if results, err := s.EnqueueMany(context.Background(), nil); err != nil || len(results) != 0 {
		t.Error(results, err)
	}
	items := make([]Item, 7)
	for i := range items {
		items[i].Args = unencodableArgs{strings.Repeat("x", 600<<10)} // two take more than a call
	}
	if _, err := s.EnqueueMany(context.Background(), items, Queue(q.Name())); err != nil {
		t.Error(err)
	}
	if n := len(claimAll(t, q)); n != len(items) {
		t.Errorf("%d jobs", n)
	}
}
