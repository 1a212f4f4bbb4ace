package scheduler

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A stopwatch measures one call of the user's. The zero value measures nothing.
type stopwatch struct {
	metrics *telemetry.ProducerMetrics
	began   time.Time
}

// watch starts a stopwatch, if anybody measures.
func (s *Scheduler) watch() stopwatch {
	if s.metrics.Silent() {
		return stopwatch{}
	}
	return stopwatch{s.metrics, time.Now()}
}

// sent counts n jobs of one kind that were sent, or that it was tried with.
func (w stopwatch) sent(ctx context.Context, queue, kind string, n int, err error) {
	if w.metrics != nil {
		w.metrics.Sent(ctx, queue, kind, n, err, errorType(err))
	}
}

// took records the time since the start.
func (w stopwatch) took(ctx context.Context, queue string, err error) {
	if w.metrics != nil {
		w.metrics.Took(ctx, queue, time.Since(w.began), err, errorType(err))
	}
}

// kinds counts jobs by their kind. There are few kinds.
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
