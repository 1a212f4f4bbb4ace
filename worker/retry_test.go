package worker_test

import (
	"context"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/worker"
)

// Full jitter is uniform between 0 and a bound that doubles. With 20,000 samples each tenth of
// the range holds 10 % of them, give or take 0.2 % (one standard deviation).
func TestRetriesHaveFullJitter(t *testing.T) {
	t.Parallel()
	const samples = 20_000
	for _, c := range []struct {
		attempt int
		bound   time.Duration
	}{
		{-1, time.Second},
		{0, time.Second},
		{1, time.Second},
		{2, 2 * time.Second},
		{3, 4 * time.Second},
		{8, 128 * time.Second},
		{12, 2048 * time.Second},
		{13, time.Hour},
		{25, time.Hour},
		{1 << 30, time.Hour},
	} {
		tenths := make([]int, 10)
		for range samples {
			d := worker.DefaultRetry(c.attempt, errBoom)
			if d < 0 || d > c.bound {
				t.Fatalf("attempt %d: %v, want 0 to %v", c.attempt, d, c.bound)
			}
			tenths[min(int(10*d/c.bound), 9)]++
		}
		for i, n := range tenths {
			if share := float64(n) / samples; math.Abs(share-0.1) > 0.015 {
				t.Errorf("attempt %d: %.1f %% of the delays are in tenth %d of %v, want 10 %%", c.attempt, 100*share, i, c.bound)
			}
		}
	}
}

func TestExponentialJitterOfOtherBounds(t *testing.T) {
	t.Parallel()
	p := worker.ExponentialJitter(10*time.Millisecond, 35*time.Millisecond)
	for attempt, bound := range map[int]time.Duration{
		1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 3: 35 * time.Millisecond, 4: 35 * time.Millisecond,
	} {
		longest := time.Duration(0)
		for range 1000 {
			longest = max(longest, p(attempt, nil))
		}
		if longest > bound || longest < bound*9/10 {
			t.Errorf("attempt %d: the longest of 1000 delays is %v, want almost %v", attempt, longest, bound)
		}
	}
	for _, wrong := range [][2]time.Duration{{0, time.Second}, {-1, time.Second}, {2, 1}} {
		if panicOf(func() { worker.ExponentialJitter(wrong[0], wrong[1]) }) == "" {
			t.Errorf("ExponentialJitter(%v, %v) doesn't panic", wrong[0], wrong[1])
		}
	}
}

// What a worker does with jobs that fail together: their retries are spread over the whole second.
func TestRetriesOfManyJobsAreSpread(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(200)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return errBoom })
	run := r.start(w)
	const n = 200
	begin := time.Now()
	ids := r.add(make([]signalbox.Job, n)...)
	r.until("all have failed once", func(c store.Counts) bool { return c.Total.Retried >= n })
	run.stop()
	var delays []time.Duration
	for _, id := range ids {
		if job := r.job(id); job.Attempt == 2 {
			delays = append(delays, job.ScheduledAt.Sub(begin))
		}
	}
	slices.Sort(delays)
	if spread := delays[len(delays)-1] - delays[0]; spread < 500*time.Millisecond {
		t.Errorf("%d retries are within %v", len(delays), spread)
	}
}

func TestRetryPolicyThatPanicsOrIsNegative(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	var calls atomic.Int32
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt == 3 {
			return nil
		}
		return errBoom
	}, worker.Retry(func(int, error) time.Duration {
		if calls.Add(1) == 1 {
			panic("no")
		}
		return -time.Hour
	}))
	r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	if r.log.count("ERROR", "retry policy panicked") != 1 {
		t.Error("the log doesn't say that the policy panicked")
	}
}
