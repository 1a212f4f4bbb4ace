package lock_test

import (
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// Each lock names its issuer, which its locker never changes, and a holder of its own. Each key of several at once is named.
func TestOrigin(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	nodes := masters(t, 3)
	for issuer, locker := range map[string]lock.Locker{
		"redis":   newRedis(rdb, lock.Config{}),
		"redlock": redlockOn(t, nodes, redlock.Config{}),
	} {
		key, holders := redistest.Name(t), map[string]bool{}
		for range 3 {
			l, err := locker.Acquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			o, ok := l.(lock.Origin)
			if !ok || o.Issuer() != issuer || o.Holder() == "" || holders[o.Holder()] {
				t.Fatalf("%s: %T is an Origin %v: %q, %q", issuer, l, ok, o.Issuer(), o.Holder())
			}
			holders[o.Holder()] = true
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	a, b := redistest.Name(t)+"-a", redistest.Name(t)+"-b"
	l, err := newRedis(rdb, lock.Config{}).AcquireAll(t.Context(), b, a)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release(t.Context())
	if keys := l.(interface{ Keys() []string }).Keys(); len(keys) != 2 || keys[0] != min(a, b) || keys[1] != max(a, b) {
		t.Errorf("its keys are %q", keys)
	}
}
