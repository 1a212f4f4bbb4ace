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

type valueKey struct{}

// drifted returns how long a lease of this TTL is valid after Extend.
func drifted(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }

func TestValidityEndsBeforeTheTTL(t *testing.T) {
	for _, ttl := range []time.Duration{10 * time.Millisecond, time.Second, 30 * time.Second, 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			v := NewValidity(context.WithValue(t.Context(), valueKey{}, "value"))
			ctx := v.Context()
			if v.Err() != nil || !v.Until().IsZero() || v.Remaining() > 0 {
				t.Fatalf("before the first Extend: Err %v, Until %v, Remaining %v", v.Err(), v.Until(), v.Remaining())
			}
			if !v.Extend(Now(), ttl) {
				t.Fatal("the first Extend failed")
			}
			want := drifted(ttl)
			if got := v.Until().Sub(start); got != want {
				t.Errorf("Until is %v after the start, want %v", got, want)
			}
			time.Sleep(want - time.Nanosecond)
			if ctx.Err() != nil || v.Remaining() <= 0 {
				t.Errorf("it ended too early: %v", ctx.Err())
			}
			<-ctx.Done() // ended by the timer: Err isn't called
			if got := time.Since(start); got != want {
				t.Errorf("Done was closed after %v, want %v", got, want)
			}
			if !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("it ended with %v, cause %v", ctx.Err(), context.Cause(ctx))
			}
			if ctx.Value(valueKey{}) != "value" {
				t.Error("the parent's value is missing")
			}
			if _, ok := ctx.Deadline(); ok {
				t.Error("it has a deadline, which can't move")
			}
		})
	}
}

func TestValidityExtend(t *testing.T) {
	const ttl = 10 * time.Second
	synctest.Test(t, func(t *testing.T) {
		v := NewValidity(t.Context())
		begin := Now()
		v.Extend(begin, ttl)
		for range 5 { // each time at a third of the TTL: the timer must follow
			time.Sleep(ttl / 3)
			if !v.Extend(Now(), ttl) {
				t.Fatal("Extend failed while it was valid")
			}
		}
		until := v.Until()
		if !v.Extend(Now(), ttl/2) || !v.Until().Equal(until) {
			t.Error("a shorter promise moved the end back")
		}
		if v.Extend(begin, ttl) || v.Err() != nil || !v.Until().Equal(until) {
			t.Error("a promise that was over when it came changed something")
		}
		time.Sleep(time.Until(until))
		if v.Extend(Now(), ttl) {
			t.Error("a validity that is over was resurrected")
		}
		if v.Err() == nil || !errors.Is(context.Cause(v.Context()), ErrLost) || !v.Until().Equal(until) {
			t.Error("a refused Extend changed something")
		}
	})
}

func TestValidityRefusesWhatIsWorthNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		start Instant
		ttl   time.Duration
	}{
		"no start":       {Instant{}, time.Hour},
		"no TTL":         {Now(), 0},
		"a negative TTL": {Now(), -time.Hour},
		"all drift":      {Now(), 2 * time.Millisecond},
	} {
		v := NewValidity(t.Context())
		if v.Extend(c.start, c.ttl) || v.Remaining() > 0 {
			t.Errorf("%s: it became valid", name)
		}
	}
}

func TestValidityEnd(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	for name, c := range map[string]struct {
		end  func(v *Validity, parent context.CancelCauseFunc)
		want error
	}{
		"End":          {func(v *Validity, _ context.CancelCauseFunc) { v.End(mine) }, mine},
		"End of nil":   {func(v *Validity, _ context.CancelCauseFunc) { v.End(nil) }, context.Canceled},
		"by the first": {func(v *Validity, _ context.CancelCauseFunc) { v.End(mine); v.End(ErrLost) }, mine},
		"the parent":   {func(_ *Validity, parent context.CancelCauseFunc) { parent(mine) }, mine},
	} {
		parent, cancel := context.WithCancelCause(t.Context())
		v := NewValidity(parent)
		v.Extend(Now(), time.Hour)
		c.end(v, cancel)
		<-v.Context().Done()
		if v.Context().Err() == nil || !errors.Is(context.Cause(v.Context()), c.want) {
			t.Errorf("%s: cause %v, want %v", name, context.Cause(v.Context()), c.want)
		}
		if v.Extend(Now(), time.Hour) {
			t.Errorf("%s: it was resurrected", name)
		}
		cancel(nil)
	}
}

