package locktest

import "github.com/signalbox-go/signalbox/lock"

// Each grant of a key has a larger token than all earlier grants to anyone.
func tokensGrow(s *suite) {
	lockers := []lock.Locker{s.locker(longTTL), s.locker(longTTL), s.locker(longTTL)}
	key, last := newKey(), int64(0)
	for i := range 12 {
		l := s.grant(lockers[i%len(lockers)], key)
		last = s.larger(l, last)
		if i%2 == 0 {
			if err := s.extend(l); err != nil {
				s.Errorf("Extend = %v; want nil", err)
			}
			if l.Token() != last {
				s.Errorf("Extend changed the token from %d to %d", last, l.Token())
			}
		}
		s.release(l)
	}
}

// Tokens also grow if leases end by themselves, or are released too late.
func tokensGrowAfterExpiry(s *suite) {
	a, b, key := s.locker(shortTTL), s.locker(longTTL), newKey()
	dead := s.grant(a, key)
	last := s.larger(dead, 0)
	heir := s.grant(b, key)
	last = s.larger(heir, last)
	_ = s.releaseWith(s.Context(), dead)
	s.release(heir)
	s.larger(s.grant(a, key), last)
}

// larger returns the token of l, which must be larger than the last.
func (s *suite) larger(l lock.Lock, last int64) int64 {
	s.Helper()
	if l.Token() <= last {
		s.Errorf("token %d was granted after %d", l.Token(), last)
	}
	return l.Token()
}
