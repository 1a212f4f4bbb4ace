package signalbox

import (
	"context"
	"errors"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// An Outcome says how a delivery ended.
type Outcome string

// The outcomes.
const (
	OutcomeCompleted Outcome = "completed" // the job is done
	OutcomeRetried   Outcome = "retried"   // the attempt failed; the job runs again
	OutcomeSnoozed   Outcome = "snoozed"   // put back by Snooze
	OutcomeReturned  Outcome = "returned"  // given back by the worker: it shuts down, or lost its lease
	OutcomeDead      Outcome = "dead"      // the last attempt failed
	OutcomeCancelled Outcome = "cancelled" // ended by Cancel

	// OutcomeSuperseded means that Redis refused what the worker asked for: the job was taken over by another delivery,
	// or Redis has lost its memory of this one.
	OutcomeSuperseded Outcome = "superseded"
	// OutcomeUnknown means that the worker gave up before Redis answered. The job may run again.
	OutcomeUnknown Outcome = "unknown"
)

// Settled is the end of a delivery, for functions that were passed to [OnSettled]. All times are by the worker's clock.
type Settled struct {
	// Outcome is how the delivery ended.
	Outcome Outcome
	// Asked is what the worker asked Redis for. It is another than Outcome if that is superseded or unknown.
	Asked Outcome
	// Err is what the handler, with all middleware around it, returned. A panic is a [*PanicError].
	Err error
	// Next is when the job runs again. It is zero if the job doesn't run again, or runs as soon as a worker is free.
	Next time.Time
	// Started is when the worker got the job.
	Started time.Time
	// Returned is when the handler, with all middleware around it, had returned.
	Returned time.Time
	// Ended is when Redis had answered, or the worker gave up.
	Ended time.Time
}

// OnSettled has f called once when the end of a delivery is known: after Redis has confirmed how the delivery ended,
// has refused it, or when the worker gives up waiting for that. A middleware calls it with the context that it got,
// and so may a handler. It must be called before the outermost middleware returns.
//
// OnSettled reports whether f will be called. It returns false, and does nothing, if ctx is not the context of a
// delivery or one made from it, or if the delivery has returned. If the process dies first, f is never called.
//
// Functions are called one after the other, in the order of the calls of OnSettled. The worker calls them between
// two calls to Redis: until f returns, the queue claims less. So f must not block. f must not use the delivery's
// context for calls of its own, since that has ended. A panic of f is logged.
func OnSettled(ctx context.Context, f func(Settled)) bool {
	d, _ := ctx.Value(deliveryKey{}).(*DeliveryContext)
	if d == nil {
		return false
	}
	for {
		before := d.last.Load()
		if before == sealed {
			return false
		}
		if d.last.CompareAndSwap(before, &settledFunc{f, before}) {
			return true
		}
	}
}

// A DeliveryContext is the context of one delivery: the one that [OnSettled] looks for. A worker makes it. A test of a
// middleware may do so too: it sets Context, calls the handler with it, and then calls Seal and what Seal returned.
type DeliveryContext struct {
	context.Context

	last atomic.Pointer[settledFunc] // nil: there is none; sealed: OnSettled comes too late
}

// A settledFunc is a function that was passed to OnSettled, and those before it.
type settledFunc struct {
	f      func(Settled)
	before *settledFunc
}

var sealed = &settledFunc{}

type deliveryKey struct{}

// Value returns what [OnSettled] asks for, and the values of Context.
func (d *DeliveryContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return d
	}
	return d.Context.Value(key)
}

// Seal is called when the outermost middleware has returned: later calls of [OnSettled] return false. It returns nil if
// there was no call. Otherwise it returns a function that passes the end of the delivery to all who wait for it. The
// error of that has a [*PanicError] for each of them that panicked.
func (d *DeliveryContext) Seal() (settle func(Settled) error) {
	last := d.last.Swap(sealed)
	if last == nil || last == sealed {
		return nil
	}
	var first *settledFunc // the list in the order of the calls
	for last != nil {
		last, last.before, first = last.before, first, last
	}
	return func(s Settled) error {
		var panics []error
		for w := first; w != nil; w = w.before {
			if err := call(w.f, s); err != nil {
				panics = append(panics, err)
			}
		}
		return errors.Join(panics...)
	}
}

// call returns the panic of f, or nil.
func call(f func(Settled), s Settled) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	f(s)
	return nil
}
