package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// A Context is a child of another context that can be ended by itself. Its Err asks its parent, which may read the clocks, so it
// is right after a pause of the process in which no timer could fire. Done is closed a moment later, or when Err is asked.
//
// Until somebody asks for Done, nothing is allocated, and the parent doesn't know of it. From then on it is known to package
// context: contexts made from it need no goroutine.
//
// The zero Context is of no use before [Context.Begin].
type Context struct {
	parent context.Context
	beside ender // what may end it besides; nil: nothing

	ended atomic.Bool           // by End, with context.Canceled
	child atomic.Pointer[child] // of parent; nil while nobody has asked for it
}

// An ender may end a context that doesn't know it yet.
type ender interface {
	// over returns the cause with which the context has ended; nil if it hasn't.
	over() error
}

// A child is a context of package context, and what ends it.
type child struct {
	context.Context
	cancel context.CancelCauseFunc
}

// Begin makes c, which is zero, a child of parent.
func (c *Context) Begin(parent context.Context) { c.parent = parent }

// End ends the context with this cause, [context.Canceled] if it is nil. It does nothing if the context has ended. A Context that
// was begun must be ended if anybody has asked for Done: else its parent keeps it.
func (c *Context) End(cause error) {
	if cause == nil || cause == context.Canceled {
		c.ended.Store(true)
		if ch := c.child.Load(); ch != nil {
			ch.cancel(nil)
		}
		return
	}
	c.own().cancel(cause)
}

// own returns what package context knows of it.
func (c *Context) own() *child {
	if ch := c.child.Load(); ch != nil {
		return ch
	}
	ch := &child{}
	if b, ok := c.beside.(*Bounded); ok {
		ch.Context, ch.cancel = b.derive()
	} else {
		ch.Context, ch.cancel = context.WithCancelCause(c.parent)
	}
	if !c.child.CompareAndSwap(nil, ch) {
		ch.cancel(nil)
		return c.child.Load()
	}
	if c.ended.Load() { // End came before the child
		ch.cancel(nil)
	}
	return ch
}

// known is Err but for what is beside the parent.
func (c *Context) known() error {
	ch := c.child.Load()
	if ch == nil && c.ended.Load() {
		ch = c.own() // so that its cause is known
	}
	if ch != nil {
		if err := ch.Err(); err != nil {
			return err
		}
	}
	err := c.parent.Err()
	if err != nil && ch != nil {
		ch.cancel(context.Cause(c.parent)) // for a parent whose Done is late
		err = ch.Err()
	}
	return err
}

// Err is nil while the context lasts.
func (c *Context) Err() error {
	if err := c.known(); err != nil || c.beside == nil {
		return err
	}
	cause := c.beside.over()
	if cause == nil {
		return nil
	}
	c.End(cause)
	return c.known()
}

// Done is closed when the context has ended.
func (c *Context) Done() <-chan struct{} { return c.own().Done() }

// Deadline returns that of the parent.
func (c *Context) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Value returns that of the parent.
func (c *Context) Value(key any) any {
	if ch := c.child.Load(); ch != nil {
		return ch.Value(key) // package context finds it here
	}
	return c.parent.Value(key)
}

// String keeps what is in the parent out of what prints the context.
func (c *Context) String() string { return "lease.Context" }
