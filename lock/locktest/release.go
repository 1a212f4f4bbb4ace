package locktest

import (
	"context"
	"errors"
	"sync"

	"github.com/signalbox-go/signalbox/lock"
)

// The context of a lock ends when the lock is released.
func releaseEndsTheContext(s *suite) {
	l := s.grant(s.locker(s.long), newKey())
	s.release(l)
	s.ends(l, s.slack, "that was released")
	if ctx := l.Context(); ctx.Err() == nil || context.Cause(ctx) != context.Canceled {
		s.Errorf("the context of a released lock: Err %v, cause %v; want the cause context.Canceled", ctx.Err(), context.Cause(ctx))
	}
}

// A lock may be released a second time. A later holder keeps it.
func releaseIsIdempotent(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	l := s.grant(a, key)
	errs := make(chan error, 8)
	var all sync.WaitGroup
	for range cap(errs) {
		all.Go(func() { errs <- l.Release(s.Context()) })
	}
	s.within(s.slack, "Release by many", all.Wait)
	close(errs)
	for err := range errs {
		if err != nil {
			s.Errorf("Release by many = %v; want nil", err)
		}
	}
	heir := s.grant(b, key)
	s.release(l)
	s.holds(heir, a, "after the lock before it was released again")
}

// Release works even if the caller's context has ended.
func releaseWorksAfterCancel(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
	ctx, cancel := context.WithCancel(s.Context())
	l := s.grantWith(ctx, a, key)
	cancel()
	if err := s.releaseWith(ctx, l); err != nil {
		s.Errorf("Release after its context ended = %v; want nil", err)
	}
	s.grant(b, key)
}

// A release that comes too late returns ErrLost each time. The lock stays with its
// holder.
func lateReleaseTouchesNobody(s *suite) {
	a, b, key := s.locker(s.short), s.locker(s.long), newKey()
	forgotten, dead := s.grant(a, newKey()), s.grant(a, key)
	s.lost(forgotten)
	heir := s.grant(b, key)
	for range 2 {
		if err := s.releaseWith(s.Context(), forgotten); !errors.Is(err, lock.ErrExpired) {
			s.Errorf("Release of a lease that has ended = %v; want ErrExpired", err)
		}
		if err := s.releaseWith(s.Context(), dead); !errors.Is(err, lock.ErrTaken) {
			s.Errorf("Release of a lock that another has = %v; want ErrTaken", err)
		}
	}
	s.saysLost(dead)
	s.holds(heir, a, "after a late release")
}
