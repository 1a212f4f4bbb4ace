package worker

import (
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// Times of deliveries are counted in memory and go to Redis with renewals, in batches. A settlement has none, so a job pays a few
// nanoseconds for them. If the worker is killed, those are missing that no renewal has taken along.

// takeTimes returns the batch that the next renewal takes along: the last one, if nobody knows whether Redis has it, or the times since.
// It returns nil if there are none. Only the keeper calls it, and after the keeper's end the goroutine of run.
func (k *keeper) takeTimes() *store.Times {
	if k.times != nil {
		return k.times
	}
	k.q.mu.Lock()
	wait, run := k.waited, k.ran
	k.waited, k.ran = facts.Histogram{}, facts.Histogram{}
	k.q.mu.Unlock()
	if wait == (facts.Histogram{}) && run == (facts.Histogram{}) {
		return nil
	}
	k.timesLane.Next()
	k.times = &store.Times{Lane: k.timesLane, Wait: wait, Run: run}
	return k.times
}
