package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Validity is a [context.Context] that lasts as long as a lease is promised. It is safe for concurrent use and starts
// no goroutine.
//
// At first there is no promise: [Validity.Extend] makes it valid and moves its end. It ends only once: by the clock,
// with its parent, or by [Validity.End].
type Validity struct {
	ctx  Context // ends with the validity
	boot func() time.Duration
	base Instant

	// The end on each clock, in ns since base; 0 before the first Extend. They are read one after the other. That is
	// safe: each is a bound by itself, and an older value is only stricter.
	monoEnd, bootEnd atomic.Int64

	mu    sync.Mutex // makes Extend and the end by the clock exclude each other
	timer *time.Timer
}

// NewValidity returns a validity without a promise. Its context has the values of parent and ends with it.
func NewValidity(parent context.Context) *Validity { return newValidity(parent, boottime, Now()) }

// NewValidityAt is NewValidity for a caller that has just read the clocks.
func NewValidityAt(parent context.Context, now Instant) *Validity {
	return newValidity(parent, boottime, now)
}

func newValidity(parent context.Context, boot func() time.Duration, base Instant) *Validity {
	v := &Validity{boot: boot, base: base}
	v.ctx.Begin(parent)
	v.ctx.beside = v
	return v
}

// Extend promises validity until start + ttl - (ttl*0.01 + 2ms). The subtracted part is what the Redlock recipe allows
// for clocks that run at different speeds. start is the moment before the call that asked for the lease. The end only
// moves forward.
//
// Extend returns false and changes nothing in two cases: the validity has ended, which [Validity.Err] reports, or the
// new end has already passed. A validity that has ended never becomes valid again.
func (v *Validity) Extend(start Instant, ttl time.Duration) bool {
	ttl -= ttl/100 + 2*time.Millisecond
	mono := start.mono.Sub(v.base.mono) + ttl
	boot := start.boot - v.base.boot + ttl

	v.mu.Lock()
	defer v.mu.Unlock()
	if v.endIfPast() {
		return false
	}
	monoNow, bootNow := v.elapsed()
	if mono <= monoNow || boot <= bootNow {
		return false
	}
	v.monoEnd.Store(max(v.monoEnd.Load(), int64(mono)))
	v.bootEnd.Store(max(v.bootEnd.Load(), int64(boot)))
	if v.timer == nil { // an existing timer fires earlier and is then set again
		v.timer = time.AfterFunc(min(mono-monoNow, boot-bootNow), v.alarm)
	}
	return true
}

// Context returns a [Context] that ends with cause [ErrLost] when the validity is over. Its Err reads the clocks. After
// a suspend of the machine, Done may be closed late, by as long as the machine slept. A call of Err closes it at once.
// The context has no Deadline, since the end moves.
//
// A context derived from it with [context.WithValue] reads the clocks as well. One from context.WithCancel or
// WithTimeout doesn't: ask its parent first.
func (v *Validity) Context() context.Context { return &v.ctx }

// Err returns nil while the validity lasts, and the error of its context after that. It reads the clocks.
func (v *Validity) Err() error { return v.ctx.Err() }

// Until returns when the validity ends, on the monotonic clock. Before the first Extend it returns the zero time.
func (v *Validity) Until() time.Time {
	end := v.monoEnd.Load()
	if end == 0 {
		return time.Time{}
	}
	return v.base.mono.Add(time.Duration(end))
}

// Remaining returns the time left by the clocks. It is 0 or less before the first Extend and after the end by the
// clock. An earlier end, by End or the parent, doesn't change it.
func (v *Validity) Remaining() time.Duration {
	mono, boot := v.elapsed()
	return min(time.Duration(v.monoEnd.Load())-mono, time.Duration(v.bootEnd.Load())-boot)
}

// End ends the context with this cause. A nil cause means [context.Canceled]. End does nothing if the context has
// ended.
func (v *Validity) End(cause error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end(cause)
}

// elapsed reads the clocks.
func (v *Validity) elapsed() (mono, boot time.Duration) {
	return time.Since(v.base.mono), v.boot() - v.base.boot
}

// past reads the clocks, and reports whether the end has passed. If it returns true under mu, the caller must end the
// context at once: a later reading may be up to 1 ms lower.
func (v *Validity) past() bool { return v.monoEnd.Load() != 0 && v.Remaining() <= 0 }

// over ends the context if the end has passed, and returns the cause. If an Extend came first, it returns nil.
func (v *Validity) over() error {
	if !v.past() {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.endIfPast() {
		return ErrLost
	}
	return nil
}

// endIfPast ends the context if the end has passed. It reports whether the context has ended. The caller holds mu.
func (v *Validity) endIfPast() bool {
	if v.ctx.known() != nil {
		return true
	}
	if v.past() {
		v.end(ErrLost)
		return true
	}
	return false
}

func (v *Validity) end(cause error) {
	v.ctx.End(cause)
	if v.timer != nil {
		v.timer.Stop()
	}
}

// alarm ends the context at its end, even if Err is never called. If an Extend has moved the end meanwhile, it sets the
// timer again. That happens once a TTL, even with many renewals.
func (v *Validity) alarm() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.endIfPast() {
		v.timer.Reset(v.Remaining())
	}
}
