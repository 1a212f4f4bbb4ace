package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// A BatchStatus is how a batch is, for those who wait for it. All times are by the clock of Redis. Package inspect has more, for operators.
type BatchStatus struct {
	Ref Ref
	// State is what is to be known first, in a word: "over", "cancelled" until it is over, "failed" until it is over, "unsealed" or "open". Whether all members of a batch that is over have completed, Dead and Gone say.
	State     string
	Sealed    bool // its producer adds no more: it has sealed it, or the batch was cancelled
	Cancelled bool // somebody has cancelled it, or its time was over; also when it is over
	Over      bool // it is sealed, and all of its members have ended

	Total     int64 // jobs that have ever been members; until the batch is over it may grow
	Open      int64 // members that haven't ended
	Completed int64
	Dead      int64 // members that are dead
	Gone      int64 // members that were cancelled or deleted

	CreatedAt time.Time
	EndedAt   time.Time // when it was over; else zero
	SealBy    time.Time // when it is cancelled if it isn't sealed by then: see [SealWithin]; zero if it is sealed
	EndBy     time.Time // when it is cancelled if it isn't over by then: see [FlowTimeout]; zero if it has no such time, or doesn't wait for it any more
}

// Ref returns the reference of the batch, for [Scheduler.BatchStatus]. That of a [BatchOf] whose ok was false is zero.
func (b *Batch) Ref() Ref {
	q := b.store
	if b.member != nil {
		q = b.member.Queue()
	}
	if q == nil {
		return Ref{}
	}
	return Ref{Namespace: q.Namespace(), Queue: q.Name(), ID: b.ref.Name}
}

// BatchStatus returns how a batch is, at one moment, as [Scheduler.Status] does for a job. ref is that of [Batch.Ref], or one that [ParseRef] has read. It is one short call to Redis. The rights of a producer will do.
//
// The error wraps [ErrNoBatch] if nothing is known of the batch: it has been over for a day, or never was there. It wraps [signalbox.ErrInvalid] if there can be no such batch, or if the reference is of another namespace than the scheduler's.
// Any other error is that of Redis. If ctx has no deadline, Config.EnqueueTimeout bounds the call.
func (s *Scheduler) BatchStatus(ctx context.Context, ref Ref) (BatchStatus, error) {
	q, err := s.home(ref)
	if err != nil {
		return BatchStatus{}, err
	}
	if err := store.ValidateFlow(ref.ID); err != nil {
		return BatchStatus{}, fmt.Errorf("scheduler: reference of a batch: %w", err)
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	f, found, err := q.Flows().Get(ctx, ref.ID)
	if err == nil && !found {
		err = ErrNoBatch
	}
	if err != nil {
		return BatchStatus{}, fmt.Errorf("scheduler: status of batch %s: %w", ref, err)
	}
	return batchStatusOf(ref, &f), nil
}

// BatchStatusOf returns how the batch is that the job is of whose handler calls it: as a member of the batch, or as a callback of [OnSuccess], [OnEnd] or [OnFailure]. ctx is the handler's. It is one short call to Redis, with the worker's client and rights.
//
// To a member its own batch has at least one open job: itself. To the job of OnSuccess or of OnEnd the batch is over, unless an operator has had a member run again meanwhile. To the job of OnFailure members may go on, and others may fail: the numbers are those of the moment.
//
// The error wraps [ErrNoBatch] if the job is of no batch, or the batch is forgotten; that happens to a callback that is retried 30 days later. Any other error is that of Redis. If ctx has no deadline, the call takes 5 s at most.
func BatchStatusOf(ctx context.Context) (BatchStatus, error) {
	of, f, err := batchIn(ctx)
	if err != nil {
		return BatchStatus{}, err
	}
	return batchStatusOf(batchRef(of), &f), nil
}

func batchStatusOf(ref Ref, f *facts.Flow) BatchStatus {
	st := BatchStatus{
		Ref: ref, State: f.State(), Sealed: !f.Unsealed, Cancelled: f.Cancelled, Over: f.Over,
		Total: f.Total, Open: f.Open, Completed: f.OK, Dead: f.Dead, Gone: f.Gone, CreatedAt: f.Created, SealBy: f.SealBy(), EndBy: f.EndBy(),
	}
	if f.Over {
		st.EndedAt = f.Since
	}
	return st
}
