package etcdlock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// A lock outlives a crash of its only server: etcd has it on disk. A waiter waits on.
func TestServerIsRestarted(t *testing.T) {
	t.Parallel()
	server, key := servertest.Etcd(t, 1)[0], newKey()
	see := dial(t, nil, server.Addr())
	l := acquire(t, lockerOn(t, time.Minute, server.Addr()), key)
	results := waiting(t.Context(), t, lockerOn(t, time.Minute, server.Addr()), see, key, 1)
	server.Kill()
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("Extend after the restart: %v", err)
	}
	refused(t, lockerOn(t, time.Minute, server.Addr()), key)
	select {
	case r := <-results:
		t.Fatalf("the waiter got %v, %v though the lock is held", r.lock, r.err)
	default:
	}
	release(t, l)
	next := granted(t, results)
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	release(t, next)
}

// While a leader is elected, a holder keeps its lock and a waiter its place.
func TestLeaderIsKilled(t *testing.T) {
	t.Parallel()
	members, key := servertest.Etcd(t, 3), newKey()
	see := dial(t, nil, addrs(members)...)
	leader := leaderOf(t, see, members)
	l := acquire(t, lockerOn(t, 10*time.Second, addrs(members)...), key)
	results := waiting(t.Context(), t, lockerOn(t, 10*time.Second, addrs(members)...), see, key, 1)
	work, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- lock.Hold(t.Context(), l, func(ctx context.Context) error {
			<-work.Done()
			return ctx.Err()
		})
	}()
	members[leader].Kill()
	until := l.Until()
	eventually(t, func() bool { return l.Until().After(until) }, "the holder extends its lock by the new leader")
	// Written by a client that may meet the election: it is asked again.
	eventually(t, func() bool {
		_, err := lockerOn(t, 10*time.Second, addrs(members)...).TryAcquire(t.Context(), key)
		return errors.Is(err, lock.ErrHeld)
	}, "the lock is refused to others")
	stop()
	if err := <-done; err != nil {
		t.Errorf("Hold: %v", err)
	}
	next := granted(t, results)
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	release(t, next)
}

// Without a majority a holder loses its lock in time, a waiter gets the failure, and nobody gets a lock. When the majority
// is back all works again.
func TestQuorumIsLostAndComesBack(t *testing.T) {
	t.Parallel()
	members, key := servertest.Etcd(t, 3), newKey()
	all := addrs(members)
	see := dial(t, nil, all...)
	const ttl = 3 * time.Second
	l := acquire(t, lockerOn(t, ttl, all...), key)
	results := waiting(t.Context(), t, lockerOn(t, ttl, all...), see, key, 1)
	down := members[:2]
	for _, m := range down {
		m.Kill()
	}
	lost(t, l)
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Extend: %v; want ErrLost", err)
	}
	if l, err := get(t, results); l != nil || err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrLost) {
		t.Errorf("the waiter: %v, %v; want the failure of etcd", l, err)
	}
	other := lockerOn(t, ttl, all...)
	var asked sync.WaitGroup
	for name, ask := range map[string]func(context.Context, string) (lock.Lock, error){"TryAcquire": other.TryAcquire, "Acquire": other.Acquire} {
		asked.Go(func() {
			if l, err := ask(t.Context(), newKey()); l != nil || err == nil || errors.Is(err, lock.ErrHeld) {
				t.Errorf("%s without a majority: %v, %v", name, l, err)
			}
		})
	}
	asked.Wait()
	for _, m := range down {
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
	}
	next := acquire(t, other, key)
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	if err := next.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the release of the lost lock: %v", err)
	}
	release(t, next)
}

// A member that hangs with its connections open costs a holder nothing if its client pings and has others to go to.
func TestMemberHangs(t *testing.T) {
	t.Parallel()
	members, key := servertest.Etcd(t, 3), newKey()
	see := dial(t, nil, addrs(members)...)
	follower := (leaderOf(t, see, members) + 1) % 3
	// The client's first address is that of the follower.
	order := append([]string{members[follower].Addr()}, addrs(members)...)
	l := acquire(t, lockerOn(t, 20*time.Second, order...), key)
	if err := members[follower].Stop(); err != nil {
		t.Fatal(err)
	}
	for range 3 { // at least one of these calls goes to the member that hangs
		until := l.Until()
		eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), callTimeout)
			defer cancel()
			return l.Extend(ctx) == nil
		}, "the lock is extended")
		if !l.Until().After(until) {
			t.Error("the validity did not move")
		}
	}
	if l.Context().Err() != nil {
		t.Error("the lock was lost")
	}
	if err := members[follower].Cont(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return l.Release(t.Context()) == nil }, "the lock is released")
}

