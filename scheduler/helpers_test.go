package scheduler

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/check"
)

type note struct{ N int }

func (note) Kind() string { return "note" }

func newScheduler(t testing.TB, rdb redis.UniversalClient) *Scheduler {
	t.Helper()
	s, err := New(rdb, Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.lookUpFor = time.Minute // on a busy machine a second isn't enough
	return s
}

// setup returns a scheduler on the shared server and a queue for this test. The queue is
// checked when the test ends.
func setup(t testing.TB) (*Scheduler, *store.Queue) {
	t.Helper()
	rdb := redistest.Start(t).Client()
	return newScheduler(t, rdb), checked(t, rdb)
}

func checked(t testing.TB, rdb redis.UniversalClient) *store.Queue {
	t.Helper()
	q := store.New(rdb, "", redistest.Name(t))
	t.Cleanup(func() {
		if err := check.Queue(context.Background(), q.Site()); err != nil {
			t.Error(err)
		}
	})
	return q
}

// claimAll claims and completes the jobs that are ready.
func claimAll(t testing.TB, q *store.Queue) []*signalbox.Job {
	t.Helper()
	ctx := context.Background()
	session := store.NewID()
	if alive, _, err := q.Sessions().Open(ctx, session, time.Minute); !alive || err != nil {
		t.Fatal(alive, err)
	}
	lane := q.NewLane()
	var jobs []*signalbox.Job
	var done []store.Settlement
	for {
		lane.Next()
		reply, err := q.Sessions().Claim(ctx, lane, &store.ClaimRequest{Session: session, Settle: done, Want: 500})
		if err != nil {
			t.Fatal(err)
		}
		done = nil
		for _, d := range reply.Deliveries {
			if d.Err != nil {
				t.Fatal(d.Err)
			}
			jobs = append(jobs, d.Job)
			done = append(done, store.Settlement{ID: d.Job.ID, Token: d.Job.Token, Outcome: store.Completed})
		}
		if len(done) == 0 {
			break
		}
	}
	if _, err := q.Sessions().Close(ctx, session, false, lane); err != nil {
		t.Fatal(err)
	}
	return jobs
}

// calls reports whether a command is a script call. A scheduler makes no other calls.
func calls(cmd []string) bool { return cmd[0] == "evalsha" || cmd[0] == "EVALSHA" }

func proxied(t testing.TB, change func(*redis.UniversalOptions)) (*Scheduler, *store.Queue, *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv.Addr())
	q := checked(t, srv.Client())
	rdb := p.ClientWith(change)
	s := newScheduler(t, rdb)
	if _, err := s.Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil { // loads the script
		t.Fatal(err)
	}
	claimAll(t, q)
	redistest.Eventually(t, func() bool { // the queue is registered in the background
		queues, err := store.Queues(context.Background(), srv.Client(), "")
		stats := rdb.PoolStats()
		return err == nil && slices.Contains(queues, q.Name()) && stats.IdleConns == stats.TotalConns
	}, "no call is under way, and a connection is idle")
	return s, q, p
}

func noRetries(o *redis.UniversalOptions) { o.MaxRetries = -1 }

// said returns what a result says of its job, without the job's queue.
func (r Result) said() Result {
	r.queue = nil
	return r
}

func many(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].Args = note{i}
	}
	return items
}