// While a machine is suspended, the monotonic clock stands still and boot time goes on.
// No timer fires, but Err knows the end.
func TestSuspendEndsTheValidity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, asleep := time.Now(), time.Duration(0)
		boot := func() time.Duration { return time.Since(begin) + asleep }
		now := func() Instant { return Instant{mono: time.Now(), boot: boot()} }

		outer := newValidity(t.Context(), boot, now())
		outer.Extend(now(), time.Hour)
		inner := newValidity(outer.Context(), boot, now())
		inner.Extend(now(), 24*time.Hour)
		derived := context.WithValue(inner.Context(), valueKey{}, 1)

		asleep = 50 * time.Minute
		if derived.Err() != nil || outer.Remaining() > 10*time.Minute {
			t.Fatalf("after 50 minutes: %v, remaining %v", derived.Err(), outer.Remaining())
		}
		start := now()
		asleep = 2 * time.Hour
		if derived.Err() == nil || !errors.Is(context.Cause(derived), ErrLost) {
			t.Errorf("after the suspend: Err %v, cause %v", derived.Err(), context.Cause(derived))
		}
		if outer.Extend(start, time.Hour) {
			t.Error("it was resurrected after the suspend")
		}
		granted := newValidity(t.Context(), boot, now())
		start = now()
		asleep += time.Minute
		if granted.Extend(start, time.Minute) {
			t.Error("a grant is valid though the machine slept for longer than the TTL since it was asked for")
		}
		if time.Since(begin) != 0 {
			t.Error("the monotonic clock moved")
		}
	})
}

// Not parallel: it counts goroutines.
func TestValidityNeedsNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	v := NewValidity(t.Context())
	v.Extend(Now(), time.Hour)
	child, cancel := context.WithCancel(context.WithValue(v.Context(), valueKey{}, 1))
	defer cancel()
	if n := runtime.NumGoroutine(); n > before { // fewer, if a goroutine of another test ends meanwhile
		t.Errorf("%d goroutines before, %d after", before, n)
	}
	v.End(ErrLost)
	if child.Err() == nil || !errors.Is(context.Cause(child), ErrLost) {
		t.Error("the child's end is not immediate")
	}
	v = NewValidity(t.Context())
	v.Extend(Now(), time.Hour)
	if n := testing.AllocsPerRun(100, func() { _ = v.Context().Err() }); n != 0 {
		t.Errorf("Err allocates %v times", n)
	}
	v.End(nil)
}

// If Extend returns true, an Err that has read the older end must not end the validity.
func TestValidityExtendAgainstErr(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Millisecond
	v := NewValidity(t.Context())
	v.Extend(Now(), ttl)
	ctx := v.Context()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for ctx.Err() == nil {
				runtime.Gosched()
			}
		})
	}
	for {
		start := Now()
		if !v.Extend(start, ttl) {
			break // the machine is slow, or the end below was reached
		}
		if ctx.Err() != nil && time.Since(start.mono) < drifted(ttl) {
			t.Error("it ended though Extend had succeeded")
		}
		if time.Since(v.base.mono) > 100*time.Millisecond {
			v.End(nil)
		}
	}
	wg.Wait()
}

func BenchmarkValidityErr(b *testing.B) {
	v := NewValidity(b.Context())
	v.Extend(Now(), time.Hour)
	defer v.End(nil)
	ctx := v.Context()
	b.ReportAllocs()
	for b.Loop() {
		_ = ctx.Err()
	}
}
