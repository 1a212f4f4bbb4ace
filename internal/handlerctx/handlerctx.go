// Package handlerctx is what a worker puts into the context of its handlers, and what functions of the root package find there. It is apart from the root
// package, so that users aren't offered what only a worker calls.
package handlerctx

import (
	"context"
	"sync/atomic"
	"time"
)

type (
	drainingKey struct{}
	holdKey     struct{}
)

// JobKey is the context key for the *signalbox.Job of a delivery.
type JobKey struct{}

// WithDraining returns a context for which [Draining] returns done.
func WithDraining(ctx context.Context, done <-chan struct{}) context.Context {
	return context.WithValue(ctx, drainingKey{}, done)
}

// Draining returns the channel that is closed when the worker begins to shut down, or nil.
func Draining(ctx context.Context) <-chan struct{} {
	done, _ := ctx.Value(drainingKey{}).(<-chan struct{})
	return done
}

// A Hold keeps jobs from starting until then, as signalbox.HoldBack says.
type Hold func(ctx context.Context, until time.Time) error

// WithHold returns a context for which [HoldOf] returns hold.
func WithHold(ctx context.Context, hold Hold) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// HoldOf returns what holds back jobs for a handler, or nil.
func HoldOf(ctx context.Context) Hold {
	hold, _ := ctx.Value(holdKey{}).(Hold)
	return hold
}

// EndKey is the context key for the *[End] of a delivery.
type EndKey struct{}

// An End has the functions that wait for the end of a delivery. The zero value is ready.
type End struct {
	last atomic.Pointer[Waiter] // nil: no function; sealed: Add comes too late
}

// A Waiter is a function that waits for the end of a delivery, and the one after it.
type Waiter struct {
	F    any // a func(signalbox.Settled); this package can't import its type
	Next *Waiter
}

var sealed = new(Waiter)

// Add registers f, a func(signalbox.Settled), and reports whether it will be called: false once the end is sealed. It may be called at any time.
func (e *End) Add(f any) bool {
	for {
		before := e.last.Load()
		if before == sealed {
			return false
		}
		if e.last.CompareAndSwap(before, &Waiter{f, before}) {
			return true
		}
	}
}

// Seal is called when the outermost middleware has returned. Later calls of [End.Add] return false. It returns the first of the functions that were
// added, in their order, or nil. Only the first call does.
func (e *End) Seal() (first *Waiter) {
	last := e.last.Swap(sealed)
	if last == sealed {
		return nil
	}
	for last != nil {
		last, last.Next, first = last.Next, first, last
	}
	return first
}

// ReporterKey is the context key for the [Reporter] of a delivery.
type ReporterKey struct{}

// A Reporter takes what a handler says of its progress. It doesn't wait.
type Reporter interface{ Report(Report) }

// A Report is how far a job is.
type Report struct {
	Done, Total int64 // not negative; a total of 0 is not known
	Note        string
}

// SaverKey is the context key for the [Saver] of a delivery.
type SaverKey struct{}

// A Saver saves what later deliveries of a job are to have.
type Saver interface {
	// Begin begins a step. If an earlier delivery has finished it, it decodes its value into into, and done is true. Else it reserves the name, and End or Abandon follows.
	Begin(ctx context.Context, name string, into any) (done bool, err error)
	// End saves the value of a step: then it has finished.
	End(ctx context.Context, name string, value any) error
	// Abandon frees the name of a step that has failed.
	Abandon(name string)
	// Checkpoint saves a value in place of the last one.
	Checkpoint(ctx context.Context, value any) error
	// Resume decodes what Checkpoint has saved last into into.
	Resume(into any) (found bool, err error)
	// SetResult makes a value the job's result, in place of the last one.
	SetResult(value any) error
}

// SaverOf returns what saves for a handler, or nil.
func SaverOf(ctx context.Context) Saver {
	s, _ := ctx.Value(SaverKey{}).(Saver)
	return s
}
