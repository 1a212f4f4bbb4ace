package signalbox

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
)

// An Outcome says how a delivery ended.
type Outcome string

// The outcomes.
const (
	OutcomeCompleted Outcome = "completed" // the job is done
	OutcomeRetried   Outcome = "retried"   // the attempt failed; the job runs again
	OutcomeSnoozed   Outcome = "snoozed"   // put back by Snooze
	OutcomeReturned  Outcome = "returned"  // given back by the worker, because it shuts down or lost its lease
	OutcomeDead      Outcome = "dead"      // the last attempt failed
	OutcomeCancelled Outcome = "cancelled" // ended by Cancel, or cancelled from outside while it ran

	// OutcomeSuperseded means that Redis refused the worker's answer. Either another delivery has taken over the job,
	// or Redis has lost its data about this delivery.
	OutcomeSuperseded Outcome = "superseded"
	// OutcomeUnknown means that the worker gave up before Redis answered. The job may run again.
	OutcomeUnknown Outcome = "unknown"
)

// Settled says how a delivery ended. Functions that were passed to [OnSettled] get it. All times are by the worker's
// clock.
type Settled struct {
	// Outcome is how the delivery ended.
	Outcome Outcome
	// Asked is the outcome that the worker asked Redis for. It differs from Outcome if that is superseded or unknown, or if
	// somebody else cancelled the job while it ran.
	Asked Outcome
	// Err is the error that the handler returned, through all middleware. A panic is a [*PanicError].
	Err error
	// Next is when the job runs again. It is zero if the job doesn't run again, or runs as soon as a worker is free.
	Next time.Time
	// Started is when the worker got the job.
	Started time.Time
	// Returned is when the handler and all middleware had returned.
	Returned time.Time
	// Ended is when Redis had answered, or when the worker gave up.
	Ended time.Time
}

// OnSettled registers f. f is called once, when it is known how the delivery ended: Redis has confirmed the outcome or
// refused it, or the worker has given up waiting for the answer. A middleware calls OnSettled with the context that it
// got. A handler may call it too. It must be called before the outermost middleware returns.
//
// OnSettled reports whether f will be called. It returns false and does nothing in two cases: ctx is not the context of
// a delivery or made from one, or the delivery has returned already. If the process dies first, f is never called.
//
// The functions are called one after the other, in the order in which they were registered. The worker calls them
// between two calls to Redis. Until f returns, the worker claims less from the queue. So f must not block. The context
// of the delivery has ended by then: f must not use it for its own calls. A panic of f is logged.
func OnSettled(ctx context.Context, f func(Settled)) bool {
	end, _ := ctx.Value(handlerctx.EndKey{}).(*handlerctx.End)
	return end != nil && end.Add(f)
}
