package worker

import "github.com/signalbox-go/signalbox/internal/store"

// Times of deliveries are counted in memory and go to Redis with renewals, in batches. A settlement has none, so a job pays a few
// nanoseconds for them. If the worker is killed, those are missing that no renewal has taken along.

// takeTimes returns the batch that the next renewal takes along: the last one, if nobody knows whether Redis has it, or the times since.
// It returns nil if there are none. Only the keeper calls it, and after the keeper's end the goroutine of run.
func (q *queue) takeTimes() *store.Times {
	if q.times != nil {
		return q.times
	}
	q.mu.Lock()
	wait, run := q.waited, q.ran
	q.waited, q.ran = store.Histogram{}, store.Histogram{}
	q.mu.Unlock()
	if wait == (store.Histogram{}) && run == (store.Histogram{}) {
		return nil
	}
	q.timesLane.Next()
	q.times = &store.Times{Lane: q.timesLane, Wait: wait, Run: run}
	return q.times
}
