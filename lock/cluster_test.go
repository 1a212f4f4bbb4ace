package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The lock and its counter are in one slot, whatever the key, and every key is declared.
func TestCluster(t *testing.T) {
	t.Parallel()
	locker := newRedis(redistest.Cluster(t).Client())
	for _, key := range []string{"a", "c{d}", "{e}f", "{g}{h}", "i j", "k:l", "n{{o}}"} {
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

// The slot of a lock moves to another master while the lock is held, renewed and waited for, key by key. The holder
// keeps it. Then each waiter gets it in turn, with a larger token.
func TestLockWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	c, key := redistest.Cluster(t), redistest.Name(t)
	p, rdb := placeOf(t, key), c.Client()
	held := acquire(t, newRedis(c.Client()), key)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got := make(chan granted, 4)
	for i := range 2 {
		process := newRedis(c.Client())
		for range 2 {
			go func() {
				l, err := process.Acquire(ctx, key)
				got <- granted{l, err}
			}()
		}
		inLine(t, rdb, key, int64(i+1))
		inLocalLine(t, process, key, 2)
	}

	var (
		renewals  atomic.Int64
		renewing  sync.WaitGroup
		renew, no = context.WithCancel(ctx)
	)
	defer no()
	renewing.Go(func() {
		for renew.Err() == nil && !t.Failed() {
			if err := held.Extend(ctx); err != nil {
				t.Error(err)
			}
			renewals.Add(1)
		}
	})
	renewed := func(when string) {
		t.Helper()
		want := renewals.Load() + 2 // the first of them began before
		redistest.Eventually(t, func() bool { return renewals.Load() >= want || t.Failed() }, "it is renewed %s", when)
	}

	renewed("before")
	m := c.BeginMigration(t, key)
	renewed("when the slot begins to move")
	m.Move(t, p.fence)
	tried := make(chan error, 1)
	go func() {
		_, err := newRedis(c.Client()).TryAcquire(ctx, key)
		tried <- err
	}()
	redistest.Eventually(t, func() bool { return m.Answered(t, "TRYAGAIN") > 0 }, "a call meets a lock that moved in part")
	m.Move(t, p.lock)
	m.Move(t, p.line)
	if err := <-tried; !errors.Is(err, ErrHeld) {
		t.Errorf("one that asked meanwhile: %v", err)
	}
	renewed("when its keys have moved")
	m.End(t)
	renewed("after")
	for _, prefix := range []string{"ASK", "MOVED"} {
		if m.Answered(t, prefix) == 0 {
			t.Errorf("nobody was answered %s: nothing was tested", prefix)
		}
	}

	no()
	renewing.Wait()
	last := held
	for range 4 {
		release(t, last)
		l := (<-got).must(t)
		if l.Token() <= last.Token() {
			t.Errorf("token %d after %d", l.Token(), last.Token())
		}
		last = l
	}
	release(t, last)
}

// After a failover locks are granted again, with tokens that go on.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	s := redistest.Sentinel(t)
	locker := newRedis(s.Client())
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
