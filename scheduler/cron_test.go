package scheduler

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

// run runs a scheduler until the returned function is called.
func run(t testing.TB, s *Scheduler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func scheduled(jobs []*signalbox.Job) []time.Time {
	times := make([]time.Time, len(jobs))
	for i, j := range jobs {
		times[i] = j.ScheduledAt
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// TestCronOnRedis: three schedulers, whose clocks are fast, right and slow, one of them
// ended and one begun on the way.
func TestCronOnRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	q := checked(t, srv.Client())
	base := time.Now()
	start := func(rate float64) func() {
		s := newScheduler(t, srv.Client())
		s.now = func() time.Time { return base.Add(time.Duration(rate * float64(time.Since(base)))) }
		if err := s.Cron("e", "@every 1s", note{5}, Queue(q.Name()), Header("k", "v"), MaxAttempts(2)); err != nil {
			t.Fatal(err)
		}
		return run(t, s)
	}
	stops := []func(){start(1), start(1.5), start(0.5)}
	time.Sleep(2 * time.Second)
	stops[0]()
	stops = append(stops, start(1))
	time.Sleep(3 * time.Second)
	for _, stop := range stops {
		stop()
	}
	jobs := claimAll(t, q)
	if len(jobs) < 3 || len(jobs) > 8 { // a busy machine is late to start and to stop
		t.Errorf("%d jobs in 5 s", len(jobs))
	}
	gapless(t, scheduled(jobs), len(jobs))
	for _, j := range jobs {
		if j.ScheduledAt.Nanosecond() != 0 || j.EnqueuedAt.Before(j.ScheduledAt) || j.EnqueuedAt.Sub(j.ScheduledAt) > Grace {
			t.Errorf("tick %v was enqueued at %v", j.ScheduledAt, j.EnqueuedAt)
		}
		if string(j.Payload) != `{"N":5}` || j.Headers["k"] != "v" || j.MaxAttempts != 2 {
			t.Errorf("got %+v", j)
		}
	}
}

func TestLostTickReplyOnRedis(t *testing.T) {
	t.Parallel()
	s, q, p := proxied(t, noRetries)
	if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	cuts := []<-chan struct{}{p.CutReply(calls, 1), p.CutReply(calls, 4)}
	defer run(t, s)()
	for _, cut := range cuts {
		<-cut
	}
	var jobs []*signalbox.Job
	redistest.Eventually(t, func() bool {
		jobs = append(jobs, claimAll(t, q)...)
		return len(jobs) >= 4
	}, "ticks go on")
	gapless(t, scheduled(jobs), len(jobs))
}

func TestTickOutcomes(t *testing.T) {
	t.Parallel()
	_, q := setup(t)
	ctx := context.Background()
	now, err := q.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Truncate(time.Second)
	lane := q.NewLane()
	for _, step := range []struct {
		tick time.Time
		want store.TickOutcome
	}{
		{now, store.TickFired},
		{now, store.TickTaken},
		{now.Add(-time.Second), store.TickTaken},
		{now.Add(time.Minute), store.TickEarly},
	} {
		item, err := store.NewItem(&signalbox.Job{ID: store.NewID(), Kind: "k"}, store.When{At: step.tick})
		if err != nil {
			t.Fatal(err)
		}
		lane.Next()
		if got, server, err := q.EnqueueTick(ctx, lane, "e", step.tick, item); got != step.want || err != nil || server.Before(now) {
			t.Errorf("tick %v: %v, %v, %v", step.tick, got, server, err)
		}
	}
	if jobs := claimAll(t, q); len(jobs) != 1 || !jobs[0].ScheduledAt.Equal(now) {
		t.Errorf("jobs: %+v", jobs)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	s, err := New(redistest.Start(t).Client(), Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	redistest.Eventually(t, func() bool {
		s.cron.mu.Lock()
		defer s.cron.mu.Unlock()
		return s.cron.running
	}, "it runs")
	if err := s.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "while it runs") {
		t.Errorf("a second Run: %v", err)
	}
	stop()
	run(t, s)() // again, after its end
	if log.Len() > 0 {
		t.Errorf("log: %s", &log)
	}
}
