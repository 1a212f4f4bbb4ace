package locktest

import (
	"errors"
	"slices"
	"strings"

	"github.com/signalbox-go/signalbox/lock"
)

// kindsOfKeys returns keys that every locker must take. To some lock services, or to their command lines, parts of
// them mean something.
func kindsOfKeys(p string) []string {
	return []string{
		p, p + "/", p + "/a", p + "/a/b", p + "//a", "/" + p, "../" + p, p + "/..", p + "/../a", p + "/.", p + "/...",
		p + "A", p + "a", // they differ in case only
		p + " ", " " + p, p + "%", p + "%2F", p + "%2Fa", p + "_", p + "-", p + ":", p + ".", p + "*", p + "?", p + "#", p + "\\", p + "'", p + "\"", p + "$1", p + "=", p + "+",
		p + "\u00e9", p + "e\u0301", // they look alike
		p + "\u6f22\u5b57", p + "\U0001f512", p + "\u00df", p + "ss",
		p + strings.Repeat("k", 200-len(p)), p + strings.Repeat("k", 199-len(p)),
	}
}

// keysThatSomeRefuse returns keys that a locker may refuse.
func keysThatSomeRefuse(p string) []string {
	return []string{
		p + "{", p + "}", p + "{}", p + "{a", "{" + p + "}", p + "{" + p + "}", p + ":fence", p + ":wait", p + ":fence:wait",
		p + "\x00", p + "\x00a", p + "\n", p + "\r\n", p + "\t", p + "\x7f", p + "\u0085", p + "\xff", "\xc3" + p, p + "\xed\xa0\x80",
		p + strings.Repeat("k", 1000), p + strings.Repeat("k", 10000), p + strings.Repeat("k", 10000) + "a",
	}
}

// Any usual key can be locked, whatever its characters. All of them are held at the same time, and others are refused
// each.
func keysOfAllKinds(s *suite) {
	s.locksAll(kindsOfKeys(newKey()))
}

func (s *suite) locksAll(keys []string) {
	s.Helper()
	a, b := s.locker(s.long), s.locker(s.long)
	for range 2 {
		held := make([]lock.Lock, len(keys))
		for i, key := range keys {
			held[i] = s.grant(a, key)
			if held[i].Key() != key {
				s.Errorf("Key = %q; want %q", held[i].Key(), key)
			}
		}
		for i, l := range held {
			if i%2 == 0 {
				s.release(l)
				held[i] = s.grant(b, keys[i])
			}
		}
		for i, l := range held {
			s.holds(l, []lock.Locker{a, b}[i%2], "while locks of other keys are held")
		}
		for _, l := range held {
			s.release(l)
		}
		slices.Reverse(keys) // a key may block those that are like it, but longer, or shorter
	}
}

// Any other key can be locked as well, or is refused with ErrInvalid.
func keysThatMayBeRefused(s *suite) {
	locker, other := s.locker(s.long), s.locker(s.long)
	var taken []string
	for _, key := range keysThatSomeRefuse(newKey()) {
		l, err := s.try(s.Context(), locker, key)
		switch {
		case err == nil && l != nil:
			s.release(l)
			taken = append(taken, key)
			continue
		case l != nil || !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld):
			s.Errorf("TryAcquire(%.250q) = %v, %v; want a lock or ErrInvalid", key, told(l), err)
			continue
		}
		s.within(s.slack, "Acquire", func() { l, err = other.Acquire(s.Context(), key) })
		if l != nil || !errors.Is(err, lock.ErrInvalid) {
			s.Errorf("Acquire(%.250q), which TryAcquire refused, = %v, %v; want ErrInvalid", key, told(l), err)
		}
	}
	s.locksAll(taken)
}
