package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// Never SET on extend: that resurrects a lost lock (redsync #147, #149; RedLock.net #48).
func TestRedlockExtendNeverResurrects(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	l := acquire(t, r, key)
	everywhere(t, servers, func(i int, rdb redis.UniversalClient) {
		redistest.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 1 }, "node %d has it", i)
		if i < 3 {
			rdb.Del(t.Context(), key)
		}
	})
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("extended a lock that a quorum had lost: %v", err)
	}
	if l.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), lock.ErrLost) {
		t.Errorf("the context lives on: %v", context.Cause(l.Context()))
	}
	for _, s := range servers[:3] {
		if n := s.Client().Exists(t.Context(), key).Val(); n != 0 {
			t.Error("it was set again")
		}
	}
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("release: %v", err)
	}
	nothingLeft(t, servers, key)
}

// Another has it: so says the error, and the release leaves that one's lock alone.
func TestRedlockTaken(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	l, l2 := acquire(t, r, key), acquire(t, r, key+"2")
	everywhere(t, servers, func(i int, rdb redis.UniversalClient) {
		for _, k := range []string{key, key + "2"} {
			redistest.Eventually(t, func() bool { return rdb.Exists(t.Context(), k).Val() == 1 }, "node %d has it", i)
			if i < 3 {
				rdb.Set(t.Context(), k, "another", time.Minute)
			}
		}
	})
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("extend: %v", err)
	}
	for _, l := range []lock.Lock{l, l2} {
		if err := l.Release(t.Context()); !errors.Is(err, lock.ErrTaken) {
			t.Errorf("release: %v", err)
		}
		if v := servers[0].Client().Get(t.Context(), l.Key()).Val(); v != "another" {
			t.Errorf("another's lock is now %q", v)
		}
	}
}

// An extend that too few nodes answer changes nothing: the old validity goes on.
func TestRedlockExtendWithoutAQuorum(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, Config{TTL: 30 * time.Second, NodeTimeout: time.Second})
	l := acquire(t, r, key)
	until := l.Until()
	for _, s := range servers[:3] {
		s.Stop()
	}
	var q *lock.QuorumError
	if err := l.Extend(t.Context()); !errors.As(err, &q) || errors.Is(err, lock.ErrLost) || q.Op != "extend" || q.Held != 2 {
		t.Errorf("extend on a minority: %v", err)
	}
	if !l.Until().Equal(until) || l.Context().Err() != nil {
		t.Errorf("the validity was until %v and is until %v: %v", until, l.Until(), l.Context().Err())
	}
	if err := l.Release(t.Context()); !errors.As(err, &q) || q.Op != "release" {
		t.Errorf("release on a minority: %v", err)
	}
	for _, s := range servers[:3] {
		s.Cont()
	}
	redistest.Eventually(t, func() bool { return l.Release(t.Context()) == nil }, "it can be released")
	nothingLeft(t, servers, key)
}

// At its memory limit a node grants nothing, and leaves no record without a lock or
// the reverse; locks that are held are extended and released all the same.
func TestRedlockOutOfMemory(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	held := acquire(t, r, key+"0")
	for i, s := range servers[:3] {
		if err := s.Client().ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			release(t, acquire(t, r, key)) // three nodes are enough
		}
	}
	var q *lock.QuorumError
	_, err := r.Acquire(t.Context(), key+"2")
	if !errors.As(err, &q) || len(q.Nodes) != 3 || !redis.HasErrorPrefix(errors.Unwrap(q.Nodes[0]), "OOM") {
		t.Errorf("%v", err)
	}
	if n := servers[0].Client().Exists(t.Context(), key+"2", fence(t, key+"2")).Val(); n != 0 {
		t.Errorf("%d keys are left of a refused acquire", n)
	}
	if err := held.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, held)
	for _, k := range []string{key, key + "0", key + "2"} {
		nothingLeft(t, servers, k)
	}
}

// Somebody else's data at the key is not touched, and says so.
func TestRedlockWrongType(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	for i, s := range servers[:3] {
		if err := s.Client().HSet(t.Context(), key, "field", fmt.Sprint(i)).Err(); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			release(t, acquire(t, r, key)) // three nodes are enough
		}
	}
	if _, err := r.Acquire(t.Context(), key); !errors.As(err, new(*lock.QuorumError)) || !errors.Is(err, lock.ErrInvalid) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("%v", err)
	}
	for i, s := range servers[:3] {
		if v := s.Client().HGet(t.Context(), key, "field").Val(); v != fmt.Sprint(i) {
			t.Errorf("node %d: it is now %q", i, v)
		}
	}
	nothingLeft(t, slices.Clone(servers[3:]), key)
}
