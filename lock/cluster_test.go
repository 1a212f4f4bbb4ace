package lock

import (
	"context"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The lock and its counter are in one slot, whatever the key, and every key is declared.
func TestCluster(t *testing.T) {
	t.Parallel()
	locker := New(redistest.Cluster(t).Client())
	for _, key := range []string{"a", "b{", "c{d}", "{e}f", "{g}{h}", "i j", "k:l", "{m", "n{{o}}"} {
		last := int64(0)
		for range 2 {
			err := Do(t.Context(), locker, key, func(ctx context.Context) error {
				lease, _ := FromContext(ctx)
				if lease.Token() <= last {
					t.Errorf("%q: token %d after %d", key, lease.Token(), last)
				}
				last = lease.Token()
				return lease.(Lock).Extend(ctx)
			})
			if err != nil {
				t.Errorf("%q: %v", key, err)
			}
		}
	}
}

// After a failover locks are granted again, with tokens that go on.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	locker := New(s.Client())
	before := acquire(t, locker, "key")
	release(t, before)
	s.Failover(t)
	var after Lock
	redistest.Eventually(t, func() (ok bool) {
		l, err := locker.TryAcquire(t.Context(), "key")
		after, ok = l, err == nil
		return ok
	}, "a lock is granted")
	if after.Token() <= before.Token() {
		t.Errorf("token %d after %d", after.Token(), before.Token())
	}
	release(t, after)
}
