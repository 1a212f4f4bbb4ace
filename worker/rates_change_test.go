package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// TestRatesThatChange: the rate of a queue, or of its groups, is changed again and again, up and down, while three workers run. Between two changes start no more jobs than
// the rate and its burst allow, by Redis' clock. make lines is the long form, a minute: there start at least 95 % of what the rate allows, less one job.
func TestRatesThatChange(t *testing.T) {
	t.Parallel()
	rates := []signalbox.Rate{
		{Jobs: 40, Burst: 5}, {Jobs: 1, Per: time.Hour, Burst: 3}, {Jobs: 120, Burst: 20}, {Jobs: 1000, Per: 24 * time.Hour, Burst: 10}, {Jobs: 300, Per: 3 * time.Second, Burst: 5}, // with a burst of 1 a claim that comes late is not made up for
	}
	changes, each := 2*len(rates), 300*time.Millisecond
	long := *proofJobs >= 100_000
	if long {
		changes, each = 60, time.Second
	}
	for _, of := range []string{"queue", "group"} {
		t.Run(of, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, redistest.New(t).Client()) // the clock of the embedded Redis goes in steps
			s, err := scheduler.New(r.rdb, scheduler.Config{})
			if err != nil {
				t.Fatal(err)
			}
			var items []scheduler.Item
			for n := range int(120*each.Seconds()*float64(changes)) + 30*changes { // more than can start
				items = append(items, scheduler.Item{Args: entry{"a", n}, Options: []scheduler.EnqueueOption{scheduler.Group("g")}})
			}
			if _, err := s.EnqueueMany(t.Context(), items, scheduler.Queue(r.name())); err != nil {
				t.Fatal(err)
			}
			set := func(rate signalbox.Rate) {
				t.Helper()
				change := r.queue.Settings().SetLimits
				if of == "group" {
					change = r.queue.Settings().SetGroupLimits
				}
				if _, err := change(t.Context(), signalbox.Limits{Rate: rate}); err != nil {
					t.Fatal(err)
				}
			}
			now := func() time.Time {
				t.Helper()
				at, err := r.queue.Now(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return at
			}
			set(rates[1])
			var mu sync.Mutex
			var starts []time.Time
			for range 3 {
				w := r.workerWith(r.config(50))
				worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ entry) error {
					mu.Lock()
					defer mu.Unlock()
					starts = append(starts, job.ClaimedAt)
					return nil
				})
				r.start(w)
			}
			r.ready()
			lateAt := lateness(t, r.rdb)
			type span struct {
				rate       signalbox.Rate
				begin, end time.Time // by Redis
				late       time.Duration
			}
			var spans []span
			for i := range changes {
				rate := rates[i%len(rates)]
				set(rate)
				begin, local := now(), time.Now()
				<-time.After(each)
				spans = append(spans, span{rate, begin, now(), lateAt(time.Now()) - lateAt(local)})
			}
			set(signalbox.Rate{Jobs: 1_000_000, Burst: 1_000_000})
			redistest.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(starts) == len(items) }, "all jobs start when the rate is high")
			mu.Lock()
			defer mu.Unlock()
			slices.SortFunc(starts, time.Time.Compare)
			for i, span := range spans {
				n := 0
				for _, at := range starts {
					if !at.Before(span.begin) && !at.After(span.end) {
						n++
					}
				}
				per := span.rate.Per
				if per == 0 {
					per = time.Second
				}
				took := span.end.Sub(span.begin)
				allowed := func(d time.Duration) float64 { return float64(span.rate.Jobs) * d.Seconds() / per.Seconds() }
				if most := float64(span.rate.Burst) + allowed(took); float64(n) > most+0.001 {
					t.Errorf("%d: %d jobs start in %v, at most %.1f may: %+v", i, n, took, most, span.rate)
				}
				if least := 0.95*allowed(took-span.late) - 1; long && float64(n) < least {
					t.Errorf("%d: %d jobs start in %v, at least %.1f should: %+v", i, n, took, least, span.rate)
				}
				t.Logf("proof: %d jobs of %.1f in %v", n, allowed(took), took)
			}
		})
	}
}
