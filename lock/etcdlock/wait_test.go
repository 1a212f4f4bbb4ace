package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// Waiters of all processes get the lock in the order of their coming. The end of a lock wakes only the next.
func TestWaitersGetItInOrder(t *testing.T) {
	t.Parallel()
	addr, key := sharedEtcd(t).Addr(), newKey()
	see := dial(t, nil, addr)
	first := acquire(t, lockerOn(t, time.Minute, addr), key)
	last := first
	var taps []*tap
	var waiters []<-chan result
	for i := range 5 {
		tap := newTap()
		taps = append(taps, tap)
		waiters = append(waiters, waiting(t.Context(), t, newLocker(t, dial(t, tap.options(), addr), Config{TTL: time.Minute}), see, key, int64(i+1)))
		eventually(t, func() bool { return tap.seen(methodWatch) > 0 }, "the waiter watches")
	}
	for i, results := range waiters {
		for _, tap := range taps {
			tap.calls()
		}
		release(t, last)
		next := granted(t, results)
		if next.Token() <= last.Token() {
			t.Errorf("token %d after %d", next.Token(), last.Token())
		}
		for j, tap := range taps[i+1:] {
			if n, by := tap.calls(); n != 0 {
				t.Errorf("waiter %d got the lock, and waiter %d called etcd: %v", i, i+1+j, by)
			}
		}
		last = next
	}
	release(t, last)
}

// A waiter calls etcd for nothing but the renewal of its lease, once in a third of the TTL.
func TestIdleWaitersMakeNoCalls(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	see := dial(t, nil, addr)
	for _, c := range []struct {
		ttl, pause time.Duration
		atMost     int
	}{{time.Minute, 500 * time.Millisecond, 0}, {2 * time.Second, 2 * time.Second, 3}} {
		key, tap := newKey(), newTap()
		held := acquire(t, lockerOn(t, time.Minute, addr), key)
		results := waiting(t.Context(), t, newLocker(t, dial(t, tap.options(), addr), Config{TTL: c.ttl}), see, key, 1)
		eventually(t, func() bool { return tap.seen(methodWatch) > 0 }, "the waiter watches")
		tap.calls()
		<-time.After(c.pause)
		if n, by := tap.calls(); n > c.atMost || n != by[methodKeep] {
			t.Errorf("in %v a waiter with a TTL of %v made the calls %v; want at most %d of %s", c.pause, c.ttl, by, c.atMost, methodKeep)
		}
		release(t, held)
		release(t, granted(t, results))
	}
}

// A waiter that outlives its TTL keeps its place.
func TestWaiterOutlivesItsTTL(t *testing.T) {
	t.Parallel()
	addr, key := sharedEtcd(t).Addr(), newKey()
	see := dial(t, nil, addr)
	held := acquire(t, lockerOn(t, time.Minute, addr), key)
	first := waiting(t.Context(), t, lockerOn(t, 2*time.Second, addr), see, key, 1)
	second := waiting(t.Context(), t, lockerOn(t, time.Minute, addr), see, key, 2)
	<-time.After(5 * time.Second) // its lease, and the half second in which etcd looks for ended ones
	release(t, held)
	next := granted(t, first)
	if left := time.Until(next.Until()); left < time.Second/2 {
		t.Errorf("it was granted with a validity of %v", left)
	}
	release(t, next)
	release(t, granted(t, second))
}

// A waiter that gives up deletes its place. One that stood behind it waits on for the holder.
func TestCancelledWaiterLeavesItsPlace(t *testing.T) {
	t.Parallel()
	addr, key := sharedEtcd(t).Addr(), newKey()
	see := dial(t, nil, addr)
	held := acquire(t, lockerOn(t, time.Minute, addr), key)
	why := errors.New("waited long enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	first := waiting(ctx, t, lockerOn(t, time.Minute, addr), see, key, 1)
	second := waiting(t.Context(), t, lockerOn(t, time.Minute, addr), see, key, 2)
	cancel(why)
	if l, err := get(t, first); l != nil || !errors.Is(err, lock.ErrHeld) || !errors.Is(err, why) {
		t.Errorf("the waiter that gave up: %v, %v", l, err)
	}
	eventually(t, func() bool { return places(t, see, key) == 2 }, "its place is gone")
	refused(t, lockerOn(t, time.Minute, addr), key)
	select {
	case r := <-second:
		t.Fatalf("the waiter behind it got %v, %v though the lock is held", r.lock, r.err)
	default:
	}
	if err := held.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, held)
	release(t, granted(t, second))
	eventually(t, func() bool { return places(t, see, key) == 0 }, "nothing is left")
}

