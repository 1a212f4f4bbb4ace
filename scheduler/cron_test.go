package scheduler

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
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

// TestCronOnRedis: three schedulers have clocks that are fast, right and slow. During the test one of them ends and
// another begins.
func TestCronOnRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	q := checked(t, srv.Client())
	base := time.Now()
	start := func(rate float64) func() {
		s := newScheduler(t, srv.Client())
		s.now = func() time.Time { return base.Add(time.Duration(rate * float64(time.Since(base)))) }
		if err := s.Cron("e", "@every 1s", note{5}, Queue(q.Name()), Header("k", "v"), MaxAttempts(2), Retain(signalbox.RetainNone), Group("a")); err != nil {
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
		if string(j.Payload) != `{"N":5}` || j.Headers["k"] != "v" || j.MaxAttempts != 2 || j.Retain != signalbox.RetainNone || j.Group != "a" || j.Serial {
			t.Errorf("got %+v", j)
		}
	}
}

// TestLostTickReplyOnRedis: the reply to a call for ticks is lost, and the same call is made again. So the process
// learns that it enqueued the ticks: it counts them as fired, and ends their spans.
func TestLostTickReplyOnRedis(t *testing.T) {
	t.Parallel()
	config, spans := traced(t)
	reader := measured(t, &config)
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv.Addr())
	q := checked(t, srv.Client())
	s, err := New(p.ClientWith(noRetries), config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newScheduler(t, srv.Client()).Enqueue(context.Background(), note{}, Queue(q.Name())); err != nil { // loads the script
		t.Fatal(err)
	}
	claimAll(t, q)
	for _, name := range []string{"a", "b", "c"} { // three ticks in a call
		if err := s.Cron(name, "@every 1s", note{}, Queue(q.Name())); err != nil {
			t.Fatal(err)
		}
	}
	ticks := func(cmd []string) bool { // calls that enqueue: others have no key for jobs
		return calls(cmd) && slices.ContainsFunc(cmd, func(arg string) bool { return strings.HasSuffix(arg, ":jobs") })
	}
	cuts := []<-chan struct{}{p.CutReply(ticks, 1), p.CutReply(ticks, 4)}
	stop := run(t, s)
	defer stop()
	for _, cut := range cuts {
		<-cut
	}
	var jobs []*signalbox.Job
	redistest.Eventually(t, func() bool {
		jobs = append(jobs, claimAll(t, q)...)
		return len(jobs) >= 18
	}, "ticks go on")
	stop()
	jobs = append(jobs, claimAll(t, q)...)
	perTick := make(map[time.Time]int)
	for _, j := range jobs {
		perTick[j.ScheduledAt]++
	}
	for tick, n := range perTick {
		if n != 3 {
			t.Errorf("the tick %v has %d jobs, want 3", tick, n)
		}
	}
	gapless(t, slices.SortedFunc(maps.Keys(perTick), time.Time.Compare), len(perTick))
	got := reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome")
	if want := map[string]int64{"fired": int64(len(jobs))}; !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
	enqueues := make(map[string]bool)
	for _, span := range spans.Ended() {
		enqueues[traceparent(span.SpanContext())] = true
	}
	for _, j := range jobs {
		if !enqueues[j.Headers["traceparent"]] {
			t.Errorf("the span of the tick %v never ended", j.ScheduledAt)
		}
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
	if strings.Contains(log.String(), "scheduler: ") {
		t.Errorf("log: %s", &log)
	}
}