// What breaks a lock: a leader is stopped for longer than the TTL. Meanwhile another is elected, and the holder renews its
// lease there. When the first one goes on, it ends all leases that it believes to have ended. Debian's etcd does so. The
// holder learns of it by its next extension, and the token of the next holder is larger.
func TestFormerLeaderEndsLeases(t *testing.T) {
	t.Parallel()
	members, key := servertest.Etcd(t, 3), newKey()
	see := dial(t, nil, addrs(members)...)
	leader := leaderOf(t, see, members)
	var others []*servertest.Server
	for i, m := range members {
		if i != leader {
			others = append(others, m)
		}
	}
	const ttl = 5 * time.Second
	r := lockerOn(t, ttl, addrs(others)...)
	l := acquire(t, r, key)
	if err := members[leader].Stop(); err != nil {
		t.Fatal(err)
	}
	leaderOf(t, dial(t, nil, addrs(others)...), others)
	for end := time.Now().Add(ttl + ttl/2); time.Now().Before(end); {
		if err := l.Extend(t.Context()); errors.Is(err, lock.ErrLost) {
			t.Log("the election took longer than the TTL, so the former leader does not know the lock")
			l = acquire(t, r, key)
		}
		<-time.After(ttl / 10)
	}
	if err := members[leader].Cont(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool {
		s, err := see.Status(t.Context(), members[leader].Addr())
		return err == nil && s.Leader != 0 && s.Leader != s.Header.MemberId
	}, "the former leader follows")
	var err error
	for end := time.Now().Add(ttl); err == nil && time.Now().Before(end); {
		err = l.Extend(t.Context())
	}
	switch {
	case errors.Is(err, lock.ErrLost):
		t.Logf("the former leader ended the lease: %v", err)
		if l.Context().Err() == nil {
			t.Error("the holder's context goes on")
		}
		if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Release: %v", err)
		}
	case err != nil:
		t.Errorf("Extend: %v", err)
	default: // an etcd with the remedy
		release(t, l)
	}
	next := acquire(t, r, key)
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	release(t, next)
}

// What breaks tokens: an etcd whose disk comes back older. Its revisions begin again, and tokens with them.
func TestRestoredDataTakesTokensBack(t *testing.T) {
	t.Parallel()
	server, key := servertest.Etcd(t, 1)[0], newKey()
	r := lockerOn(t, time.Minute, server.Addr())
	release(t, acquire(t, r, key))
	if err := server.Terminate(); err != nil {
		t.Fatal(err)
	}
	data, saved := filepath.Join(server.Dir(), "data"), filepath.Join(t.TempDir(), "saved")
	if err := os.CopyFS(saved, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var last lock.Lock
	for range 5 {
		last = acquire(t, r, key)
		release(t, last)
	}
	server.Kill()
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(saved)), chmodAll(data)); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	again := acquire(t, r, key)
	if again.Token() > last.Token() {
		t.Errorf("token %d after %d: the documentation says that tokens go back", again.Token(), last.Token())
	}
	release(t, again)
}

// chmodAll makes folders private, as etcd wants them.
func chmodAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	})
}

// Errors of users and permissions say what to do. A waiter doesn't wait for them to pass.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	addr := servertest.Etcd(t, 1)[0].Addr()
	ctx := t.Context()
	withUsers(t, addr, "holder")
	root := loginAs(t, "root", nil, addr)
	if _, err := root.UserAdd(ctx, "stranger", "secret-of-stranger"); err != nil {
		t.Fatal(err)
	}
	as := func(user string) *Locker {
		client := loginAs(t, user, nil, addr)
		client.Auth = Relogin(client.Auth)
		return newLocker(t, client, Config{TTL: time.Minute})
	}
	for user, c := range map[string]struct {
		is   error
		says string
	}{
		"":         {rpctypes.ErrUserEmpty, "user name and a password"},
		"stranger": {rpctypes.ErrPermissionDenied, `permission to read and write the keys with the prefix "signalbox/lock/"`},
	} {
		r := as(user)
		for name, ask := range map[string]func(context.Context, string) (lock.Lock, error){"TryAcquire": r.TryAcquire, "Acquire": r.Acquire} {
			l, err := ask(ctx, newKey())
			if l != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") || errors.Is(err, lock.ErrHeld) {
				t.Errorf("%s as %q: %v, %v", name, user, l, err)
			}
		}
	}
	a, b, key := as("holder"), as("holder"), newKey()
	l := acquire(t, a, key)
	refused(t, b, key)
	results := make(chan result, 1)
	go func() {
		l, err := b.Acquire(ctx, key)
		results <- result{l, err}
	}()
	if err := l.Extend(ctx); err != nil {
		t.Error(err)
	}
	if info, err := a.Inspect(ctx, key); err != nil || !info.Held {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
	release(t, l)
	release(t, granted(t, results))
}
