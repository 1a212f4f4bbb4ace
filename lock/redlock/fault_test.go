package redlock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// subsets fails each of the 32 subsets of 5 masters in turn: a lock is acquired iff at least 3
// answer, in time, and at the end nothing of it is left anywhere.
func subsets(t *testing.T, servers []*redistest.Server, r *Locker, fail, heal func(i int)) {
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
		l, took, err := tryInTime(t, r, key, down)
		var q *lock.QuorumError
		switch {
		case down <= 2 && err != nil:
			t.Errorf("mask %05b: %v", mask, err)
		case down > 2 && (!errors.As(err, &q) || errors.Is(err, lock.ErrHeld)):
			t.Errorf("mask %05b: acquired, or not a QuorumError: %v", mask, err)
		case down > 2 && (q.Held != 5-down || len(q.Nodes) != down):
			t.Errorf("mask %05b: %v", mask, q)
		}
		if took > mostTaken(r) {
			t.Errorf("mask %05b: it took %v", mask, took)
		}
		if err == nil {
			redistest.Eventually(t, func() bool { return l.Release(t.Context()) == nil }, "mask %05b: it is released", mask)
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

// mostTaken is what a call may take in which nodes don't answer.
func mostTaken(r *Locker) time.Duration { return r.nodeTimeout + 500*time.Millisecond }

// tryInTime is TryAcquire while so many nodes are down. On a busy machine others, too, may answer too late, or
// the call may stand still: then it asks again, ten times at most.
func tryInTime(t *testing.T, r *Locker, key string, down int) (l lock.Lock, took time.Duration, err error) {
	t.Helper()
	for range 10 {
		start := time.Now()
		l, err = r.TryAcquire(t.Context(), key)
		took = time.Since(start)
		var q *lock.QuorumError
		if took <= mostTaken(r) && (err == nil || errors.As(err, &q) && len(q.Nodes) == down) {
			break
		}
		if err == nil {
			redistest.Eventually(t, func() bool { return l.Release(t.Context()) == nil }, "it is released")
		}
		redistest.Eventually(t, func() bool {
			behind := 0
			for i := range r.nodes {
				behind += min(leftOver(r, i), 1)
			}
			return behind <= down
		}, "those that are up have released it")
	}
	return l, took, err
}

func TestRedlockStoppedSubsets(t *testing.T) {
	t.Parallel()
	servers := masters(t, 5)
	r := redlockOn(t, servers, Config{TTL: 10 * time.Second, NodeTimeout: 200 * time.Millisecond})
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	subsets(t, servers, r, func(i int) { servers[i].Stop() }, func(i int) { servers[i].Cont() })
}

func TestRedlockClosedPortSubsets(t *testing.T) {
	t.Parallel()
	servers := masters(t, 5)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, Config{TTL: 10 * time.Second, NodeTimeout: 200 * time.Millisecond})
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	subsets(t, servers, r, func(i int) { ps[i].Refuse(true); ps[i].Sever() }, func(i int) { ps[i].Refuse(false) })
}

// landed connects to the servers, gives them a record for the key, and returns a function that
// waits until all of them have run an acquire: then they have another.
func landed(t *testing.T, servers []*redistest.Server, r *Locker, key string) func() {
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

// patientRedlockOn makes a Redlock that waits a second for its nodes, but grants late requests and awaits late
// replies for much longer than a loaded machine holds them up.
func patientRedlockOn[S addressed](t *testing.T, servers []S) *Locker {
	t.Helper()
	r := redlockOn(t, servers, Config{TTL: 3 * time.Minute, NodeTimeout: time.Minute})
	r.nodeTimeout = time.Second
	return r
}

// A late SET lands after the DEL and leaves an orphan for a TTL (redlock-rb #3).
func TestRedlockLateAcquireIsUndone(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	ps := proxies(t, servers)
	r := patientRedlockOn(t, ps)
	late := landed(t, servers, r, key)
	for _, p := range ps[:3] {
		p.Pause()
	}
	if _, err := r.TryAcquire(t.Context(), key); !errors.As(err, new(*lock.QuorumError)) {
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
	r := redlockOn(t, servers, Config{TTL: time.Minute, NodeTimeout: time.Second})
	late := landed(t, servers, r, key)
	for _, n := range r.nodes[:3] {
		n.forgetClock() // so that there is no deadline by it
	}
	veryLate(t, servers, r, key)
	late()
	undone(t, r)
	nothingLeft(t, servers, key)
}

// One that comes so late refuses itself, and leaves nothing that would have to be undone.
func TestRedlockVeryLateAcquireRefusesItself(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, Config{TTL: time.Minute, NodeTimeout: time.Second})
	landed(t, servers, r, key)
	records := func() (all []string) {
		for _, s := range servers[:3] {
			all = append(all, s.Client().Get(t.Context(), fence(t, key)).Val())
		}
		return all
	}
	before := records()
	veryLate(t, servers, r, key)
	undone(t, r) // the servers have run all that came before
	if now := records(); !slices.Equal(now, before) {
		t.Errorf("the records are %q, and were %q", now, before)
	}
	nothingLeft(t, servers, key)
}

// A server's clock that jumps ahead makes all requests late, but for us it is only another clock.
func TestRedlockClockJumpsAhead(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	release(t, acquire(t, r, key))
	for _, n := range r.nodes { // as if the servers' clocks had jumped ahead since
		n.mu.Lock()
		n.clock -= 10 * aMinute
		n.mu.Unlock()
	}
	l, err := r.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ago := time.Now().UnixMicro() - l.Token(); ago > aMinute {
		t.Errorf("the token is %v old", time.Duration(ago)*time.Microsecond)
	}
	release(t, l)
	nothingLeft(t, servers, key)
}

// veryLate has three of five servers get an acquire after its connection was given up.
func veryLate(t *testing.T, servers []*redistest.Server, r *Locker, key string) {
	t.Helper()
	for _, s := range servers[:3] {
		s.Stop()
	}
	if _, err := r.TryAcquire(t.Context(), key); !errors.As(err, new(*lock.QuorumError)) {
		t.Fatal(err)
	}
	for i, s := range servers[:3] {
		redistest.Eventually(t, func() bool { return leftOver(r, i) > 0 }, "the connection is given up")
		s.Cont()
	}
}

// undone waits until nothing is left to be released.
func undone(t *testing.T, r *Locker) {
	t.Helper()
	for i := range r.nodes {
		redistest.Eventually(t, func() bool { return leftOver(r, i) == 0 }, "nothing is left to do")
	}
}

func leftOver(r *Locker, node int) int {
	l := &r.nodes[node].leftovers
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// A lock that a quorum granted while other nodes were slow is released on those too.
func TestRedlockReleasesWhatAnsweredLate(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	ps := proxies(t, servers)
	r := patientRedlockOn(t, ps)
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
	r := redlockOn(t, ps, Config{TTL: time.Second, NodeTimeout: 499 * time.Millisecond})
	r.nodeTimeout = 20 * time.Second // else they would just be slow
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		held, let := p.HoldReplies(redistest.Command("EVALSHA", acquireScript.hash.(string)))
		go func() {
			<-held
			time.AfterFunc(1050*time.Millisecond, let)
		}()
		defer let()
	}
	// If the nodes' clocks had gone on by more than the proposal reckoned with, a second round of votes was needed. The lock was
	// nobody's by then, which is no grant either.
	if l, err := r.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrHeld) {
		t.Errorf("%v, %v", l, err)
	}
	nothingLeft(t, servers, key)
}

// A lock that isn't extended expires everywhere, and another gets a larger token.
func TestRedlockExpires(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	l := acquire(t, redlockOn(t, servers, Config{TTL: 2 * time.Second, NodeTimeout: 900 * time.Millisecond}), key)
	next := acquire(t, redlockOn(t, servers, roomy), key)
	if l.Context().Err() == nil || next.Token() <= l.Token() {
		t.Errorf("%v; token %d after %d", l.Context().Err(), next.Token(), l.Token())
	}
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("extend: %v", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("release: %v", err)
	}
	release(t, next)
}
