package locktest

import (
	"errors"
	"sync"

	"github.com/signalbox-go/signalbox/lock"
)

// A lock that is held is refused to all, also to the locker that granted it.
func oneHolder(s *suite) {
	a, b, key := s.locker(longTTL), s.locker(longTTL), newKey()
	first := s.grant(a, key)
	if first.Key() != key {
		s.Errorf("Key = %q; want %q", first.Key(), key)
	}
	s.refused(b, key, "while another locker's lock is held")
	s.refused(a, key, "while the same locker's lock is held")
	s.release(first)
	second := s.grant(b, key)
	s.refused(a, key, "after the lock changed hands")
	s.holds(second, a, "after the lock changed hands")
}

// Of many who try at the same time at most one gets in, and the others are told that it is held.
// Where votes can be split there may be none.
func oneWinner(s *suite) {
	const rounds, each = 5, 8
	lockers := []lock.Locker{s.locker(longTTL), s.locker(longTTL), s.locker(longTTL), s.locker(longTTL)}
	for range rounds {
		key, start := newKey(), make(chan struct{})
		results := make(chan result, len(lockers)*each)
		var all sync.WaitGroup
		for _, locker := range lockers {
			for range each {
				all.Go(func() {
					<-start
					l, err := locker.TryAcquire(s.Context(), key)
					results <- result{lock: l, err: err}
				})
			}
		}
		close(start)
		s.within(slack, "TryAcquire by many", all.Wait)
		close(results)
		var won []lock.Lock
		for r := range results {
			switch {
			case r.err == nil && r.lock != nil:
				s.tidy(r.lock)
				won = append(won, r.lock)
			case !errors.Is(r.err, lock.ErrHeld) || r.lock != nil:
				s.Errorf("TryAcquire of one among many = %v, %v; want a lock or ErrHeld", told(r.lock), r.err)
			}
		}
		if len(won) > 1 {
			s.Errorf("%d hold the lock at the same time", len(won))
		}
		for _, l := range won {
			s.release(l)
		}
		s.release(s.grant(lockers[0], key)) // nobody's remains are in the way
	}
}

// The lock of one key is none of another, though the names are alike.
func keysAreIndependent(s *suite) {
	a, b, key := s.locker(longTTL), s.locker(longTTL), newKey()
	first := s.grant(a, key)
	for _, other := range []string{newKey(), key + "-", key[:len(key)-1]} {
		l, err := s.try(s.Context(), b, other)
		if err != nil || l == nil {
			s.Errorf("TryAcquire of another key = %v, %v; want a lock", told(l), err)
			continue
		}
		s.release(l)
	}
	s.holds(first, b, "after locks of other keys were released")
}

// An empty key is no key, which is something else than a lock that is held.
func invalidKey(s *suite) {
	locker := s.locker(longTTL)
	l, err := s.try(s.Context(), locker, "")
	if l != nil || !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld) {
		s.Errorf("TryAcquire of an empty key = %v, %v; want ErrInvalid", told(l), err)
	}
	s.within(slack, "Acquire", func() { l, err = locker.Acquire(s.Context(), "") })
	if l != nil || !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld) {
		s.Errorf("Acquire of an empty key = %v, %v; want ErrInvalid", told(l), err)
	}
}
