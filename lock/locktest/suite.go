package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// A suite is shared by all subtests. It needs only a testing.TB, so that a test of this package
// can watch the subtests fail.
type suite struct {
	testing.TB
	times
	newLocker Maker
	spawn     func(*suite, order) process
}

func (s *suite) locker(ttl time.Duration) lock.Locker {
	s.Helper()
	return s.newLocker(s.TB, ttl)
}

func newKey() string { return "locktest-" + rand.Text() }

// within fails the test if f doesn't return in time. Then the test may end while f still runs.
// So f must not use the test.
func (s *suite) within(d time.Duration, what string, f func()) {
	s.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.Fatalf("%s has not returned after %v", what, d)
	}
}

// A result is the result of an Acquire.
type result struct {
	lock lock.Lock
	err  error
	at   time.Time // when Acquire returned
}

// acquiring calls Acquire in the background.
func acquiring(ctx context.Context, locker lock.Locker, key string) <-chan result {
	results := make(chan result, 1)
	go func() {
		l, err := locker.Acquire(ctx, key)
		results <- result{l, err, time.Now()}
	}()
	return results
}

// granted waits for a result that must be a lock and must come in time.
func (s *suite) granted(results <-chan result, in time.Duration, who string) (lock.Lock, time.Time) {
	s.Helper()
	timer := time.NewTimer(in)
	defer timer.Stop()
	select {
	case r := <-results:
		if r.err != nil || r.lock == nil {
			s.Fatalf("%s: Acquire = %v, %v; want a lock", who, told(r.lock), r.err)
		}
		s.tidy(r.lock)
		return r.lock, r.at
	case <-timer.C:
		s.Fatalf("%s: Acquire has not returned after %v", who, in)
		return nil, time.Time{}
	}
}

// tidy releases a lock when the test ends. So a failed test leaves none behind.
func (s *suite) tidy(l lock.Lock) {
	s.Cleanup(func() { _ = l.Release(context.Background()) })
}

// grant acquires a lock that is free or soon will be.
func (s *suite) grant(locker lock.Locker, key string) lock.Lock {
	s.Helper()
	return s.grantWith(s.Context(), locker, key)
}

func (s *suite) grantWith(ctx context.Context, locker lock.Locker, key string) lock.Lock {
	s.Helper()
	l, _ := s.granted(acquiring(ctx, locker, key), s.short+s.slack, "a lock that is free")
	return l
}

// try calls TryAcquire, which must return at once.
func (s *suite) try(ctx context.Context, locker lock.Locker, key string) (l lock.Lock, err error) {
	s.Helper()
	s.within(s.slack, "TryAcquire", func() { l, err = locker.TryAcquire(ctx, key) })
	if err == nil && l != nil {
		s.tidy(l)
	}
	return l, err
}

// refused fails the test unless the lock is held.
func (s *suite) refused(locker lock.Locker, key, when string) {
	s.Helper()
	if l, err := s.try(s.Context(), locker, key); l != nil || !errors.Is(err, lock.ErrHeld) {
		s.Errorf("%s: TryAcquire = %v, %v; want nil, ErrHeld", when, told(l), err)
	}
}

func (s *suite) release(l lock.Lock) {
	s.Helper()
	if err := s.releaseWith(s.Context(), l); err != nil {
		s.Errorf("Release = %v; want nil", err)
	}
}

func (s *suite) releaseWith(ctx context.Context, l lock.Lock) (err error) {
	s.Helper()
	s.within(s.slack, "Release", func() { err = l.Release(ctx) })
	return err
}

func (s *suite) extend(l lock.Lock) (err error) {
	s.Helper()
	s.within(s.slack, "Extend", func() { err = l.Extend(s.Context()) })
	return err
}

// holds fails the test unless l is a valid lease: according to its context, to other lockers
// and to the lock service.
func (s *suite) holds(l lock.Lock, other lock.Locker, when string) {
	s.Helper()
	if err := l.Context().Err(); err != nil {
		s.Errorf("%s: the holder's context has ended: %v, cause %v", when, err, context.Cause(l.Context()))
	}
	s.refused(other, l.Key(), when)
	if err := s.extend(l); err != nil {
		s.Errorf("%s: the holder's Extend = %v; want nil", when, err)
	}
}

// lost waits until a lease ends by itself.
func (s *suite) lost(l lock.Lock) {
	s.Helper()
	s.ends(l, s.short+s.slack, "that nobody extends")
	s.saysLost(l)
}

// ends fails the test if the lock's context isn't done in time.
func (s *suite) ends(l lock.Lock, in time.Duration, which string) {
	s.Helper()
	timer := time.NewTimer(in)
	defer timer.Stop()
	select {
	case <-l.Context().Done():
	case <-timer.C:
		s.Fatalf("the context of a lock %s is not done after %v", which, in)
	}
}

func (s *suite) saysLost(l lock.Lock) {
	s.Helper()
	if ctx := l.Context(); ctx.Err() == nil || !errors.Is(context.Cause(ctx), lock.ErrLost) {
		s.Errorf("the context of a lease that has ended: Err %v, cause %v; want the cause ErrLost", ctx.Err(), context.Cause(ctx))
	}
}

// told describes a lease for people. It prints no fields of the lease, since they may contain a
// secret value.
func told(l lock.Lease) string {
	if l == nil {
		return "no lock"
	}
	return fmt.Sprintf("the lock of %q with token %d", l.Key(), l.Token())
}
