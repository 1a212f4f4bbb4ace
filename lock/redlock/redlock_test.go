package redlock

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

func TestRedlock(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	l := acquire(t, r, key)
	if l.Key() != key || l.Token() < before.Add(-time.Minute).UnixMicro() || l.Token() > before.Add(time.Minute).UnixMicro() {
		t.Errorf("key %q, token %d", l.Key(), l.Token())
	}
	if left := time.Until(l.Until()); left <= 0 || l.Until().After(time.Now().Add(drifted(10*time.Second))) {
		t.Errorf("validity left: %v", left)
	}
	if _, err := redlockOn(t, servers, roomy).TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	until := l.Until()
	if err := l.Extend(t.Context()); err != nil || !l.Until().After(until) {
		t.Errorf("Extend: %v, until %v, was %v", err, l.Until(), until)
	}
	release(t, l)
	if !errors.Is(context.Cause(l.Context()), context.Canceled) {
		t.Errorf("after the release: cause %v", context.Cause(l.Context()))
	}
	release(t, l) // idempotent
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Extend after the release: %v", err)
	}
	again := acquire(t, r, key)
	if again.Token() <= l.Token() {
		t.Errorf("token %d after %d", again.Token(), l.Token())
	}
	release(t, l) // of the old one: it must not touch the new one
	if err := again.Extend(t.Context()); err != nil {
		t.Errorf("the release of an earlier lock broke a later one: %v", err)
	}
	release(t, again)
	nothingLeft(t, servers, key)
}

// Several clients, each with several goroutines: one holder at a time, and tokens that
// are unique and ordered as the grants are.
func TestRedlockTokensUnderContention(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	var holding sync.Mutex
	var tokens []int64
	var all sync.WaitGroup
	for range 4 {
		r := redlockOn(t, servers, roomy)
		for range 3 {
			all.Go(func() {
				for range 15 {
					l, err := r.Acquire(t.Context(), key)
					if err != nil {
						t.Error(err)
						return
					}
					if !holding.TryLock() {
						t.Error("two holders at once")
						return
					}
					tokens = append(tokens, l.Token())
					if err := l.Extend(t.Context()); err != nil {
						t.Error(err)
					}
					holding.Unlock()
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if len(tokens) != 4*3*15 || !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
		t.Errorf("%d tokens, sorted: %v", len(tokens), slices.IsSorted(tokens))
	}
	nothingLeft(t, servers, key)
}

// Waiting in line and a release that wakes are quick: not a pause of up to 225 ms for each.
func TestRedlockHandsOn(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := redlockOn(t, servers, Config{TTL: time.Minute, NodeTimeout: time.Second})
	release(t, acquire(t, r, key)) // makes the connections
	start, late := time.Now(), redistest.Lag(t, servers[0].Client())
	var all sync.WaitGroup
	const cycles = 200
	for range 8 {
		all.Go(func() {
			for range cycles / 8 {
				release(t, acquire(t, r, key))
			}
		})
	}
	all.Wait()
	if took := time.Since(start); took-late() > cycles*mostPause/4 {
		t.Errorf("%d cycles took %v", cycles, took)
	}
}

// ErrHeld and "the nodes are down" don't look alike (node-redlock #185, #288): others may run
// the work in the first case, and nobody knows in the second.
func TestRedlockHeldIsNoQuorumError(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, Config{TTL: 10 * time.Second, NodeTimeout: time.Second, Tries: 2})
	holder := acquire(t, redlockOn(t, servers, roomy), key)
	var q *lock.QuorumError

	_, err := r.Acquire(t.Context(), key)
	if !errors.Is(err, lock.ErrHeld) || errors.As(err, &q) {
		t.Errorf("held by another: %v", err)
	}
	asked := redistest.Command("EVALSHA", acquireScript.hash.(string))
	// Three nodes decide each try, so one of them at least is in both. The others may have been asked later, or not at all.
	most := func() (n int) {
		for _, p := range ps {
			n = max(n, p.Count(asked))
		}
		return n
	}
	if n := most(); n != 2 {
		t.Errorf("it is tried %d times", n)
	}
	for _, p := range ps[:2] {
		p.Refuse(true)
		p.Sever()
	}
	if _, err = r.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) || errors.As(err, &q) {
		t.Errorf("held by another on a quorum, two nodes down: %v", err)
	}
	ps[2].Refuse(true)
	ps[2].Sever()
	_, err = r.Acquire(t.Context(), key)
	if errors.Is(err, lock.ErrHeld) || !errors.As(err, &q) {
		t.Fatalf("three nodes down: %v", err)
	}
	if q.Op != "acquire" || q.Key != key || q.Need != 3 || q.Held != 0 || len(q.Nodes) != 3 {
		t.Errorf("%+v", q)
	}
	for i, n := range q.Nodes {
		var netErr *net.OpError
		if n.Node != ps[i].Addr() || !errors.As(n, &netErr) || !errors.Is(n, syscall.ECONNREFUSED) {
			t.Errorf("node %d: %v", i, n)
		}
	}
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), ps[1].Addr()) {
		t.Errorf("the error doesn't say what happened: %v", err)
	}
	if err := holder.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// While too few nodes answer, an Acquire gives up after three tries, whatever its ctx.
func TestRedlockTriesWithoutAQuorum(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, roomy)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	ps[0].Refuse(true)
	ps[0].Sever()
	ps[1].Refuse(true)
	ps[1].Sever()
	if _, err := r.Acquire(t.Context(), key); !errors.As(err, new(*lock.QuorumError)) {
		t.Error(err)
	}
	asked := redistest.Command("EVALSHA", acquireScript.hash.(string))
	redistest.Eventually(t, func() bool { return ps[2].Count(asked) == failedTries }, "it is tried %d times", failedTries)
	nothingLeft(t, servers, key)
}