// A waiter whose place is gone when its turn comes doesn't have the lock (etcd's issue 11456). It makes another place.
func TestWaiterLooksAtItsOwnPlace(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	see := dial(t, nil, addr)
	for name, lose := range map[string]func(kv *clientv3.GetResponse) error{
		"its key was deleted": func(own *clientv3.GetResponse) error {
			_, err := see.Delete(t.Context(), string(own.Kvs[0].Key))
			return err
		},
		"its lease has ended": func(own *clientv3.GetResponse) error {
			_, err := see.Revoke(t.Context(), clientv3.LeaseID(own.Kvs[0].Lease))
			return err
		},
	} {
		key := newKey()
		queue, _ := queueOf(defaultPrefix, key)
		held := acquire(t, lockerOn(t, time.Minute, addr), key)
		tap := newTap()
		results := waiting(t.Context(), t, newLocker(t, dial(t, tap.options(), addr), Config{TTL: time.Minute}), see, key, 1)
		eventually(t, func() bool { return tap.seen(methodWatch) > 0 }, "the waiter watches")
		own, err := see.Get(t.Context(), queue, append(clientv3.WithLastCreate(), clientv3.WithPrefix())...)
		if err == nil {
			err = lose(own)
		}
		if err != nil {
			t.Fatal(err)
		}
		other := acquireBehind(t, addr, see, key)
		release(t, held)
		winner := granted(t, other)
		refused(t, lockerOn(t, time.Minute, addr), key)
		if err := winner.Extend(t.Context()); err != nil {
			t.Errorf("%s: the one that was next: %v", name, err)
		}
		release(t, winner)
		again := granted(t, results)
		if again.Token() <= own.Kvs[0].CreateRevision || again.Token() <= held.Token() {
			t.Errorf("%s: token %d is that of the place that was lost, %d", name, again.Token(), own.Kvs[0].CreateRevision)
		}
		release(t, again)
	}
}

// acquireBehind waits behind a holder whose waiter has lost its place.
func acquireBehind(t *testing.T, addr string, see *clientv3.Client, key string) <-chan result {
	return waiting(t.Context(), t, lockerOn(t, time.Minute, addr), see, key, 1)
}

// A waiter whose watch is refused, since etcd has compacted what it asks for, looks and waits on.
func TestCompactionWhileWaiting(t *testing.T) {
	t.Parallel()
	server, key := servertest.Etcd(t, 1)[0], newKey()
	link := servertest.NewLink(t, server.Addr())
	see := dial(t, nil, server.Addr())
	for _, early := range []bool{false, true} { // whether the lock is released before the compaction
		held := acquire(t, lockerOn(t, time.Minute, server.Addr()), key)
		tap := newTap()
		compacted := make(chan struct{}, 1)
		results := waiting(t.Context(), t, newLocker(t, dial(t, tap.options(), link.Addr()), Config{TTL: time.Minute}), see, key, 1)
		eventually(t, func() bool { return tap.seen(methodWatch) > 0 }, "the waiter watches")
		tap.onReply(func(_ string, _, reply any) {
			if w, ok := reply.(interface{ GetCompactRevision() int64 }); ok && w.GetCompactRevision() > 0 {
				select {
				case compacted <- struct{}{}:
				default:
				}
			}
		})
		link.Cut()
		if early {
			release(t, held)
		}
		var last *clientv3.PutResponse
		for range 3 {
			var err error
			if last, err = see.Put(t.Context(), newKey(), ""); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := see.Compact(t.Context(), last.Header.Revision); err != nil {
			t.Fatal(err)
		}
		link.Heal()
		select {
		case <-compacted:
		case <-time.After(patience):
			t.Fatal("the watch did not ask for a revision that is compacted")
		}
		if !early {
			select {
			case r := <-results:
				t.Fatalf("%v, %v though the lock is held", r.lock, r.err)
			case <-time.After(200 * time.Millisecond):
			}
			release(t, held)
		}
		release(t, granted(t, results))
	}
}
