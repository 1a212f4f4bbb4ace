package lease

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
)

type otherKey struct{}

// stopped is a lease whose timer can't fire, as after a pause. Only Err knows the end.
type stopped struct {
	context.Context
	validity *Validity
	asleep   time.Duration
}

func newStopped(ctx context.Context) *stopped {
	s := &stopped{}
	s.validity = newValidity(ctx, func() time.Duration { return s.asleep }, Instant{mono: time.Now()})
	s.validity.Extend(Instant{mono: time.Now()}, time.Hour)
	s.Context = s.validity.Context()
	return s
}

// If either of the two leases is over, the joined context knows it without a timer.
func TestJoinReadsBothClocks(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]func(job, named *stopped){
		"the parent": func(job, _ *stopped) { job.asleep = 2 * time.Hour },
		"the other":  func(_, named *stopped) { named.asleep = 2 * time.Hour },
	} {
		job, named := newStopped(t.Context()), newStopped(t.Context())
		ctx := Join(context.WithValue(job, valueKey{}, "value"), named)
		derived := context.WithValue(ctx, otherKey{}, nil)
		if derived.Err() != nil || derived.Value(valueKey{}) != "value" {
			t.Errorf("%s: Err %v before the pause", name, derived.Err())
		}
		pause(job, named)
		if derived.Err() == nil || !errors.Is(context.Cause(derived), ErrLost) {
			t.Errorf("%s: Err %v, cause %v after the pause", name, derived.Err(), context.Cause(derived))
		}
		<-derived.Done()
		ctx.End(nil)
		job.validity.End(nil)
		named.validity.End(nil)
	}
}

// Not parallel: it counts goroutines.
func TestJoinLeavesNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	named := newStopped(t.Context())
	defer named.validity.End(nil)
	ctx := Join(t.Context(), named)
	mine := errors.New("mine")
	ctx.End(mine)
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), mine) || named.Err() != nil {
		t.Errorf("after its end: %v, cause %v; the lease: %v", ctx.Err(), context.Cause(ctx), named.Err())
	}
	if n := runtime.NumGoroutine(); n > before { // fewer, if a goroutine of another test ends meanwhile
		t.Errorf("%d goroutines before, %d after", before, n)
	}
}
