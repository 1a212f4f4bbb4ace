package scheduler

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A stopwatch measures one call of the user's program. The zero value measures nothing.
type stopwatch struct {
	metrics *telemetry.ProducerMetrics
	began   time.Time
}

// watch starts a stopwatch, if there are metrics.
func (s *Scheduler) watch() stopwatch {
	if s.metrics.Silent() {
		return stopwatch{}
	}
	return stopwatch{s.metrics, time.Now()}
}

// sent counts n jobs of one kind that were sent. With an err it counts them as failed.
func (w stopwatch) sent(ctx context.Context, queue, kind string, n int, err error) {
	if w.metrics != nil {
		w.metrics.Sent(ctx, queue, kind, n, err, errorType(err))
	}
}

// took records the time since watch.
func (w stopwatch) took(ctx context.Context, queue string, err error) {
	if w.metrics != nil {
		w.metrics.Took(ctx, queue, time.Since(w.began), err, errorType(err))
	}
}

// kinds counts jobs by kind. It is a list, since there are few kinds.
type kinds []kindCount

type kindCount struct {
	kind string
	n    int
}

func (k kinds) add(kind string) kinds {
	for i := range k {
		if k[i].kind == kind {
			k[i].n++
			return k
		}
	}
	return append(k, kindCount{kind, 1})
}
