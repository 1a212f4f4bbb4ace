package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// The validity ends in the future, and not later than the TTL allows.
func untilIsWithinTheTTL(s *suite) {
	l := s.grant(s.locker(s.long), newKey())
	s.untilFits(l, "when granted")
	first := l.Until()
	pause(time.Millisecond) // otherwise the clock may not have advanced
	if err := s.extend(l); err != nil {
		s.Fatalf("Extend = %v; want nil", err)
	}
	s.untilFits(l, "when extended")
	if !l.Until().After(first) {
		s.Errorf("Extend moved Until by %v", l.Until().Sub(first))
	}
}

func (s *suite) untilFits(l lock.Lock, when string) {
	s.Helper()
	if left := time.Until(l.Until()); left <= 0 || left > s.long {
		s.Errorf("%s: Until is in %v; want from 0 to the TTL of %v", when, left, s.long)
	}
}

// The context lasts as long as the validity. Its Err reports the end without a timer, and Done
// is closed soon after.
func contextEndsBeforeTheTTL(s *suite) {
	l := s.grant(s.locker(s.short), newKey())
	ctx, until := l.Context(), l.Until()
	pause(time.Until(until) / 2)
	if err := ctx.Err(); err != nil && time.Now().Before(until) {
		s.Errorf("the context ended before the validity did: %v", err)
	}
	pause(time.Until(until) + time.Nanosecond)
	if ctx.Err() == nil {
		s.Errorf("the context lasts %v after the validity ended", time.Since(until))
	}
	s.lost(l)
}

// The context that is passed to Acquire doesn't bound the holding.
func contextOutlivesThatOfAcquire(s *suite) {
	a, b := s.locker(s.long), s.locker(s.long)
	ctx, cancel := context.WithCancel(s.Context())
	acquired := s.grantWith(ctx, a, newKey())
	tried, err := s.try(ctx, a, newKey())
	if err != nil || tried == nil {
		s.Fatalf("TryAcquire = %v, %v; want a lock", told(tried), err)
	}
	cancel()
	s.holds(acquired, b, "after the context of Acquire ended")
	s.holds(tried, b, "after the context of TryAcquire ended")
}

// The values of that context, such as a trace, are available while the lock is held.
func contextKeepsValues(s *suite) {
	type name struct{}
	locker, ctx := s.locker(s.long), context.WithValue(s.Context(), name{}, "value")
	acquired := s.grantWith(ctx, locker, newKey())
	tried, err := s.try(ctx, locker, newKey())
	if err != nil || tried == nil {
		s.Fatalf("TryAcquire = %v, %v; want a lock", told(tried), err)
	}
	for what, l := range map[string]lock.Lock{"Acquire": acquired, "TryAcquire": tried} {
		if v := l.Context().Value(name{}); v != "value" {
			s.Errorf("the context of a lock of %s lacks a value of the one it was acquired with: %v", what, v)
		}
	}
}

// A lock that is extended outlives its TTL.
func extendKeepsTheLock(s *suite) {
	a, b, key := s.locker(s.extended), s.locker(s.extended), newKey()
	l := s.grant(a, key)
	for end := time.Now().Add(s.extended * 6 / 5); time.Now().Before(end); {
		pause(s.extended / 5)
		s.holds(l, b, "while it is extended")
	}
	s.release(l)
}

// A lease that has ended can't be extended, and the attempt keeps nobody out.
func extendNeverResurrects(s *suite) {
	a, b, key := s.locker(s.short), s.locker(s.long), newKey()
	dead := s.grant(a, key)
	s.lost(dead)
	ctx, cancel := context.WithTimeout(s.Context(), s.slack)
	defer cancel()
	results := acquiring(ctx, b, key)
	var heir result
	for heir.at.IsZero() {
		s.refusesToExtend(dead)
		select {
		case heir = <-results:
		case <-time.After(moment / 20):
		}
	}
	if heir.err != nil || heir.lock == nil {
		s.Fatalf("Acquire while a lost lock is extended = %v, %v; want a lock", told(heir.lock), heir.err)
	}
	s.tidy(heir.lock)
	s.refusesToExtend(dead)
	s.saysLost(dead)
	s.holds(heir.lock, a, "after a lost lock was extended")
}

// A lock that was released can't be extended.
func extendAfterRelease(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	old := s.grant(a, key)
	s.release(old)
	s.refusesToExtend(old)
	heir := s.grant(b, key)
	s.refusesToExtend(old)
	s.holds(heir, a, "after a released lock was extended")
}

func (s *suite) refusesToExtend(l lock.Lock) {
	s.Helper()
	if err := s.extend(l); !errors.Is(err, lock.ErrLost) {
		s.Errorf("Extend of a lease that has ended = %v; want ErrLost", err)
	}
}
