package scheduler

import (
	"context"
	"fmt"
	"iter"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// memberRole is the letter of a member in the links of a record, in lower case: docs/wire.md has them.
const memberRole = 'r'

// A MemberResult is what a member of a batch has come to: see [Results].
type MemberResult[T any] struct {
	Status Status // of the member at its end; Status.Ref.ID is its ID
	Value  T      // what its handler has set by [signalbox.SetResult], if Err is nil
	// Err says why there is no value, as the errors of [Wait] do. It is an [*EndedError] if the member is dead or was cancelled. It wraps [ErrNoResult] if it has completed and its handler has set none,
	// unless T is struct{}; or it is one of the others of [ReadResult].
	Err error
}

// Results yields the members of a batch that have ended and have a record, with what they have come to. It is for the handler of a callback, whose context ctx is, as [BatchStatusOf] is; a member may ask, too. An error that it yields is the last: it wraps [ErrNoBatch] if the job is of no
// batch, or the batch is forgotten; any other is that of Redis.
//
// Redis has no list of the members. What can be read is what the queue keeps: the members that have completed and are kept, by [Retain] or by the CompletedRetention of the queue, and those that are dead or were cancelled, for as long as these are kept. Members that were not kept, that were deleted, or that
// were cancelled with the batch before they ran, are only counted: [BatchStatusOf] has the counts. So have members kept for as long as callbacks may have to wait, and to be retried.
//
// Those that have completed come first, then the dead, then the cancelled ones; of each, in no order that a program should rest on. A member that an operator has run again meanwhile may be missing, or come twice.
//
// It reads the jobs that the queue keeps, those of other batches too, in calls that look at 250 jobs each and return some 1 MiB at most, or one job; it holds one such page. It ends when it has found as many as the batch counts. So it costs as many calls as the queue keeps jobs by 250: give
// batches whose results are read a queue that keeps little else. The calls use the worker's client and rights, and end with ctx.
func Results[T any](ctx context.Context) iter.Seq2[MemberResult[T], error] {
	return func(yield func(MemberResult[T], error) bool) {
		for st, err := range membersOf(ctx) {
			r := MemberResult[T]{Status: st}
			if err == nil {
				r.Value, r.Err = resultOf[T](st)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// resultOf returns the result of a job that has ended.
func resultOf[T any](st Status) (T, error) {
	var none T
	if st.State != signalbox.StateCompleted {
		return none, &EndedError{st}
	}
	if _, nothing := any(none).(struct{}); nothing {
		return none, nil
	}
	return ReadResult[T](st)
}

// membersOf yields the members of the batch of a handler's job that have ended and are kept.
func membersOf(ctx context.Context) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		of, f, err := batchIn(ctx)
		if err != nil {
			yield(Status{}, err)
			return
		}
		for _, part := range []struct {
			state signalbox.State
			count int64
		}{{signalbox.StateCompleted, f.OK}, {signalbox.StateDead, f.Dead}, {signalbox.StateCancelled, f.Gone}} {
			if part.count == 0 {
				continue
			}
			for v, err := range of.Queue.Looks().Jobs(ctx, looks.Listing{State: part.state, From: f.Created}) {
				if err != nil {
					yield(Status{}, fmt.Errorf("scheduler: the %s members of batch %s: %w", part.state, f.Name, err))
					return
				}
				if v.Flow != f.Name || v.FlowMark != f.Mark || v.FlowRole|0x20 != memberRole {
					continue
				}
				ref := Ref{Namespace: of.Queue.Namespace(), Queue: of.Queue.Name(), ID: v.Job.ID}
				if !yield(statusOf(ref, &v, of.Codecs[v.Job.Encoding]), nil) {
					return
				}
				if part.count--; part.count == 0 {
					break
				}
			}
		}
	}
}

// batchIn returns the batch that the job is of whose handler has the context, and what is counted of it.
func batchIn(ctx context.Context) (of parcelseam.Flow, f facts.Flow, err error) {
	of, ok := ctx.Value(parcelseam.FlowKey{}).(parcelseam.Flow)
	if !ok {
		return of, f, fmt.Errorf("%w: ctx is not that of a handler whose job is a member or a callback of one", ErrNoBatch)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultEnqueueTimeout)
		defer cancel()
	}
	f, found, err := of.Queue.Flows().Get(ctx, of.Of.Name)
	if err == nil && (!found || f.Mark != of.Of.Mark) {
		err = ErrNoBatch
	}
	if err != nil {
		return of, f, fmt.Errorf("scheduler: the job's batch %s: %w", batchRef(of), err)
	}
	return of, f, nil
}

func batchRef(of parcelseam.Flow) Ref {
	return Ref{Namespace: of.Queue.Namespace(), Queue: of.Queue.Name(), ID: of.Of.Name}
}
