package locktest

import (
	"strings"

	"github.com/signalbox-go/signalbox/lock"
)

// Each grant of a key has a larger token than all earlier grants to anyone.
func tokensGrow(s *suite) {
	lockers := []lock.Locker{s.locker(s.long), s.locker(s.long), s.locker(s.long)}
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
	a, b, key := s.locker(s.short), s.locker(s.long), newKey()
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

// The tokens of a key come from one issuer. Each grant has a holder of its own.
func originOfTokens(s *suite) {
	lockers, key := []lock.Locker{s.locker(s.long), s.locker(s.long)}, newKey()
	issuers, holders := map[string]bool{}, map[string]bool{}
	const grants = 6
	for i := range grants {
		l := s.grant(lockers[i/2%2], key)
		o, ok := l.(lock.Origin)
		if !ok {
			s.Fatalf("a %T is not a lock.Origin", l)
		}
		issuer, holder := o.Issuer(), o.Holder()
		if !printable(issuer, 64) || !printable(holder, 255) {
			s.Errorf("Issuer = %q, Holder = %q; want 1 to 64 and 1 to 255 bytes of printable ASCII", issuer, holder)
		}
		if err := s.extend(l); err != nil {
			s.Errorf("Extend = %v; want nil", err)
		}
		if o.Issuer() != issuer || o.Holder() != holder {
			s.Errorf("Extend changed the origin from %q, %q to %q, %q", issuer, holder, o.Issuer(), o.Holder())
		}
		issuers[issuer], holders[holder] = true, true
		s.release(l)
	}
	if len(issuers) != 1 || len(holders) != grants {
		s.Errorf("%d grants had %d issuers and %d holders; want 1 and %d", grants, len(issuers), len(holders), grants)
	}
}

func printable(name string, most int) bool {
	return name != "" && len(name) <= most && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' })
}
