package locktest

import (
	"errors"
	"sync"

	"github.com/signalbox-go/signalbox/lock"
)

// A held lock is refused to all, including the locker that granted it.
func oneHolder(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
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

// If many try at the same time, at most one gets the lock. The others get ErrHeld. If votes can
// be split, possibly none gets the lock.
func oneWinner(s *suite) {
	const rounds, each = 5, 8
	lockers := []lock.Locker{s.locker(s.long), s.locker(s.long), s.locker(s.long), s.locker(s.long)}
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
		s.within(s.slack, "TryAcquire by many", all.Wait)
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
		s.release(s.grant(lockers[0], key)) // nothing left behind blocks the key
	}
}

// Locks of different keys are independent, even if the names are similar.
func keysAreIndependent(s *suite) {
	a, b, key := s.locker(s.long), s.locker(s.long), newKey()
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

// An empty key is refused, with another error than a held lock.
func invalidKey(s *suite) {
	locker := s.locker(s.long)
	l, err := s.try(s.Context(), locker, "")
	if l != nil || !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld) {
		s.Errorf("TryAcquire of an empty key = %v, %v; want ErrInvalid", told(l), err)
	}
	s.within(s.slack, "Acquire", func() { l, err = locker.Acquire(s.Context(), "") })
	if l != nil || !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld) {
		s.Errorf("Acquire of an empty key = %v, %v; want ErrInvalid", told(l), err)
	}
}