// The tries that fail count anew when the lock was seen held: the nodes answered then.
func TestRedlockTriesSinceItWasHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Locker{nodes: make([]*node, 3), ctx: t.Context()}
		s := &seek{locker: r, spot: r.lines.join("key")}
		failed := &lock.QuorumError{Op: "acquire", Key: "key", Need: 2, Nodes: []lock.NodeError{{Node: "a", Err: errGoneThere}, {Node: "b", Err: errGoneThere}}}
		for round := range 3 {
			for try := 1; try < failedTries; try++ {
				if err := s.again(t.Context(), failed); err != nil {
					t.Fatalf("round %d: it gives up after failed try %d: %v", round, try, err)
				}
			}
			if err := s.again(t.Context(), lock.ErrHeld); err != nil {
				t.Fatalf("round %d: it gives up since the lock is held: %v", round, err)
			}
		}
		for range failedTries - 1 {
			_ = s.again(t.Context(), failed)
		}
		if err := s.again(t.Context(), failed); err != error(failed) {
			t.Errorf("it goes on after %d failed tries: %v", failedTries, err)
		}
	})
}

// Waiting ends with ctx, and says that the lock was held.
func TestRedlockWaitsUntilContextEnds(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	l := acquire(t, r, key)
	mine := errors.New("mine")
	ctx, err := patiently(t, mine, func(ctx context.Context) error {
		_, err := r.Acquire(ctx, key)
		return err
	})
	if !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, mine) {
		t.Errorf("%v", err)
	}
	if _, err := r.Acquire(ctx, key+"2"); !errors.Is(err, mine) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("ctx had ended: %v", err)
	}
	release(t, l)
	nothingLeft(t, servers, key)
	nothingLeft(t, servers, key+"2")
}

// Released is released, also after ctx was cancelled (redsync).
func TestRedlockReleaseAfterCancel(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := redlockOn(t, servers, roomy).Acquire(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if l.Context().Err() != nil {
		t.Error("the context of the waiting ended the lock")
	}
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	nothingLeft(t, servers, key)
}

func TestRedlockMinHold(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	c := roomy
	c.MinHold = time.Second
	r := redlockOn(t, servers, c)
	begun := time.Now() // it is granted after this
	l := acquire(t, r, key)
	release(t, l)
	if l.Context().Err() == nil {
		t.Error("the context lives on")
	}
	switch early, err := r.TryAcquire(t.Context(), key); {
	case err == nil && time.Since(begun) >= c.MinHold: // we were too late
		release(t, early)
	case !errors.Is(err, lock.ErrHeld):
		t.Fatalf("released early: %v", err)
	}
	again := acquire(t, r, key)
	if held := time.Since(begun); held < c.MinHold-20*time.Millisecond {
		t.Errorf("it was held for %v", held)
	}
	release(t, again)
}

// An even number is accepted, with its quorum.
func TestRedlockEvenNumber(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 4), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	release(t, acquire(t, r, key))
	servers[0].Kill()
	release(t, acquire(t, r, key))
	servers[1].Kill()
	var q *lock.QuorumError
	if _, err := r.Acquire(t.Context(), key); !errors.As(err, &q) || q.Need != 3 || q.Held != 2 {
		t.Error(err)
	}
}
