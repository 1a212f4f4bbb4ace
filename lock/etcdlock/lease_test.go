package etcdlock

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/signalbox-go/signalbox/lock"
)

// etcd grants at least 2 s. The holder believes in what it asked for.
func TestLeaseIsLongerThanTheTTL(t *testing.T) {
	t.Parallel()
	addr, key := sharedEtcd(t).Addr(), newKey()
	see, before := dial(t, nil, addr), time.Now()
	l := acquire(t, lockerOn(t, time.Second, addr), key)
	left, err := see.TimeToLive(t.Context(), leaseOf(l))
	if err != nil || left.GrantedTTL <= 1 {
		t.Fatalf("the lease is %+v, %v; want one of 2 s, or this test shows nothing", left, err)
	}
	if until := time.Until(l.Until()); until > time.Second {
		t.Errorf("the validity ends in %v", until)
	}
	lost(t, l)
	if time.Since(before) < 1500*time.Millisecond { // on a machine that isn't too slow
		if places(t, see, key) != 1 {
			t.Error("etcd deleted the key before its lease ended")
		}
	}
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Extend while etcd still has the key: %v; want ErrLost", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("Release while etcd still has the key: %v; want ErrExpired", err)
	}
	release(t, acquire(t, lockerOn(t, time.Second, addr), key))
}

// A fraction of a second counts.
func TestTTLIsNoWholeSeconds(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	before := time.Now()
	l := acquire(t, lockerOn(t, 59500*time.Millisecond, addr), newKey())
	if until := l.Until(); until.Before(before.Add(58*time.Second)) || until.After(time.Now().Add(59500*time.Millisecond)) {
		t.Errorf("the validity ends in %v", time.Until(until))
	}
	if left, err := dial(t, nil, addr).TimeToLive(t.Context(), leaseOf(l)); err != nil || left.GrantedTTL != 60 {
		t.Errorf("the lease is %+v, %v; want one of 60 s", left, err)
	}
	release(t, l)
}

// The validity counts from before the call, however late the reply comes.
func TestValidityCountsFromTheSending(t *testing.T) {
	t.Parallel()
	const ttl, late = time.Minute, 300 * time.Millisecond
	tap := newTap()
	client := dial(t, tap.options(), sharedEtcd(t).Addr())
	for what, methods := range map[string][]string{"acquire": {methodGrant, methodTxn}, "extend": {methodKeep, methodTxn}} {
		for _, slow := range methods {
			r, key := newLocker(t, client, Config{TTL: ttl}), newKey() // without a spare lease
			var l lock.Lock
			if what == "extend" {
				l = acquire(t, r, key)
			}
			tap.onReply(func(method string, _, _ any) {
				if method == slow {
					<-time.After(late)
				}
			})
			before := time.Now()
			if what == "extend" {
				if err := l.Extend(t.Context()); err != nil {
					t.Fatal(err)
				}
			} else {
				l = acquire(t, r, key)
			}
			took := time.Since(before)
			tap.onReply(nil)
			if took < late {
				t.Fatalf("%s took %v: the test shows nothing", what, took)
			}
			// The first call may be sent a moment after before.
			if left := l.Until().Sub(before); left > ttl-ttl/100+late/2 {
				t.Errorf("%s with a late reply of %s: the validity counts from %v after the call", what, slow, left-(ttl-ttl/100))
			}
			release(t, l)
		}
	}
}

// A lock whose key is deleted, or whose lease is ended, is lost. Extend says so, and doesn't bring it back.
func TestExtendOfALostLock(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	see := dial(t, nil, addr)
	for name, lose := range map[string]func(*heldLock) error{
		"its key was deleted": func(l *heldLock) error { _, err := see.Delete(t.Context(), l.place.name); return err },
		"its lease ended":     func(l *heldLock) error { _, err := see.Revoke(t.Context(), l.place.id); return err },
		"its key is another's": func(l *heldLock) error {
			if _, err := see.Delete(t.Context(), l.place.name); err != nil {
				return err
			}
			_, err := see.Put(t.Context(), l.place.name, "made by hand")
			return err
		},
	} {
		for _, taken := range []bool{false, true} {
			key, want := newKey(), lock.ErrExpired
			l := acquire(t, lockerOn(t, time.Minute, addr), key)
			if err := lose(l.(*heldLock)); err != nil {
				t.Fatal(err)
			}
			if name == "its key is another's" {
				want = lock.ErrTaken
			} else if taken {
				next := acquire(t, lockerOn(t, time.Minute, addr), key)
				defer release(t, next)
				want = lock.ErrTaken
			}
			for i := range 2 {
				if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) || i == 0 && !errors.Is(err, want) {
					t.Errorf("%s, taken is %v: Extend: %v; want %v", name, taken, err, want)
				}
			}
			lost(t, l)
			if err := l.Release(t.Context()); !errors.Is(err, want) {
				t.Errorf("%s, taken is %v: Release: %v; want %v", name, taken, err, want)
			}
		}
	}
}

