package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Validity is the time for which a lease is promised, as a [context.Context] that ends
// with it. It is safe for concurrent use and starts no goroutine.
//
// It begins with no promise: [Validity.Extend] makes it valid and moves its end.
// It ends once and for good: by the clock, with its parent, or by [Validity.End].
type Validity struct {
	ctx  Context // what ends
	boot func() time.Duration
	base Instant

	// The end on each clock, in ns since base; 0 before the first Extend. The two are
	// not read as one: each is a bound by itself, and an older one is only stricter.
	monoEnd, bootEnd atomic.Int64

	mu    sync.Mutex // orders Extend against the end by the clock
	timer *time.Timer
}

// NewValidity returns a validity that has no promise yet. Its context has the values of
// parent and ends with it.
func NewValidity(parent context.Context) *Validity { return newValidity(parent, boottime, Now()) }

// NewValidityAt is NewValidity by a caller that has read the clocks a moment ago.
func NewValidityAt(parent context.Context, now Instant) *Validity {
	return newValidity(parent, boottime, now)
}

func newValidity(parent context.Context, boot func() time.Duration, base Instant) *Validity {
	v := &Validity{boot: boot, base: base}
	v.ctx.Begin(parent)
	v.ctx.beside = v
	return v
}

// Extend promises validity until start + ttl - (ttl*0.01 + 2ms): the Redlock
// recipe's allowance for clocks that run at different speeds. start is the moment
// before the lease was asked for. The end only moves forward.
//
// It returns false and changes nothing if the validity has ended (it is never
// resurrected; [Validity.Err] tells), or if the new end has passed already.
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
	if v.timer == nil { // else it is set for an earlier end, and then set again
		v.timer = time.AfterFunc(min(mono-monoNow, boot-bootNow), v.alarm)
	}
	return true
}

// Context ends with cause [ErrLost] when the validity is over. It is a [Context], whose Err reads the clocks. After a suspend
// of the machine, Done may be closed later by the time that it slept, if nobody asks Err. It has no Deadline, since the end moves.
//
// A context derived from it with [context.WithValue] reads the clocks as well. One from
// context.WithCancel or WithTimeout doesn't: ask its parent first.
func (v *Validity) Context() context.Context { return &v.ctx }

// Err is nil while the validity lasts and the error of its context after that. It reads
// the clocks.
func (v *Validity) Err() error { return v.ctx.Err() }

// Until is when the validity ends, on the monotonic clock. It is the zero time before
// the first Extend.
func (v *Validity) Until() time.Time {
	end := v.monoEnd.Load()
	if end == 0 {
		return time.Time{}
	}
	return v.base.mono.Add(time.Duration(end))
}

// Remaining is the time left by the clocks. It is 0 or less before the first Extend and
// after the end by the clock; an earlier end by End or the parent doesn't change it.
func (v *Validity) Remaining() time.Duration {
	mono, boot := v.elapsed()
	return min(time.Duration(v.monoEnd.Load())-mono, time.Duration(v.bootEnd.Load())-boot)
}

// End ends the context with this cause, [context.Canceled] if it is nil. It does nothing
// if the context has ended.
func (v *Validity) End(cause error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end(cause)
}

// elapsed reads the clocks.
func (v *Validity) elapsed() (mono, boot time.Duration) {
	return time.Since(v.base.mono), v.boot() - v.base.boot
}

// past reads the clocks. If it is true under mu, the caller ends the context at once: a later reading may be up to 1 ms lower.
func (v *Validity) past() bool { return v.monoEnd.Load() != 0 && v.Remaining() <= 0 }

// over ends the context if its time is over, unless an Extend came first.
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

// endIfPast reports whether the context has ended, and ends it if its time is over. mu is held.
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

// alarm ends the context at its time though nobody asks. If an Extend has moved the end
// meanwhile, the timer is set again: once a TTL, however often the lease is renewed.
func (v *Validity) alarm() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.endIfPast() {
		v.timer.Reset(v.Remaining())
	}
}
