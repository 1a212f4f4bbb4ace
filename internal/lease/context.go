package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// A Context is a child of another context. It can also be ended by itself. Its Err asks its parent, which may read the
// clocks. So Err is right after a pause of the process, when no timer could fire. Done is closed a moment later, or
// when Err is called.
//
// Before the first call of Done, nothing is allocated, and the parent doesn't know of this child. From then on it is
// known to package context: contexts derived from it need no goroutine.
//
// The zero Context can be used only after [Context.Begin].
type Context struct {
	parent context.Context
	beside ender // another reason to end; nil: none

	ended atomic.Bool           // by End, with context.Canceled
	child atomic.Pointer[child] // of parent; nil before the first call of Done
}

// An ender can find that the context must end before the context itself knows.
type ender interface {
	// over returns the cause with which the context has ended, or nil if it hasn't.
	over() error
}

// A child is a context of package context, and the function that cancels it.
type child struct {
	context.Context
	cancel context.CancelCauseFunc
}

// Begin makes c a child of parent. c must be zero.
func (c *Context) Begin(parent context.Context) { c.parent = parent }

// End ends the context with this cause. A nil cause means [context.Canceled]. End does nothing if the context has
// ended. If Done was called, End must be called: otherwise the parent keeps the context in memory.
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

// own returns the child that package context knows, and creates it first if necessary.
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
	if c.ended.Load() { // End came before the child was made
		ch.cancel(nil)
	}
	return ch
}

// known is Err without the check of beside.
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
		ch.cancel(context.Cause(c.parent)) // the parent may close its Done late
		err = ch.Err()
	}
	return err
}

// Err returns nil until the context has ended.
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

// Done returns a channel that is closed when the context has ended.
func (c *Context) Done() <-chan struct{} { return c.own().Done() }

// Deadline returns the parent's deadline.
func (c *Context) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Value returns the parent's value.
func (c *Context) Value(key any) any {
	if ch := c.child.Load(); ch != nil {
		return ch.Value(key) // package context finds its child here
	}
	return c.parent.Value(key)
}

// String hides the parent's values when the context is printed.
func (c *Context) String() string { return "lease.Context" }