// A leader that was paused and replaced still acknowledges renewals, in its old term. Such a renewal doesn't count.
func TestRenewalByAFormerLeader(t *testing.T) {
	t.Parallel()
	tap := newTap()
	r := newLocker(t, dial(t, tap.options(), sharedEtcd(t).Addr()), Config{TTL: time.Minute})
	l := acquire(t, r, newKey())
	for _, c := range []struct {
		stale, renewals int
		ok              bool
	}{{0, 1, true}, {1, 2, true}, {proofTries, proofTries, false}} {
		left, until := c.stale, l.Until()
		tap.onReply(func(method string, _, reply any) {
			if method != methodKeep {
				return
			}
			if left > 0 {
				left--
				reply.(*etcdserverpb.LeaseKeepAliveResponse).Header.RaftTerm--
			}
		})
		tap.calls()
		err := l.Extend(t.Context())
		tap.onReply(nil)
		if _, by := tap.calls(); by[methodKeep] != c.renewals || (err == nil) != c.ok || errors.Is(err, lock.ErrLost) {
			t.Errorf("after %d renewals by a former leader: %v; calls %v", c.stale, err, by)
		}
		if moved := l.Until().After(until); moved != c.ok {
			t.Errorf("after %d renewals by a former leader: the validity moved is %v", c.stale, moved)
		}
		if l.Context().Err() != nil {
			t.Errorf("after %d renewals by a former leader the context has ended", c.stale)
		}
	}
	release(t, l)
}

// An extension doesn't believe reads: some releases of etcd answer a read with old data after a pause of a member.
func TestExtensionBelievesNoRead(t *testing.T) {
	t.Parallel()
	tap, key := newTap(), newKey()
	see := dial(t, nil, sharedEtcd(t).Addr())
	r := newLocker(t, dial(t, tap.options(), sharedEtcd(t).Addr()), Config{TTL: time.Minute})
	l := acquire(t, r, key)
	var old *etcdserverpb.TxnResponse
	tap.onReply(func(method string, req, reply any) {
		if method != methodTxn {
			return
		}
		for _, op := range req.(*etcdserverpb.TxnRequest).Success {
			if op.GetRequestRange() == nil {
				return // it writes
			}
		}
		resp := reply.(*etcdserverpb.TxnResponse)
		if old == nil {
			old = &etcdserverpb.TxnResponse{Header: resp.Header, Succeeded: true, Responses: resp.Responses}
		}
		resp.Succeeded, resp.Responses = old.Succeeded, old.Responses
	})
	if err := l.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := see.Delete(t.Context(), l.(*heldLock).place.name); err != nil {
		t.Fatal(err)
	}
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Extend of a lock that is gone, beside old reads: %v; want ErrLost", err)
	}
	tap.onReply(nil)
	_ = l.Release(t.Context())
}

// An extension beside a release finds the lock held or lost, and changes nothing.
func TestExtendBesideRelease(t *testing.T) {
	t.Parallel()
	addr, key := sharedEtcd(t).Addr(), newKey()
	r := lockerOn(t, time.Minute, addr)
	for range 20 {
		l := acquire(t, r, key)
		done := make(chan error, 1)
		go func() { done <- l.Extend(t.Context()) }()
		release(t, l)
		if err := <-done; err != nil && !errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		if l.Context().Err() == nil {
			t.Error("the context goes on")
		}
	}
	if n := places(t, dial(t, nil, addr), key); n != 0 {
		t.Errorf("%d places are left", n)
	}
}
