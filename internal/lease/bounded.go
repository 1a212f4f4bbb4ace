package lease

import (
	"context"
	"time"
)

// A Bounded is a [Context] with a deadline.
type Bounded struct {
	Context
	at    time.Time
	cause error
}

// Bound returns a child of parent. After d it ends with [context.DeadlineExceeded] and this cause. The caller must call
// End.
func Bound(parent context.Context, d time.Duration, cause error) *Bounded {
	b := &Bounded{at: time.Now().Add(d), cause: cause}
	b.Begin(parent)
	b.beside = b
	return b
}

// Deadline returns its own deadline or that of the parent, whichever is earlier.
func (b *Bounded) Deadline() (time.Time, bool) {
	if at, ok := b.parent.Deadline(); ok && at.Before(b.at) {
		return at, true
	}
	return b.at, true
}

// Err reads the clock while no timer runs.
func (b *Bounded) Err() error {
	if b.child.Load() == nil && !time.Now().Before(b.at) {
		b.own()
	}
	return b.Context.Err()
}

// over returns nil: Err has already checked the time.
func (b *Bounded) over() error { return nil }

// derive returns the child that package context knows. If the deadline has passed, the child has ended already.
func (b *Bounded) derive() (context.Context, context.CancelCauseFunc) {
	outer, cancel := context.WithCancelCause(b.parent)
	ctx, stop := context.WithDeadlineCause(outer, b.at, b.cause)
	return ctx, func(cause error) {
		cancel(cause)
		stop()
	}
}
