package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// ErrNoFlow is wrapped by the error of a call that names a batch of which nothing is known: it has been over for a day, or never was.
var ErrNoFlow = errors.New("inspect: no such batch")

// A Flow is what is counted of a batch: jobs whose ends are counted together, and that other jobs wait for. See scheduler.Scheduler.Batch. All times are by the clock of Redis.
type Flow struct {
	Queue, ID string

	Unsealed  bool // its producer may still add to it
	Failed    bool // a member has ended, and hasn't completed
	Cancelled bool // somebody has cancelled it, or its time was over
	Over      bool // it is sealed, and all of its members have ended
	FailFast  bool // it is cancelled when a member ends and hasn't completed

	// Total is how many jobs have ever been members: those of Open haven't ended, those of Completed, Dead and Gone have; those of Gone were cancelled or deleted.
	Total, Open, Completed, Dead, Gone int64
	// Callbacks is how many jobs that wait for it, or have waited, haven't ended.
	Callbacks int64

	CreatedAt time.Time
	CalledAt  time.Time // when its producer last called, until it is over; then zero
	EndedAt   time.Time // when it was over; zero before
	// SealBy is when it is cancelled if nobody has sealed it by then, and EndBy when it is cancelled if it isn't over by then; zero if that isn't so. A worker of the queue does it, up to a minute later.
	SealBy, EndBy time.Time
}

// State returns what is to be known first of a batch, in a word: "over", "cancelled" until it is over, "failed" until it is over, "unsealed" or "open".
func (f *Flow) State() string {
	counted := facts.Flow{Unsealed: f.Unsealed, Failed: f.Failed, Cancelled: f.Cancelled, Over: f.Over}
	return counted.State()
}

func flowOf(queue string, f *facts.Flow) Flow {
	flow := Flow{
		Queue: queue, ID: f.Name, Unsealed: f.Unsealed, Failed: f.Failed, Cancelled: f.Cancelled, Over: f.Over, FailFast: f.FailFast,
		Total: f.Total, Open: f.Open, Completed: f.OK, Dead: f.Dead, Gone: f.Gone, Callbacks: f.Waiters, CreatedAt: f.Created,
		SealBy: f.SealBy(), EndBy: f.EndBy(),
	}
	if f.Over {
		flow.EndedAt = f.Since
	} else {
		flow.CalledAt = f.Since
	}
	return flow
}

// Flow returns a batch. The error wraps [ErrNoFlow] if nothing is known of it, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Flow(ctx context.Context, queue, id string) (Flow, error) {
	if err := errors.Join(layout.ValidateQueue(queue), store.ValidateFlow(id)); err != nil {
		return Flow{}, fmt.Errorf("inspect: %w", err)
	}
	f, found, err := i.store(queue).Flows().Get(ctx, id)
	if err != nil {
		return Flow{}, fmt.Errorf("inspect: batch %s of queue %s: %w", id, queue, err)
	}
	if !found {
		return Flow{}, i.noFlow(ctx, queue, id)
	}
	return flowOf(queue, &f), nil
}

// noFlow returns the error of a call for a batch that isn't there.
func (i *Inspector) noFlow(ctx context.Context, queue, id string) error {
	if err := i.known(ctx, queue); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s in queue %s: it was over for a day, or its ID is misspelt", ErrNoFlow, id, queue)
}

// Flows returns the batches of a queue, the newest first, at most limit of them; more says that there are others. It reads what is counted of all of them: some 150 bytes each. Those that are over are remembered for a day. The error wraps
// [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Flows(ctx context.Context, queue string, limit int) (flows []Flow, more bool, err error) {
	if err := layout.ValidateQueue(queue); err != nil {
		return nil, false, fmt.Errorf("inspect: %w", err)
	}
	known := make(map[string]bool)
	for cursor, begun := uint64(0), false; !begun || cursor != 0; begun = true {
		page, next, err := i.store(queue).Flows().Page(ctx, cursor)
		if err != nil {
			return nil, false, fmt.Errorf("inspect: batches of queue %s: %w", queue, err)
		}
		for n := range page {
			if f := &page[n]; !known[f.Name] {
				known[f.Name] = true
				flows = append(flows, flowOf(queue, f))
			}
		}
		if cursor = next; len(flows) > 2*max(limit, 1000) {
			flows, more = newest(flows, limit), true
		}
	}
	if len(flows) == 0 {
		return nil, false, i.known(ctx, queue)
	}
	more = more || len(flows) > limit
	return newest(flows, limit), more, nil
}

// newest returns the newest of some batches, at most limit.
func newest(flows []Flow, limit int) []Flow {
	slices.SortFunc(flows, func(a, b Flow) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return flows[:min(len(flows), max(limit, 0))]
}

// CancelFlow cancels a batch: its members that wait end cancelled, without a record, those that run are asked to end, and nobody adds to it any more. Callbacks for its success are cancelled. When all members have ended it is over, and those
// for its end run. A batch that is over stays as it is.
//
// It returns what is counted when it has gone through the queue once, 250 jobs a call, so that no call is long however many members there are. What it misses, as members change their places meanwhile, ends when a worker gets it, or in
// passes that workers make later. If ctx ends before, workers go on: the batch was cancelled when the first call was answered. It may be called again.
//
// The error wraps [ErrNoFlow] if nothing is known of the batch, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) CancelFlow(ctx context.Context, queue, id string) (Flow, error) {
	if err := errors.Join(layout.ValidateQueue(queue), store.ValidateFlow(id)); err != nil {
		return Flow{}, fmt.Errorf("inspect: %w", err)
	}
	q := i.store(queue)
	f, err := q.Flows().Cancel(ctx, facts.FlowRef{Name: id})
	if errors.Is(err, store.ErrNoFlow) {
		return Flow{}, i.noFlow(ctx, queue, id)
	}
	for more := err == nil && f.Cancelled && !f.Over; more && err == nil; {
		more, _, _, err = q.Flows().Pass(ctx, id)
	}
	if err != nil {
		return Flow{}, fmt.Errorf("inspect: cancel batch %s of queue %s: %w", id, queue, err)
	}
	return i.Flow(ctx, queue, id)
}
