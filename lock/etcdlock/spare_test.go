package etcdlock

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/signalbox-go/signalbox/lock"
)

// Locks that follow each other use one lease. Locks that are held at the same time have a lease each.
func TestSpareLeases(t *testing.T) {
	t.Parallel()
	tap := newTap()
	r := newLocker(t, dial(t, tap.options(), sharedEtcd(t).Addr()), Config{TTL: time.Minute})
	var leases []int64
	for range 5 {
		l := acquire(t, r, newKey())
		leases = append(leases, int64(leaseOf(l)))
		release(t, l)
	}
	for _, id := range leases {
		if id != leases[0] {
			t.Errorf("locks that follow each other have the leases %x", leases)
		}
	}
	if n, by := tap.calls(); by[methodGrant] != 1 || n != 11 {
		t.Errorf("five cycles made the calls %v; want one grant, and two transactions each", by)
	}
	a, b := acquire(t, r, newKey()), acquire(t, r, newKey())
	if leaseOf(a) == leaseOf(b) {
		t.Error("two locks have one lease")
	}
	release(t, a)
	if err := b.Extend(t.Context()); err != nil {
		t.Errorf("Extend after the release of another lock: %v", err)
	}
	release(t, b)
}

// A lock takes the lease of the last lock on its key, though locks on other keys were released later.
func TestLeasesStayWithTheirKeys(t *testing.T) {
	t.Parallel()
	r := lockerOn(t, time.Minute, sharedEtcd(t).Addr())
	keys, names := []string{newKey(), newKey(), newKey()}, map[string]bool{}
	for range 3 {
		var locks []lock.Lock
		for _, key := range keys {
			l := acquire(t, r, key)
			names[l.(*heldLock).place.name] = true
			locks = append(locks, l)
		}
		for _, l := range locks {
			release(t, l)
		}
	}
	if len(names) != len(keys) {
		t.Errorf("%d keys have the names %v", len(keys), names)
	}
}

// Locks on one key that follow each other have one name in etcd, and are told apart all the same. etcd keeps something of
// each name until it compacts, and each acquire looks through that.
func TestNamesAreUsedAgain(t *testing.T) {
	t.Parallel()
	r, key := lockerOn(t, time.Minute, sharedEtcd(t).Addr()), newKey()
	names, holders := map[string]bool{}, map[string]bool{}
	var last lock.Lock
	for range 3 {
		l := acquire(t, r, key)
		names[l.(*heldLock).place.name], holders[l.(lock.Origin).Holder()] = true, true
		if last != nil { // as a call that comes late
			if err := last.(*heldLock).Renew(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("a renewal of the lock before: %v", err)
			}
			refused(t, lockerOn(t, time.Minute, sharedEtcd(t).Addr()), key)
		}
		release(t, l)
		if last == nil {
			last = l
		}
	}
	if len(names) != 1 || len(holders) != 3 {
		t.Errorf("three locks have the names %v and the holders %v", names, holders)
	}
}

// Spares that have ended, as after a pause of the process, are replaced. Nobody notices.
func TestSpareThatHasEnded(t *testing.T) {
	t.Parallel()
	client := dial(t, nil, sharedEtcd(t).Addr())
	r, key := newLocker(t, client, Config{TTL: time.Minute}), newKey()
	var locks []lock.Lock
	for range entryTries + 1 {
		locks = append(locks, acquire(t, r, newKey()))
	}
	for _, l := range locks {
		release(t, l)
		if _, err := client.Revoke(t.Context(), leaseOf(l)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := r.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range locks {
		if leaseOf(l) == leaseOf(before) || l.Token() <= before.Token() {
			t.Errorf("lease %x after %x, token %d after %d", leaseOf(l), leaseOf(before), l.Token(), before.Token())
		}
	}
	release(t, l)
}

// The lease of a release without a reply is no spare: the deletion may come late.
func TestLeaseOfAnUncertainReleaseIsNoSpare(t *testing.T) {
	t.Parallel()
	tap := newTap()
	r, key := newLocker(t, dial(t, tap.options(), sharedEtcd(t).Addr()), Config{TTL: time.Minute}), newKey()
	first := acquire(t, r, key)
	tap.loseNext(methodTxn, 1)
	if err := first.Release(t.Context()); !errors.Is(err, errReplyLost) {
		t.Fatal(err)
	}
	release(t, first)
	next := acquire(t, r, key)
	if leaseOf(next) == leaseOf(first) {
		t.Error("the next lock has the same lease")
	}
	release(t, next)
}

// The validity of a lock with a spare counts from a renewal of the spare: the last of its former lock, or one of its own
// that is not by a former leader.
func TestValidityWithASpare(t *testing.T) {
	t.Parallel()
	const ttl = 40 * time.Second
	tap := newTap()
	r := newLocker(t, dial(t, tap.options(), sharedEtcd(t).Addr()), Config{TTL: ttl})
	first, began := acquire(t, r, newKey()), time.Now()
	if err := first.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	release(t, first)
	soon := acquire(t, r, newKey())
	if _, by := tap.calls(); by[methodKeep] != 1 && time.Since(began) < ttl/8 {
		t.Errorf("with a spare that was just renewed: calls %v", by)
	}
	release(t, soon)
	<-time.After(ttl/8 + 100*time.Millisecond)
	tap.onReply(func(method string, _, reply any) {
		if method == methodKeep {
			reply.(*etcdserverpb.LeaseKeepAliveResponse).Header.RaftTerm--
		}
	})
	tap.calls()
	later := acquire(t, r, newKey())
	tap.onReply(nil)
	if _, by := tap.calls(); by[methodKeep] != 1 || by[methodGrant] != 0 {
		t.Fatalf("an old spare made the calls %v; want one renewal", by)
	}
	if moved := later.Until().Sub(soon.Until()); moved > 0 {
		t.Errorf("by a renewal of a former leader the validity moved by %v", moved)
	}
	release(t, later)
	renewed := acquire(t, r, newKey())
	if moved := renewed.Until().Sub(soon.Until()); moved < ttl/8 {
		t.Errorf("by a renewal the validity moved by %v", moved)
	}
	release(t, renewed)
}

// A TryAcquire that comes too late gives its lease back.
func TestTryAcquireThatLosesTheRace(t *testing.T) {
	t.Parallel()
	addr, key := sharedEtcd(t).Addr(), newKey()
	tap, other := newTap(), lockerOn(t, time.Minute, addr)
	r := newLocker(t, dial(t, tap.options(), addr), Config{TTL: time.Minute})
	var winner lock.Lock
	tap.onReply(func(method string, _, _ any) {
		if method == methodGrant {
			winner = acquire(t, other, key) // after the look and before the transaction
		}
	})
	if l, err := r.TryAcquire(t.Context(), key); l != nil || !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryAcquire: %v, %v; want ErrHeld", l, err)
	}
	if err := winner.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, winner)
	tap.calls()
	release(t, acquire(t, r, key))
	if _, by := tap.calls(); by[methodGrant] != 0 {
		t.Errorf("the lease was not kept: calls %v", by)
	}
}
