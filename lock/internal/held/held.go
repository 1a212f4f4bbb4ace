// Package held has what all locks share, whichever service grants them: how a lock is extended, how it ends, and the
// metrics of that. A locker's own lock embeds a [Lock] and is its [Service].
package held

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// A Service talks to the lock service for one lock.
type Service interface {
	// Renew asks for a whole TTL from now. If the lock is lost, the error wraps [lease.ErrLost].
	Renew(ctx context.Context) error
	// GiveUp gives the lock up, or keeps it held until keep if that is not zero. Only one goroutine calls
	// it at a time. It is called again after an error that doesn't wrap [lease.ErrLost].
	GiveUp(ctx context.Context, keep time.Time) error
}

// A Lock is the state of one lock.
type Lock struct {
	TTL      time.Duration
	MinHold  time.Duration
	Validity *lease.Validity

	token   int64
	since   time.Time                         // when it was granted
	holding atomic.Pointer[telemetry.Holding] // a renewal may come before it is set

	mu       sync.Mutex
	giving   *giving // the release that is under way
	early    bool    // MinHold doesn't count any more
	released bool    // ReleaseBy was called, and the context has ended
	lost     error   // how the lease had ended before that
	done     bool    // the service has answered the release
}

// A giving is one call of [Service.GiveUp], for all who release the lock meanwhile.
type giving struct {
	done chan struct{} // closed when err is set
	err  error         // what the releases return
}

// Token returns the fencing token.
func (l *Lock) Token() int64 { return l.token }

// Until returns when the validity ends.
func (l *Lock) Until() time.Time { return l.Validity.Until() }

// Context returns the context of the validity.
func (l *Lock) Context() context.Context { return l.Validity.Context() }

// Grant notes that the lock was granted now, with this token.
func (l *Lock) Grant(token int64) { l.token, l.since = token, time.Now() }

// Asked notes the outcome of an acquire in metrics and traces. After an error the validity ends.
func (l *Lock) Asked(asking telemetry.Acquire, metrics *telemetry.LockMetrics, err error) {
	if err == nil {
		asking.End(telemetry.LockAcquired, l.token, nil)
		l.holding.Store(metrics.Hold(l.Validity.Context(), HowLost))
		return
	}
	if l.Validity != nil {
		l.Validity.End(err)
	}
	outcome := telemetry.LockFailed
	if errors.Is(err, spec.ErrHeld) {
		outcome = telemetry.LockHeld
	}
	asking.End(outcome, 0, err)
}

// ExtendBy renews the lease for the TTL from now. A lost lock is never resurrected.
func (l *Lock) ExtendBy(ctx context.Context, s Service) error {
	if l.Validity.Err() != nil {
		return lease.ErrLost
	}
	if ctx.Err() != nil {
		return lease.Ended(ctx)
	}
	start := lease.Now()
	err := s.Renew(ctx)
	if errors.Is(err, lease.ErrLost) {
		l.Validity.End(err)
	} else if err == nil && !l.Validity.Extend(start, l.TTL) {
		err = lease.ErrExpired
	}
	if err == nil {
		l.holding.Load().Renewed()
	}
	return err
}

// ReleaseBy ends the lease, and has the service give the lock up. If another release is under way, it waits for that one, and returns
// its result. Once the service has answered, each later call returns that answer and asks no more.
func (l *Lock) ReleaseBy(ctx context.Context, s Service) error {
	g, first, keep := l.releasing()
	if !first {
		<-g.done
		return g.err
	}
	answered := false
	defer func() {
		if !answered { // the service panics: the others must not wait for ever
			l.gaveUp(g, errors.New("lock: the release has ended by a panic"))
		}
	}()
	err := s.GiveUp(ctx, keep)
	answered = true
	l.holding.Load().Lost(HowLost(err))
	return l.gaveUp(g, err)
}

// releasing begins a release. first says that the caller has to ask the service, and to keep the lock until keep.
// Otherwise g is under way, or it is done.
func (l *Lock) releasing() (g *giving, first bool, keep time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.released {
		l.released = true
		if l.Validity.Err() != nil {
			l.lost = lease.ErrExpired // unless the service says more
		} else {
			l.holding.Load().Released()
		}
		l.Validity.End(context.Canceled) // no work starts under the lock from here on
	}
	if l.giving != nil {
		return l.giving, false, keep
	}
	g = &giving{done: make(chan struct{})}
	if l.done {
		g.err = l.lost
		close(g.done)
		return g, false, keep
	}
	l.giving = g
	if l.MinHold > 0 && !l.early {
		keep = l.since.Add(l.MinHold)
	}
	return g, true, keep
}

// gaveUp notes how a release has ended, and returns what it returns.
func (l *Lock) gaveUp(g *giving, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.done = true
	case errors.Is(err, lease.ErrLost):
		l.done, l.lost = true, err
	}
	if g.err = l.lost; g.err == nil {
		g.err = err
	}
	l.giving = nil
	close(g.done)
	return g.err
}

// Earlier is for a service that says that the lock is lost, as err, after a release whose reply was lost. It returns nil
// if the lease can't have ended by itself yet: so that release freed the lock, and another may have it since. Otherwise
// nobody knows, and it returns err.
func (l *Lock) Earlier(err error) error {
	if l.Validity.Remaining() > 0 {
		return nil
	}
	return err
}

// DropMinHold makes the next release free the lock at once.
func (l *Lock) DropMinHold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.early = true
}

// HowLost returns how a lock was lost, by the cause that ended its validity. It returns "" if it was not lost.
func HowLost(cause error) string {
	switch {
	case errors.Is(cause, lease.ErrTaken):
		return telemetry.LostTaken
	case errors.Is(cause, lease.ErrLost):
		return telemetry.LostExpired
	}
	return ""
}
