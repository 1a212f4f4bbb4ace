package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
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
			items[i].Options = []EnqueueOption{MaxAttempts(0)}
		case i%2 == 1:
			items[i].Options = []EnqueueOption{Queue(other.Name()), Header("k", "v")}
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
		items[i].Args = unencodableArgs{strings.Repeat("x", 600<<10)} // a call can't hold two of them
	}
	if _, err := s.EnqueueMany(context.Background(), items, Queue(q.Name())); err != nil {
		t.Error(err)
	}
	if n := len(claimAll(t, q)); n != len(items) {
		t.Errorf("%d jobs", n)
	}
}

// A bulk meets more live jobs than one call can ask about. Each result still says whether its job is ready or running.
func TestManyMeetMany(t *testing.T) {
	t.Parallel()
	s, q := setup(t)
	s = withTimeout(t, s, time.Hour) // the embedded Redis takes long to look up so many jobs
	ctx, session, lane := context.Background(), store.NewID(), q.NewLane()
	items := many(store.MaxBatch + 10)
	for i := range items {
		items[i].Options = []EnqueueOption{ID("job-" + strconv.Itoa(i))}
	}
	if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	if alive, _, err := q.Sessions().Open(ctx, session, time.Minute); !alive || err != nil {
		t.Fatal(alive, err)
	}
	lane.Next()
	reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Want: 20})
	if err != nil || len(reply.Deliveries) != 20 {
		t.Fatal(reply, err)
	}
	running := make(map[string]bool)
	for _, d := range reply.Deliveries {
		running[d.Job.ID] = true
	}
	for range 2 {
		results, err := s.EnqueueMany(ctx, items, Queue(q.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			want := signalbox.StateReady
			if running[r.ID] {
				want = signalbox.StateRunning
			}
			if r.New || r.State != want {
				t.Errorf("item %d: job %s is new: %t, %q; want %q", i, r.ID, r.New, r.State, want)
			}
		}
		slices.Reverse(items)
	}
}

// A large bulk begins with small chunks, so that Redis begins early. A bulk not much larger than a chunk doesn't: more
// calls would cost more.
func TestChunksGrow(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		jobs int
		want []int
	}{
		{1, []int{store.MaxBatch, store.MaxBatch}},
		{rampFrom - 1, []int{store.MaxBatch, store.MaxBatch}},
		{rampFrom, []int{128, 256, 512, store.MaxBatch, store.MaxBatch}},
	} {
		b := bulk{ramps: tc.jobs >= rampFrom}
		q := &bulkQueue{}
		for i, want := range tc.want {
			if got := b.room(q); got != want {
				t.Errorf("of %d jobs: chunk %d takes %d, want %d", tc.jobs, i, got, want)
			}
			q.chunks++
		}
		q.chunks = 1 << 20
		if got := b.room(q); got != store.MaxBatch {
			t.Errorf("of %d jobs: a late chunk takes %d", tc.jobs, got)
		}
	}
}

// If a caller leaves, its chunk stays with the call, which goes on for other callers. The chunk isn't used again.
func TestChunkOfACallIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, nil)
	held, let := p.HoldReplies(calls)
	defer let()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b := bulk{s: s, ctx: ctx, queues: make(map[destination]*bulkQueue)}
	var err error
	if b.base, err = defaults.with(s.trace.reserved, []EnqueueOption{Queue(q.Name())}); err != nil {
		t.Fatal(err)
	}
	items := many(3)
	for i := range items {
		b.add(&items[i])
	}
	b.send(b.current)
	c := b.inFlight[0]
	<-held
	cancel()
	b.settle()
	if !c.left || len(c.items) != 3 || len(b.spare) != 0 {
		t.Errorf("left %v, with %d jobs, and %d chunks are used again", c.left, len(c.items), len(b.spare))
	}
	if err := b.err(); !errors.Is(err, ErrUncertain) {
		t.Errorf("got %v", err)
	}
}
