package worker

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A sweep is due each minute, for as long as the queue is worked.
func TestSweepIsDueEachMinute(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	w, err := New(rdb, Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := store.New(rdb, "", redistest.Name(t))
	q := newQueue(w, s, s, 1, nil)
	for i := range 3 {
		before := q.swept
		if q.sweep(context.Background()); !q.swept.After(before) {
			t.Errorf("sweep %d was not made", i+1)
		}
		last := q.swept
		if q.sweep(context.Background()); q.swept != last {
			t.Errorf("sweep %d was made twice", i+1)
		}
		q.swept = time.Now().Add(-sweepEvery)
	}
}

// A queue that nobody has ever put a job into is named in the log, a minute after the worker's start, once. One that had jobs is not.
func TestQueueThatNobodyUses(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, used := range map[string]bool{"unused": false, "used": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said strings.Builder
			w, err := New(rdb, Config{Logger: slog.New(slog.NewTextHandler(&said, nil))})
			if err != nil {
				t.Fatal(err)
			}
			s := store.New(rdb, "", redistest.Name(t))
			q := newQueue(w, s, s, 1, nil)
			if used {
				item, err := store.NewItem(&signalbox.Job{ID: "a", Kind: "k"}, store.When{})
				if err != nil {
					t.Fatal(err)
				}
				lane := s.NewLane()
				lane.Next()
				if _, err := s.Enqueue(t.Context(), lane, []store.Item{item}); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 3 {
				q.sweep(t.Context())
				q.swept = q.swept.Add(-sweepEvery)
				want := 0
				if i > 0 && !used {
					want = 1
				}
				if n := strings.Count(said.String(), "nobody has ever put a job into this queue"); n != want {
					t.Errorf("after %d minutes %d lines, want %d: %s", i, n, want, said.String())
				}
			}
		})
	}
}

// Where renewals come less often than a blocking pop ends, that looks for work whose wake-up was lost.
func TestRarelyRenewed(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]bool{
		minSessionTTL: false, DefaultSessionTTL: false, DefaultSessionTTL + 3: true, time.Minute: true, maxSessionTTL: true,
	} {
		if got := rarelyRenewed(ttl); got != want {
			t.Errorf("with a TTL of %v: %v, want %v", ttl, got, want)
		}
	}
}
