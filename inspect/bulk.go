package inspect

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// Bulk says how [Inspector.DoAll] goes about it. The zero value acts, and reports nothing on its way.
type Bulk struct {
	// DryRun counts the jobs, and changes nothing.
	DryRun bool
	// Progress is called from time to time, and at the end. It may be nil.
	Progress func(BulkCounts)
}

// BulkCounts counts jobs of a [Bulk].
type BulkCounts struct {
	Seen    int64 // looked at: they are in the filter's state, and have its IDs and ages
	Matched int64 // the filter names them, and the action isn't done to them yet
	Done    int64 // the action was done to them; with DryRun 0
	// Moved counts those that had left the state meanwhile, or are gone. Nothing was changed for them.
	Moved int64
	// Failed counts those whose record the action can't change: it can't be read, say. It also counts those whose ID is taken in the queue of a
	// [Move]. Nothing was changed for them.
	Failed int64
}

// reportEvery is after how many jobs that were looked at DoAll reports its progress, if it acts on few of them.
const reportEvery = 1000

// maxBulk is the most jobs that DoAll acts on at a time.
const maxBulk = 200

// DoAll acts on all jobs of a queue that a filter names, as [Inspector.Jobs] yields them: some hundred in a call of Redis, each of which takes a
// few milliseconds. A job that leaves the filter's state before its turn is left as it is, and counted as moved. A job that comes into that
// state meanwhile may be acted on.
//
// No job is acted on twice, also if it runs meanwhile and comes back into the filter's state. Dead, cancelled and completed jobs are those that had ended
// when DoAll began, by the clock of Redis. Of scheduled and ready ones DoAll remembers those that it has retried, rescheduled or edited: this
// takes up to 40 bytes of memory for each. Otherwise it needs little memory, however many jobs there are.
//
// After an error the jobs of Done are done. DoAll may be called again: it finds those that are left. A job that fails by itself doesn't end
// DoAll. It is counted as failed, and the error that DoAll returns at its end wraps the errors of the first few of them. The error wraps
// [signalbox.ErrInvalid] if the filter or the action makes no sense, or the action isn't for the filter's state, and [ErrNoQueue] if nobody
// has used the queue.
//
// To act on ready jobs other than the oldest ones, Redis looks through their list: with a million of them that takes up to 30 ms for
// each job. To drop or to hold back a whole queue, pause it.
func (i *Inspector) DoAll(ctx context.Context, queue string, f Filter, a Action, b Bulk) (p BulkCounts, err error) {
	if a == nil {
		return p, fmt.Errorf("inspect: %w", errNoAction)
	}
	name, states := a.about()
	err = errors.Join(a.validate(), f.validate())
	if !slices.Contains(states, f.State) {
		err = errors.Join(err, fmt.Errorf("%w Filter.State: it is %.200q, and %s is for jobs that are %s", signalbox.ErrInvalid, f.State, name, words(states)))
	}
	if err != nil {
		return p, fmt.Errorf("inspect: %w", err)
	}
	if err := i.reaches(ctx, queue, a); err != nil {
		return p, err
	}
	report := func() {
		if b.Progress != nil {
			b.Progress(p)
		}
	}
	defer report()
	ids := make([]string, 0, maxBulk)
	acted := newActed(a, f.State)
	var failed failures
	flush := func() error {
		answers, err := a.act(ctx, i.store(queue), ids, f.State)
		for _, answer := range answers {
			switch answer.Acted {
			case store.Done:
				p.Done++
			case store.Failed, store.Occupied, store.KeyTaken, store.InFlow:
				p.Failed++
			case store.Gone, store.Wrong, store.Changed, store.Lost:
				p.Moved++
			}
		}
		ids = ids[:0]
		var some failures
		if errors.As(err, &some) {
			failed.add(some...)
		} else if err != nil {
			return fmt.Errorf("inspect: %s of %s jobs of queue %s: %w", name, f.State, queue, err)
		}
		return nil
	}
	looked := f
	looked.Kind, looked.Error, looked.Limit = "", "", 0 // those are counted that differ in these
	for job, err := range i.found(ctx, queue, looked, a) {
		if err != nil {
			return p, err
		}
		if p.Seen++; p.Seen%reportEvery == 0 {
			report()
		}
		if f.Kind != "" && job.Kind != f.Kind || !strings.Contains(job.LastError, f.Error) || a.done(&job) || acted.before(job.ID) {
			continue
		}
		p.Matched++
		if !b.DryRun {
			ids = append(ids, job.ID)
		}
		if len(ids) == maxBulk {
			if err := flush(); err != nil {
				return p, err
			}
			report()
		}
		if f.Limit > 0 && p.Matched == int64(f.Limit) {
			break
		}
	}
	if len(ids) > 0 {
		if err := flush(); err != nil {
			return p, err
		}
	}
	if p.Failed > 0 {
		return p, fmt.Errorf("inspect: %s of %s jobs of queue %s: %d jobs failed, the first: %w", name, f.State, queue, p.Failed, failed)
	}
	return p, nil
}

// An acted remembers the jobs that were acted on, by a hash of their IDs. nil remembers none.
type acted struct {
	seed maphash.Seed
	ids  map[uint64]struct{}
}

// newActed returns nil if the listing, or the action's done, leaves out jobs that come back.
func newActed(a Action, state signalbox.State) *acted {
	switch a.(type) {
	case Retry, Reschedule, Edit:
		if state.Live() {
			return &acted{maphash.MakeSeed(), make(map[uint64]struct{})}
		}
	}
	return nil
}

// before reports whether it was called with this ID before.
func (a *acted) before(id string) bool {
	if a == nil {
		return false
	}
	sum := maphash.String(a.seed, id)
	_, before := a.ids[sum]
	a.ids[sum] = struct{}{}
	return before
}
