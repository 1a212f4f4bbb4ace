package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// defaultSealWithin is how long a batch may stay unsealed after its producer's last call.
const defaultSealWithin = time.Hour

// maxFlowTime is the longest time of [FlowTimeout] and [SealWithin].
const maxFlowTime = 10_000 * 24 * time.Hour

// A BatchOption says what a batch is like. [Scheduler.Batch] takes it.
type BatchOption interface{ batch(*batchOptions) }

type forBatch func(*batchOptions)

func (f forBatch) batch(o *batchOptions) { f(o) }

type batchOptions struct {
	id        string
	terms     store.FlowTerms
	callbacks []callback
	errs      []error
}

// A callback is a job that waits for a batch.
type callback struct {
	option string // that gave it
	role   byte
	args   signalbox.Args
	opts   []EnqueueOption
}

// batchOptionsOf resolves the options of a batch. The error has every mistake.
func batchOptionsOf(queue string, opts []BatchOption) (*batchOptions, error) {
	o := &batchOptions{id: store.NewID(), terms: store.FlowTerms{Within: defaultSealWithin}}
	if err := layout.ValidateQueue(queue); err != nil {
		o.errs = append(o.errs, err)
	}
	for i, opt := range opts {
		if opt == nil {
			o.errs = append(o.errs, fmt.Errorf("%w option: number %d of the list is nil", signalbox.ErrInvalid, i+1))
			continue
		}
		opt.batch(o)
	}
	return o, errors.Join(o.errs...)
}

// FlowID names a batch: up to 64 bytes of printable ASCII without spaces and braces. Without it an ID is drawn.
//
// A program that dies can begin again with the same ID: [Scheduler.Batch] finds the batch, and jobs that it has got already aren't added twice. For that the program gives the same jobs in the same order, by whatever calls of Add and
// AddSeq: Redis keeps how many it has given, and a digest of these. A job counts by its kind, its arguments and its [ID], if it has one. Other jobs are [ErrOtherItems]. So is a seal by a program that has given fewer jobs than the one before it; not if it has given none.
//
// The ID is free again when the batch is forgotten: a day after it was over, or 30 days if a callback was dead or cancelled, and the batch was not.
func FlowID(id string) BatchOption {
	return forBatch(func(o *batchOptions) {
		if err := store.ValidateFlow(id); err != nil {
			o.errs = append(o.errs, fmt.Errorf("FlowID: %w", err))
		}
		o.id = id
	})
}

// OnSuccess gives a batch a job that runs when the batch is sealed and all of its members have completed. If a member is dead, cancelled, deleted or has expired, the job is cancelled. Have an operator run such a member again, and it
// completes: then the job runs after all, so it is once at most that it completes.
//
// The job is in the state [signalbox.StateAwaiting] until then. opts are those of Enqueue, but for [At], [After], and unique keys, which are errors. [ExpireAfter] counts from when it may run. Each of these options may be given several times.
func OnSuccess(args signalbox.Args, opts ...EnqueueOption) BatchOption {
	return withCallback("OnSuccess", store.AwaitsSuccess, args, opts)
}

// OnEnd gives a batch a job that runs when the batch is over: it is sealed, and all of its members have ended, however that was. It runs also if the batch was cancelled. It is as the job of [OnSuccess] in all else. It runs once: not again
// when a member is run again.
func OnEnd(args signalbox.Args, opts ...EnqueueOption) BatchOption {
	return withCallback("OnEnd", store.AwaitsEnd, args, opts)
}

// OnFailure gives a batch a job that runs as soon as the first of its members ends and hasn't completed: also if the batch isn't sealed yet. If all members complete, or the batch is cancelled before one fails, the job is deleted at the end.
// It is as the job of [OnSuccess] in all else.
func OnFailure(args signalbox.Args, opts ...EnqueueOption) BatchOption {
	return withCallback("OnFailure", store.AwaitsFailure, args, opts)
}

// maxCallbacks is how many callbacks a batch may have.
const maxCallbacks = 100

func withCallback(option string, role byte, args signalbox.Args, opts []EnqueueOption) BatchOption {
	opts = slices.Clone(opts)
	return forBatch(func(o *batchOptions) {
		if len(o.callbacks) == maxCallbacks {
			o.errs = append(o.errs, fmt.Errorf("%w %s: the batch has %d callbacks, which is the most", signalbox.ErrInvalid, option, maxCallbacks))
			return
		}
		o.callbacks = append(o.callbacks, callback{option, role, args, opts})
	})
}

// FlowTimeout bounds how long a batch may last, from 1 ms to 10,000 days from when it was made. Then it is cancelled, up to a minute later, unless it is over: members that haven't begun end, those that run are asked to, and [OnEnd] runs. A
// worker of the queue does that. It doesn't count any more once the batch was over, and an operator has a member run again.
func FlowTimeout(d time.Duration) BatchOption {
	return forBatch(func(o *batchOptions) { o.terms.Timeout = o.bounded("FlowTimeout", d) })
}

// FailFast cancels a batch as soon as the first of its members ends and hasn't completed, as an operator would: members that haven't begun end cancelled, those that run are asked to end, and nobody adds any more. Then [OnFailure] and [OnEnd]
// run, [OnEnd] when all have ended. A member of it can't be retried afterwards.
func FailFast() BatchOption {
	return forBatch(func(o *batchOptions) { o.terms.FailFast = true })
}

// SealWithin bounds how long a batch may stay unsealed after its producer's last call: 1 ms to 10,000 days. Without it that is an hour. Then it is cancelled, up to a minute later, as with [FlowTimeout].
func SealWithin(d time.Duration) BatchOption {
	return forBatch(func(o *batchOptions) { o.terms.Within = o.bounded("SealWithin", d) })
}

func (o *batchOptions) bounded(option string, d time.Duration) time.Duration {
	if d < time.Millisecond || d > maxFlowTime {
		o.errs = append(o.errs, fmt.Errorf("%w %s: %v; want 1ms to %v", signalbox.ErrInvalid, option, d, maxFlowTime))
	}
	return d
}
