package locktest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// A waiter gets the lock when it is released, and not earlier.
func acquireWaitsForRelease(s *suite) {
	a, b := s.locker(s.long), s.locker(s.long)
	for name, other := range map[string]lock.Locker{"another locker": b, "the same locker": a} {
		key := newKey()
		l := s.grant(a, key)
		var released atomic.Bool
		early := false
		results := make(chan result, 1)
		go func() {
			l, err := other.Acquire(s.Context(), key)
			early = !released.Load()
			results <- result{lock: l, err: err}
		}()
		pause(moment / 5) // by now some of them wait; the test also works if none does
		released.Store(true)
		s.release(l)
		s.granted(results, s.slack, name)
		if early {
			s.Errorf("%s: the lock was granted before its holder released it", name)
		}
	}
}

// A holder that never releases the lock keeps it for its TTL. Its context ends before another client
// gets the lock.
func acquireWaitsForExpiry(s *suite) {
	a, b, key := s.locker(s.short), s.locker(s.short), newKey()
	dead := s.grant(a, key)
	_, at := s.granted(acquiring(s.Context(), b, key), s.short+s.slack, "a lock whose holder is dead")
	s.saysLost(dead)
	if at.Before(dead.Until()) {
		s.Errorf("the lock was granted %v before the validity of its last holder ended", dead.Until().Sub(at))
	}
}

// The end of ctx ends the wait, at any moment: while the waiter asks, sleeps, or waits behind
// another waiter of its process. The error says what was waited for and why the wait ended. Nothing
// of the waiter is left.
func acquireEndsWithItsContext(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	l := s.grant(a, key)
	why := errors.New("locktest: waited long enough")
	lockers := []lock.Locker{a, b, s.locker(s.long), a, b, s.locker(s.long), a, b}
	// On a slow machine a waiter's time may be over before the service has said that the lock is held. Then its error can't say so, and all wait again, for longer.
	for end := 3 * moment / 2; s.waitsEnd(lockers, key, why, end, end < 5*moment); {
		end *= 2
	}
	s.holds(l, b, "after the waiters left")
	s.release(l)
	s.release(s.grant(s.locker(s.long), key)) // the lock wasn't given to a waiter that has left
}

// waitsEnd has clients wait for a lock that is held, under contexts that end after about the given time, for the given cause. If one of them
// doesn't say that the lock was held, that is an error, or waitsEnd returns true if it may be tried again.
func (s *suite) waitsEnd(lockers []lock.Locker, key string, why error, end time.Duration, again bool) (unheard bool) {
	s.Helper()
	var waiters []<-chan result
	for i, locker := range lockers {
		end := end + time.Duration(i)*moment/40
		timeout, cancel := context.WithTimeoutCause(s.Context(), end, why)
		defer cancel()
		cancelled, cancelCause := context.WithCancelCause(s.Context())
		defer cancelCause(nil)
		defer time.AfterFunc(end, func() { cancelCause(why) }).Stop()
		waiters = append(waiters, acquiring(timeout, locker, key), acquiring(cancelled, locker, key))
	}
	for i, results := range waiters {
		var r result
		s.within(2*end+s.slack, "Acquire under a context that ends", func() { r = <-results })
		switch ended := r.lock == nil && errors.Is(r.err, why); {
		case ended && errors.Is(r.err, lock.ErrHeld):
		case ended && again:
			unheard = true
		default:
			s.Errorf("waiter %d: Acquire = %v, %v; want ErrHeld and the cause %q", i, told(r.lock), r.err, why)
		}
	}
	return unheard
}

// If the context has ended already, the error is its cause and nothing else.
func endedContextGivesItsCause(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	why := errors.New("locktest: ended before")
	ctx, cancel := context.WithCancelCause(s.Context())
	cancel(why)
	for name, acquire := range map[string]func(context.Context, string) (lock.Lock, error){
		"Acquire": a.Acquire, "TryAcquire": a.TryAcquire,
	} {
		var l lock.Lock
		var err error
		s.within(s.slack, name, func() { l, err = acquire(ctx, key) })
		if l != nil || !errors.Is(err, why) || errors.Is(err, lock.ErrHeld) {
			s.Errorf("%s with a context that has ended = %v, %v; want its cause %q", name, told(l), err, why)
		}
	}
	s.release(s.grant(b, key))
}

// pause waits where there is no signal to wait for.
func pause(d time.Duration) { <-time.After(d) }
