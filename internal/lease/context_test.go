package lease

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errMine = errors.New("mine")

func begun(parent context.Context) *Context {
	c := &Context{}
	c.Begin(parent)
	return c
}

// However a context ends, and in whatever order they are called, its Err, its Done and its cause agree. So do those of
// its children.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]struct {
		end   func(c *Context, parent *stopped)
		cause error
	}{
		"End with a cause":                {func(c *Context, _ *stopped) { c.End(errMine) }, errMine},
		"End":                             {func(c *Context, _ *stopped) { c.End(nil) }, context.Canceled},
		"End with Canceled":               {func(c *Context, _ *stopped) { c.End(context.Canceled) }, context.Canceled},
		"the first End counts":            {func(c *Context, _ *stopped) { c.End(errMine); c.End(nil); c.End(ErrLost) }, errMine},
		"the parent ends":                 {func(_ *Context, parent *stopped) { parent.validity.End(errMine) }, errMine},
		"the parent ends by its clock":    {func(_ *Context, parent *stopped) { parent.asleep = 2 * time.Hour }, ErrLost},
		"End, then the parent":            {func(c *Context, parent *stopped) { c.End(errMine); parent.validity.End(ErrLost) }, errMine},
		"the parent, then End":            {func(c *Context, parent *stopped) { parent.validity.End(ErrLost); c.End(errMine) }, ErrLost},
		"End, asked, and then the parent": {func(c *Context, parent *stopped) { c.End(nil); _ = c.Err(); parent.validity.End(ErrLost) }, context.Canceled},
	}
	asks := map[string]func(c *Context){
		"nobody":        func(*Context) {},
		"for Err":       func(c *Context) { _ = c.Err() },
		"for Done":      func(c *Context) { _ = c.Done() },
		"for its cause": func(c *Context) { _ = context.Cause(c) },
	}
	for how, e := range ends {
		for asked, ask := range asks {
			parent := newStopped(context.WithValue(t.Context(), valueKey{}, "value"))
			c := begun(parent)
			ask(c)
			if c.Err() != nil || c.Value(valueKey{}) != "value" {
				t.Fatalf("%s, asked before %s: Err %v at the beginning", how, asked, c.Err())
			}
			e.end(c, parent)
			if !errors.Is(context.Cause(c), e.cause) || !errors.Is(c.Err(), context.Canceled) {
				t.Errorf("%s, asked before %s: Err %v, cause %v, want %v", how, asked, c.Err(), context.Cause(c), e.cause)
			}
			select {
			case <-c.Done():
			default:
				t.Errorf("%s, asked before %s: Done is not closed, though Err was asked", how, asked)
			}
			child, cancel := context.WithCancel(c)
			if child.Err() == nil || !errors.Is(context.Cause(child), e.cause) {
				t.Errorf("%s, asked before %s: a child has Err %v, cause %v", how, asked, child.Err(), context.Cause(child))
			}
			cancel()
			parent.validity.End(nil)
		}
	}
}

// Children of package context end with it at once. They need no goroutine.
//
// Not parallel: it counts goroutines.
func TestContextEndsItsChildren(t *testing.T) {
	before := runtime.NumGoroutine()
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	c, other := begun(parent), begun(parent)
	canceled, cancel1 := context.WithCancel(context.WithValue(c, valueKey{}, 1))
	defer cancel1()
	timed, cancel2 := context.WithTimeout(c, time.Hour)
	defer cancel2()
	beside, cancel3 := context.WithCancel(other)
	defer cancel3()
	ran := make(chan error)
	context.AfterFunc(c, func() { ran <- context.Cause(c) })
	defer context.AfterFunc(other, func() {})()
	stopped := context.AfterFunc(c, func() { t.Error("a function runs that was stopped") })
	if !stopped() {
		t.Error("a function can't be stopped")
	}
	if n := runtime.NumGoroutine(); n > before { // fewer, if a goroutine of another test ends meanwhile
		t.Errorf("%d goroutines before, %d after", before, n)
	}
	c.End(errMine)
	for what, ctx := range map[string]context.Context{"WithCancel": canceled, "WithTimeout": timed} {
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), errMine) {
			t.Errorf("%s: Err %v, cause %v", what, ctx.Err(), context.Cause(ctx))
		}
	}
	if err := <-ran; !errors.Is(err, errMine) {
		t.Errorf("AfterFunc sees the cause %v", err)
	}
	if beside.Err() != nil || other.Err() != nil || parent.Err() != nil {
		t.Error("the end of one ends another")
	}
}

