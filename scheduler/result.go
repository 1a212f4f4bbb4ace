package scheduler

import (
	"context"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// maxLookUp bounds how long a call looks up whether the jobs that it met are ready or running.
const maxLookUp = time.Second

// A Result says what happened to one job.
type Result struct {
	// ID is the job's ID. It may be "" if an argument or an option was wrong.
	ID string
	// New reports whether the job was enqueued. If it is false and there was no error, Existing has the ID, or the unique key.
	New bool
	// Updated reports whether the job Existing has got what this one has: see [Replace]. Then New is false.
	Updated bool
	// Existing is the ID of the job that kept this one out. It is the same as ID if that job has the ID. If that job has the unique key (see
	// [Unique]), it is mostly another ID. It is "" if New is true.
	Existing string
	// State is the state of the job Existing: scheduled, ready or running, and with [IfAbsent] or a [Window] also dead, cancelled or completed.
	// Whether it is ready or running is read a moment after the call. The job may have moved on by then. State is ""
	// if New is true, if the state couldn't be read, or if nothing is left of the job, and only its window lasts.
	State signalbox.State
	// Replaced is the state of the job that this one replaced: dead, cancelled or completed. It is "" if there was none.
	Replaced signalbox.State
	// Err says why this job is not enqueued, or may not be. Only [Scheduler.EnqueueMany] and [Scheduler.EnqueueSeq] set it.
	Err error
}

// take sets the result from f, and from the job that has the unique key if f says so. It reports whether the job met a live one that is ready or
// running. lookUp finds out which of the two.
func (r *Result) take(f store.Fate, other store.Met) (live bool) {
	if r.New = f.In(); !r.New && f != store.Full {
		r.Existing = r.ID
	}
	switch f {
	case store.ReplacedDead:
		r.Replaced = signalbox.StateDead
	case store.ReplacedCancelled:
		r.Replaced = signalbox.StateCancelled
	case store.ReplacedCompleted:
		r.Replaced = signalbox.StateCompleted
	case store.MetScheduled:
		r.State = signalbox.StateScheduled
	case store.MetDead:
		r.State = signalbox.StateDead
	case store.MetCancelled:
		r.State = signalbox.StateCancelled
	case store.MetCompleted:
		r.State = signalbox.StateCompleted
	}
	r.Updated = f == store.Updated
	if f == store.MetKey || r.Updated {
		r.Existing, r.State = other.ID, other.State
	}
	return f == store.MetLive || other.Live
}

// lookUp sets whether the jobs that were met are ready or running. If Redis doesn't answer within that time, their
// state stays "": the enqueue itself has succeeded.
func lookUp(ctx context.Context, q *store.Queue, met []*Result, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ids := make([]string, len(met))
	for i, r := range met {
		ids[i] = r.Existing
	}
	answers := make(chan []bool, len(ids)/store.MaxBatch+1) // room for all: the goroutine must never block
	go func() {                                             // since the client may not heed ctx
		defer close(answers)
		for some := range slices.Chunk(ids, store.MaxBatch) {
			running, err := q.Running(ctx, some)
			if err != nil {
				return
			}
			answers <- running
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case running, ok := <-answers:
			if !ok {
				return
			}
			for i, is := range running {
				met[i].State = signalbox.StateReady
				if is {
					met[i].State = signalbox.StateRunning
				}
			}
			met = met[len(running):]
		}
	}
}
