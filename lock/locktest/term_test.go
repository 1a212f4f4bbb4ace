package locktest

import (
	"context"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// A term is the context of a lock, made with the standard library alone. A [lock.Locker] of another project needs no
// more. It ends with cause [lock.ErrLost] at an end that can be moved. Its Err reads the clock. So Err is right
// after a pause of the process. Until the first extend it has no end.
type term struct {
	context.Context // ends
	cancel          context.CancelCauseFunc

	mu    sync.Mutex
	until time.Time
	timer *time.Timer
}

func newTerm(parent context.Context) *term {
	t := &term{}
	t.Context, t.cancel = context.WithCancelCause(parent)
	return t
}

func (t *term) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err()
}

func (t *term) err() error {
	if !t.until.IsZero() && !time.Now().Before(t.until) {
		t.cancel(lock.ErrLost)
	}
	return t.Context.Err()
}

// extend moves the end to the TTL after start, minus an allowance for different clocks. It returns false if the term
// is over.
func (t *term) extend(start time.Time, ttl time.Duration) bool {
	until := start.Add(ttl - ttl/100 - 2*time.Millisecond)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err() != nil {
		return false
	}
	if until.After(t.until) {
		t.until = until
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = time.AfterFunc(time.Until(t.until), func() { _ = t.Err() })
	return true
}

func (t *term) end() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.until
}
