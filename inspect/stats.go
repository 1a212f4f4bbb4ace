package inspect

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// A Step is how long the buckets of [Inspector.Stats] are.
type Step int

// The steps.
const (
	ByMinute Step = iota // for three hours
	ByHour               // for thirty days
)

// Duration returns the length of a step: [time.Minute] or [time.Hour].
func (s Step) Duration() time.Duration {
	if s == ByHour {
		return time.Hour
	}
	return time.Minute
}

// Window returns how far back the buckets of a step go: three hours or thirty days.
func (s Step) Window() time.Duration {
	if s == ByHour {
		return looks.Hours.Window()
	}
	return looks.Minutes.Window()
}

// Stats are the statistics of a queue.
type Stats struct {
	Queue string
	// At is when they were read, by the clock of Redis.
	At time.Time
	// Total are the counts since the queue began.
	Total Counts
	// Buckets are sorted by time. Each begins when the one before has ended, and the last one ends at At. So what they count adds up
	// to what was counted in that time. There is a gap where the counters in Redis fell, because somebody deleted them.
	Buckets []Bucket
}

// A Bucket is what happened to the jobs of a queue in a time.
//
// Workers note what the counters of the queue say whenever they renew their sessions: each does so every third of its SessionTTL. The last
// note of a minute ends the minute's bucket. So with the default TTL a bucket begins and ends up to ten seconds before its minute does. Start
// and Duration say when.
//
// A bucket is longer than its step if no worker ran for some time. Then nobody knows when in that time its counts happened. It is also longer
// if nothing happened: then all of its counts are 0.
type Bucket struct {
	Start    time.Time // by the clock of Redis
	Duration time.Duration
	// The counts are exact, also if workers were killed.
	Counts
	// Wait is how long jobs waited, from when they were due until a worker got them: of each delivery in the bucket that a worker could read.
	// Run is how long they ran, until their handler had returned: of each attempt that ended in the bucket. Workers send these times with
	// their renewals. A worker that is killed takes at most those of the last third of its SessionTTL with it.
	Wait, Run Histogram
}

// Counts are numbers of changes. A job that is retried twice and then completes is counted once as enqueued, twice as retried, and once
// as completed.
type Counts struct {
	Enqueued  int64 // new jobs
	Completed int64 // jobs whose handler returned nil
	Retried   int64 // attempts that failed, and after which the job runs again
	Delayed   int64 // snoozed, or put back because the worker had no handler for the kind
	Returned  int64 // given back by a worker, as at a shutdown
	Dead      int64 // jobs that failed for good
	Cancelled int64 // jobs that ended cancelled
	Crashed   int64 // deliveries whose worker died, or lost its lease
	Deleted   int64 // jobs that an operator deleted
	Revived   int64 // dead and cancelled jobs that an operator made to run again
	Expired   int64 // of the dead ones, those that had not started in time: see scheduler.ExpireAfter
}

// A Histogram counts durations by their length. Its buckets grow by powers of two: up to 1 ms, 2 ms, 4 ms and so on to 2^22 ms (about 70
// minutes), and one for what took longer. The zero value is empty.
type Histogram struct{ counts facts.Histogram }

// Count returns how many durations there are.
func (h Histogram) Count() int64 {
	var sum int64
	for _, n := range h.counts {
		sum += n
	}
	return sum
}

// Quantile returns a duration that the fraction q of all durations doesn't exceed: Quantile(0.95) is the 95th percentile. It is the upper
// bound of a bucket. So the exact one is at most that, and more than half of it unless it is 1 ms. If it is in the last bucket, Quantile
// returns 2^22 ms, and the exact one is longer. q is from 0 to 1. Quantile returns 0 if there are no durations.
func (h Histogram) Quantile(q float64) time.Duration {
	count := h.Count()
	if count == 0 {
		return 0
	}
	rank := int64(1)
	if q > 0 {
		rank = max(1, int64(math.Ceil(min(q, 1)*float64(count))))
	}
	for i, n := range h.counts {
		if rank -= n; rank <= 0 {
			return facts.HistogramBound(i)
		}
	}
	return facts.HistogramBound(len(h.counts) - 1)
}

// Plus returns the durations of both histograms.
func (h Histogram) Plus(o Histogram) Histogram {
	h.counts.Merge(&o.counts)
	return h
}

// Buckets returns each bucket's longest duration, and how many durations it has: not counting those of the buckets before. The longest of the
// last bucket is [math.MaxInt64].
func (h Histogram) Buckets() iter.Seq2[time.Duration, int64] {
	return func(yield func(time.Duration, int64) bool) {
		for i, n := range h.counts {
			bound := facts.HistogramBound(i)
			if i == len(h.counts)-1 {
				bound = math.MaxInt64
			}
			if !yield(bound, n) {
				return
			}
		}
	}
}

// Totals are the counts of a queue since it began, at one moment.
type Totals struct {
	At time.Time // by the clock of Redis
	Counts
}

// Totals returns the counts of a queue since it began. It costs Redis less than [Inspector.Stats], and may be called each second. The difference
// of two calls is what happened between them, unless somebody has deleted the counters. The error wraps [ErrNoQueue] if nobody has used
// the queue.
func (i *Inspector) Totals(ctx context.Context, queue string) (Totals, error) {
	if err := layout.ValidateQueue(queue); err != nil {
		return Totals{}, fmt.Errorf("inspect: %w", err)
	}
	q := i.store(queue)
	if err := q.Site().CheckLayout(ctx); err != nil {
		return Totals{}, fmt.Errorf("inspect: queue %s: %w", queue, err)
	}
	at, total, err := q.Looks().Totals(ctx)
	if err != nil {
		return Totals{}, fmt.Errorf("inspect: counts of queue %s: %w", queue, err)
	}
	t := Totals{At: at, Counts: Counts(total)}
	if t.Counts == (Counts{}) {
		if err := i.known(ctx, queue); err != nil {
			return Totals{}, err
		}
	}
	return t, nil
}

// Stats returns what happened to the jobs of a queue: by the minute for three hours, or by the hour for thirty days. It makes one call. The
// error wraps [ErrNoQueue] if nobody has used the queue. If another program has written to the statistics, the error names what can't be
// read, and Stats returns what the rest says.
func (i *Inspector) Stats(ctx context.Context, queue string, by Step) (Stats, error) {
	if by != ByMinute && by != ByHour {
		return Stats{}, fmt.Errorf("inspect: %w step %d: ByMinute and ByHour are allowed", signalbox.ErrInvalid, by)
	}
	if err := i.known(ctx, queue); err != nil {
		return Stats{}, err
	}
	step := looks.Minutes
	if by == ByHour {
		step = looks.Hours
	}
	h, err := i.store(queue).Looks().History(ctx, step)
	if err != nil {
		err = fmt.Errorf("inspect: statistics of queue %s: %w", queue, err)
	}
	s := Stats{Queue: queue, At: h.At, Total: Counts(h.Total), Buckets: make([]Bucket, len(h.Periods))}
	for k, p := range h.Periods {
		s.Buckets[k] = Bucket{
			Start: p.Start, Duration: p.End.Sub(p.Start), Counts: Counts(p.Totals), Wait: Histogram{p.Wait}, Run: Histogram{p.Run},
		}
	}
	return s, err
}
