package worker_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// Equal jitter is uniform between half of a bound that doubles and the bound. With 20,000 samples each
// tenth of that range holds 10 % of them, give or take 0.2 % (one standard deviation).
func TestRetriesHaveEqualJitter(t *testing.T) {
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
		{17, 65536 * time.Second},
		{18, 24 * time.Hour},
		{25, 24 * time.Hour},
		{1 << 30, 24 * time.Hour},
	} {
		tenths := make([]int, 10)
		for range samples {
			d := worker.DefaultRetry(c.attempt, errBoom)
			if d < c.bound/2 || d > c.bound {
				t.Fatalf("attempt %d: %v, want %v to %v", c.attempt, d, c.bound/2, c.bound)
			}
			tenths[min(int(10*(2*d-c.bound)/c.bound), 9)]++
		}
		for i, n := range tenths {
			if share := float64(n) / samples; math.Abs(share-0.1) > 0.015 {
				t.Errorf("attempt %d: %.1f %% of the delays are in tenth %d of %v, want 10 %%", c.attempt, 100*share, i, c.bound)
			}
		}
	}
}

// A job that fails on a Friday evening still has attempts left on the Tuesday after a long weekend,
// whatever the jitter: the shortest delays of all retries come to 102 hours.
func TestDefaultRetryOutlastsALongWeekend(t *testing.T) {
	t.Parallel()
	least, most := time.Duration(0), time.Duration(0)
	for attempt := 1; attempt < signalbox.DefaultMaxAttempts; attempt++ { // the last one is not retried
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			d := worker.DefaultRetry(attempt, errBoom)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		least, most = least+shortest, most+longest
	}
	if least < 102*time.Hour || least > 104*time.Hour || most > 205*time.Hour || most < 200*time.Hour {
		t.Errorf("all retries take %v to %v, want 102 h to 204 h", least, most)
	}
}

func TestExponentialJitterOfOtherBounds(t *testing.T) {
	t.Parallel()
	p := worker.ExponentialJitter(10*time.Millisecond, 35*time.Millisecond)
	for attempt, bound := range map[int]time.Duration{
		1: 10 * time.Millisecond, 2: 20 * time.Millisecond, 3: 35 * time.Millisecond, 4: 35 * time.Millisecond,
	} {
		shortest, longest := time.Hour, time.Duration(0)
		for range 1000 {
			d := p(attempt, nil)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if longest > bound || longest < bound*9/10 || shortest < bound/2 || shortest > bound*6/10 {
			t.Errorf("attempt %d: 1000 delays are from %v to %v, want from half of %v to almost that", attempt, shortest, longest, bound)
		}
	}
	largest := worker.ExponentialJitter(1, math.MaxInt64)
	for _, attempt := range []int{1, 2, 62, 63, 64, 65, math.MaxInt} {
		if d := largest(attempt, nil); d < 0 || attempt > 64 && d < math.MaxInt64/2 {
			t.Errorf("attempt %d of the widest policy: %v", attempt, d)
		}
	}
	for _, wrong := range [][2]time.Duration{{0, time.Second}, {-1, time.Second}, {2, 1}} {
		if panicOf(func() { worker.ExponentialJitter(wrong[0], wrong[1]) }) == "" {
			t.Errorf("ExponentialJitter(%v, %v) doesn't panic", wrong[0], wrong[1])
		}
	}
}

// What a worker does with jobs that fail together: their retries are spread over half a second.
func TestRetriesOfManyJobsAreSpread(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(200)
	var due sync.Map // by ID: when the first retry was due, of those that have begun
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt == 2 {
			due.Store(job.ID, job.ScheduledAt)
		}
		return errBoom
	})
	run := r.start(w)
	const n = 200
	begin := time.Now()
	ids := r.add(make([]signalbox.Job, n)...)
	r.until("all have failed once", func(c looks.Counts) bool { return c.Total.Retried >= n })
	run.stop()
	var delays []time.Duration
	for _, id := range ids {
		at, begun := due.Load(id)
		if !begun {
			at = r.job(id).ScheduledAt
		}
		delays = append(delays, at.(time.Time).Sub(begin))
	}
	slices.Sort(delays)
	if spread := delays[len(delays)-1] - delays[0]; spread < 250*time.Millisecond {
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

// Each policy stays within its bounds, for any number of attempts, and uses them.
func TestPolicies(t *testing.T) {
	t.Parallel()
	bounds := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second, 10 * time.Second}
	for name, c := range map[string]struct {
		policy worker.RetryPolicy
		least  func(bound time.Duration) time.Duration
		most   func(bound time.Duration) time.Duration
	}{
		"constant":    {worker.Constant(time.Minute), func(time.Duration) time.Duration { return time.Minute }, func(time.Duration) time.Duration { return time.Minute }},
		"exponential": {worker.Exponential(time.Second, 10*time.Second), itself, itself},
		"equal":       {worker.ExponentialJitter(time.Second, 10*time.Second), func(b time.Duration) time.Duration { return b / 2 }, itself},
		"full":        {worker.ExponentialFullJitter(time.Second, 10*time.Second), func(time.Duration) time.Duration { return 0 }, itself},
	} {
		for attempt := -1; attempt < 40; attempt++ {
			bound := bounds[min(max(attempt-1, 0), len(bounds)-1)]
			least, most := time.Duration(math.MaxInt64), time.Duration(0)
			for range 1000 {
				d := c.policy(attempt, errBoom)
				least, most = min(least, d), max(most, d)
			}
			from, to := c.least(bound), c.most(bound)
			if slack := (to - from) / 20; least < from || least > from+slack || most > to || most < to-slack {
				t.Errorf("%s, attempt %d: %v to %v, want %v to %v", name, attempt, least, most, from, to)
			}
		}
	}
	for name, f := range map[string]func(){
		"constant":    func() { worker.Constant(-1) },
		"exponential": func() { worker.Exponential(0, time.Second) },
		"full":        func() { worker.ExponentialFullJitter(2, 1) },
	} {
		if panicOf(f) == "" {
			t.Errorf("%s: no panic", name)
		}
	}
	if d := worker.Exponential(time.Hour, math.MaxInt64)(1<<30, errBoom); d != math.MaxInt64 {
		t.Errorf("after many attempts: %v", d)
	}
	if d := worker.ExponentialFullJitter(time.Hour, math.MaxInt64)(1<<30, errBoom); d <= 0 {
		t.Errorf("full, after many attempts: %v", d)
	}
}

func itself(d time.Duration) time.Duration { return d }
