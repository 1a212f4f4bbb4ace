package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// subsets fails each of the 32 subsets of 5 masters in turn: a lock is acquired iff at least 3
// answer, in time, and at the end nothing of it is left anywhere.
func subsets(t *testing.T, servers []*redistest.Server, r *Redlock, fail, heal func(i int)) {
	t.Helper()
	key := redistest.Name(t)
	for mask := range 32 {
		down := 0
		for i := range servers {
			if mask&(1<<i) != 0 {
				fail(i)
				down++
			}
		}
		start := time.Now()
		l, err := r.TryAcquire(t.Context(), key)
		took := time.Since(start)
		var q *QuorumError
		switch {
		case down <= 2 && err != nil:
			t.Errorf("mask %05b: %v", mask, err)
		case down > 2 && (!errors.As(err, &q) || errors.Is(err, ErrHeld)):
			t.Errorf("mask %05b: acquired, or not a QuorumError: %v", mask, err)
		case down > 2 && (q.Held != 5-down || len(q.Nodes) != down):
			t.Errorf("mask %05b: %v", mask, q)
		}
		if slack := 500 * time.Millisecond; took > r.nodeTimeout+slack { // tests share their cores
			t.Errorf("mask %05b: it took %v", mask, took)
		}
		if err == nil {
			release(t, l)
		}
		for i := range servers {
			if mask&(1<<i) == 0 {
				nothingLeft(t, servers[i:i+1], key)
			}
		}
		for i := range servers {
			if mask&(1<<i) != 0 {
				heal(i)
			}
		}
		nothingLeft(t, servers, key)
		redistest.Eventually(t, func() bool { return r.Check(t.Context()) == nil }, "all nodes are back")
	}
	nothingLeft(t, servers, key)
}

func TestRedlockStoppedSubsets(t *testing.T) {
	t.Parallel()
	servers := masters(t, 5)
	r := redlockOn(t, servers, RedlockConfig{TTL: 10 * time.Second, NodeTimeout: 200 * time.Millisecond})
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	subsets(t, servers, r, func(i int) { servers[i].Stop() }, func(i int) { servers[i].Cont() })
}

func TestRedlockClosedPortSubsets(t *testing.T) {
	t.Parallel()
	servers := masters(t, 5)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, RedlockConfig{TTL: 10 * time.Second, NodeTimeout: 200 * time.Millisecond})
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	subsets(t, servers, r, func(i int) { ps[i].Refuse(true); ps[i].Sever() }, func(i int) { ps[i].Refuse(false) })
}

// landed connects to the servers, gives them a record for the key, and returns a function that
// waits until all of them have run an acquire: then they have another.
func landed(t *testing.T, servers []*redistest.Server, r *Redlock, key string) func() {
	t.Helper()
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	const before = "1000" // any token is more; without a record it must be more than the clock
	for _, s := range servers {
		if err := s.Client().Set(t.Context(), fence(t, key), before, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		for i, s := range servers {
			rdb := s.Client()
			redistest.Eventually(t, func() bool {
				now, err := rdb.Get(context.Background(), fence(t, key)).Result()
				return err == nil && now != before
			}, "the acquire lands on server %d", i)
		}
	}
}

// A late SET lands after the DEL and leaves an orphan for a TTL (redlock-rb #3).
func TestRedlockLateAcquireIsUndone(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, RedlockConfig{TTL: time.Minute, NodeTimeout: 100 * time.Millisecond})
	late := landed(t, servers, r, key)
	for _, p := range ps[:3] {
		p.Pause()
	}
	if _, err := r.TryAcquire(t.Context(), key); !errors.As(err, new(*QuorumError)) {
		t.Fatal(err)
	}
	for _, p := range ps[:3] {
		p.Resume()
	}
	late()
	nothingLeft(t, servers, key)
}

// As above, but the acquire lands when its connection is closed already, and so no answer
// ever tells that it did.
func TestRedlockVeryLateAcquireIsUndone(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, RedlockConfig{TTL: time.Minute, NodeTimeout: 100 * time.Millisecond})
	late := landed(t, servers, r, key)
	for _, s := range servers[:3] {
		s.Stop()
	}
	if _, err := r.TryAcquire(t.Context(), key); !errors.As(err, new(*QuorumError)) {
		t.Fatal(err)
	}
	for i, s := range servers[:3] {
		l := &r.nodes[i].leftovers
		redistest.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.list) > 0
		}, "the connection is given up")
		s.Cont()
	}
	late()
	for i := range servers {
		l := &r.nodes[i].leftovers
		redistest.Eventually(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.list) == 0
		}, "nothing is left to do")
	}
	nothingLeft(t, servers, key)
}

// A lock that a quorum granted while other nodes were slow is released on those too.
func TestRedlockReleasesWhatAnsweredLate(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, RedlockConfig{TTL: time.Minute, NodeTimeout: 100 * time.Millisecond})
	late := landed(t, servers, r, key)
	ps[3].Pause()
	ps[4].Pause()
	l := acquire(t, r, key)
	release(t, l)
	ps[3].Resume()
	ps[4].Resume()
	late()
	nothingLeft(t, servers, key)
}

// No validity check after acquiring (node-redlock #369): nodes that are slow eat the TTL.
func TestRedlockGrantedTooLate(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, RedlockConfig{TTL: 50 * time.Millisecond})
	r.nodeTimeout = 10 * time.Second // else they would just be slow
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		p.Pause()
		defer time.AfterFunc(60*time.Millisecond, p.Resume).Stop()
	}
	if l, err := r.TryAcquire(t.Context(), key); !errors.Is(err, ErrLost) {
		t.Errorf("%v, %v", l, err)
	}
	nothingLeft(t, servers, key)
}

// A lock that isn't extended expires everywhere, and another gets a larger token.
func TestRedlockExpires(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := redlockOn(t, servers, RedlockConfig{TTL: 300 * time.Millisecond, NodeTimeout: 100 * time.Millisecond})
	l := acquire(t, r, key)
	next := acquire(t, r, key)
	if l.Context().Err() == nil || next.Token() <= l.Token() {
		t.Errorf("%v; token %d after %d", l.Context().Err(), next.Token(), l.Token())
	}
	if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, ErrTaken) {
		t.Errorf("release: %v", err)
	}
	release(t, next)
}