// A context whose Done was never called allocates nothing. A parent doesn't keep a context that has ended.
//
// Not parallel: it measures.
func TestContextCostsNothing(t *testing.T) {
	v := NewValidity(t.Context())
	v.Extend(Now(), time.Hour)
	defer v.End(nil)
	contexts, i := make([]Context, 101), 0
	if n := testing.AllocsPerRun(100, func() {
		c := &contexts[i]
		i++
		c.Begin(v.Context())
		if c.Err() != nil || c.Value(valueKey{}) != nil {
			t.Error("it has ended")
		}
		c.End(nil)
	}); n != 0 {
		t.Errorf("it allocates %v times", n)
	}
	gone := make(chan struct{})
	func() {
		c := begun(v.Context())
		_ = c.Done()
		runtime.SetFinalizer(c.child.Load().Context, func(context.Context) { close(gone) })
		c.End(nil)
	}()
	for deadline := time.Now().Add(30 * time.Second); ; {
		runtime.GC()
		select {
		case <-gone:
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("a context that has ended is kept by its parent")
		}
	}
}

// End may run at the same time as Done.
func TestContextEndAgainstDone(t *testing.T) {
	t.Parallel()
	for range 1000 {
		c := begun(t.Context())
		var wg sync.WaitGroup
		for _, f := range []func(){func() { c.End(nil) }, func() { <-c.Done() }, func() { <-c.Done() }} {
			wg.Go(f)
		}
		wg.Wait()
		if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), context.Canceled) {
			t.Fatalf("Err %v, cause %v", c.Err(), context.Cause(c))
		}
	}
}

// late is a context whose Err is set before its Done is closed. Contexts of other packages may do that.
type late struct {
	context.Context
	err error
}

func (l *late) Err() error { return l.err }

func TestContextUnderALateParent(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		parent := &late{Context: t.Context()}
		c := begun(parent)
		if asked {
			_ = c.Done()
		}
		parent.err = context.DeadlineExceeded
		if c.Err() == nil || !errors.Is(context.Cause(c), context.DeadlineExceeded) {
			t.Errorf("asked for Done %v: Err %v, cause %v", asked, c.Err(), context.Cause(c))
		}
	}
}

// A bounded context ends at its deadline, even if nothing waits for its Done.
func TestBound(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			b := Bound(t.Context(), time.Minute, errMine)
			defer b.End(nil)
			if at, ok := b.Deadline(); !ok || at.Sub(begin) != time.Minute {
				t.Errorf("its deadline is %v, %v", at, ok)
			}
			if asked {
				_ = b.Done()
			}
			time.Sleep(time.Minute - time.Nanosecond)
			if b.Err() != nil {
				t.Errorf("asked for Done %v: it ended too early: %v", asked, b.Err())
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if b.Err() != context.DeadlineExceeded || context.Cause(b) != errMine {
				t.Errorf("asked for Done %v: Err %v, cause %v", asked, b.Err(), context.Cause(b))
			}
			<-b.Done()
		})
	}
}

// A bounded context ends before its deadline if its parent ends, if the parent's deadline is earlier, or by End.
func TestBoundEndsEarlier(t *testing.T) {
	t.Parallel()
	parent, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	b := Bound(parent, 2*time.Hour, errMine)
	if at, _ := b.Deadline(); time.Until(at) > time.Hour {
		t.Errorf("its deadline is in %v", time.Until(at))
	}
	<-begunDone(b)
	if b.Err() != context.Canceled || context.Cause(b) != context.Canceled {
		t.Errorf("after End: %v, cause %v", b.Err(), context.Cause(b))
	}
	lost := newStopped(t.Context())
	b = Bound(lost, time.Hour, errMine)
	_ = b.Done()
	lost.asleep = 2 * time.Hour
	if b.Err() == nil || !errors.Is(context.Cause(b), ErrLost) {
		t.Errorf("its lease is lost: %v, cause %v", b.Err(), context.Cause(b))
	}
	b.End(nil)
	lost.validity.End(nil)
}

// begunDone calls Done and then ends b.
func begunDone(b *Bounded) <-chan struct{} {
	done := b.Done()
	b.End(nil)
	return done
}

func BenchmarkContext(b *testing.B) {
	v := NewValidity(b.Context())
	v.Extend(Now(), time.Hour)
	defer v.End(nil)
	for name, ask := range map[string]func(c *Context){"unasked": func(*Context) {}, "Done": func(c *Context) { _ = c.Done() }} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			contexts := make([]Context, 1000)
			for i := 0; b.Loop(); i++ {
				c := &contexts[i%len(contexts)]
				c.child.Store(nil)
				c.ended.Store(false)
				c.Begin(v.Context())
				ask(c)
				c.End(nil)
			}
		})
	}
}
