package etcdlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

func TestQueueOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"report:2024-05":      "p/report:2024-05//",
		"/l/a":                "p/%2Fl%2Fa//",
		"a b%\x00é":           "p/a%20b%25%00%C3%A9//",
		"..":                  "p/..//",
		"a//b":                "p/a%2F%2Fb//",
		"":                    "",
		longKey(maxKey):       "p/" + longKey(maxKey) + "//",
		longKey(maxKey) + "a": "",
	} {
		got, err := queueOf("p/", key)
		if got != want || (want == "") != errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%.20q: %q, %v; want %q", key, got, err, want)
		}
	}
}

func longKey(n int) string { return strings.Repeat("k", n) }

// No name is in the queues of two keys, nor in those of two prefixes.
func FuzzQueueOf(f *testing.F) {
	for _, s := range [][2]string{{"a", "a/b"}, {"/l/a", "/l/a/b"}, {"a", "a//b"}, {"a%", "a%2F"}, {"é", "e"}, {"..", "."}, {"a", "ab"}, {"b/c", "c"}} {
		f.Add(s[0], s[1])
	}
	prefixes := []string{"a/", "a/b/", "/", "ab/", "signalbox/lock/"}
	f.Fuzz(func(t *testing.T, one, other string) {
		for _, p := range prefixes {
			for _, q := range prefixes {
				a, errA := queueOf(p, one)
				b, errB := queueOf(q, other)
				if errA != nil || errB != nil || p == q && one == other {
					continue
				}
				if strings.HasPrefix(a, b) || strings.HasPrefix(b, a) {
					t.Errorf("the queues of %q, %q and %q, %q meet: %q and %q", p, one, q, other, a, b)
				}
			}
		}
	})
}

// A lock doesn't wait for one whose key begins with its own.
func TestKeysBelowOthers(t *testing.T) {
	t.Parallel()
	r := lockerOn(t, time.Minute, sharedEtcd(t).Addr())
	base := newKey()
	for _, key := range []string{base + "/l/a/b", base + "/l/a", base + "/l", base, base + "/..", base + "/l/", base + "%2Fl", base + "/l/a/é\x00\xff"} {
		l, err := r.TryAcquire(t.Context(), key)
		if err != nil {
			t.Errorf("%q: %v", key, err)
			continue
		}
		if l.Key() != key {
			t.Errorf("Key is %q; want %q", l.Key(), key)
		}
		refused(t, r, key)
		defer release(t, l)
	}
}

// Lockers with different prefixes don't exclude each other.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	client := dial(t, nil, sharedEtcd(t).Addr())
	base := newKey() + "/"
	for _, prefix := range []string{base, base + "a/", base + "a/b/"} {
		for _, key := range []string{"a", "b", "a/b"} {
			l, err := newLocker(t, client, Config{Prefix: prefix}).TryAcquire(t.Context(), key)
			if err != nil {
				t.Errorf("%s, %s: %v", prefix, key, err)
				continue
			}
			defer release(t, l)
		}
	}
}
