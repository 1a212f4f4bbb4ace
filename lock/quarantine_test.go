package lock

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// shortDelay has a restart delay that a test can wait for.
var shortDelay = RedlockConfig{TTL: 500 * time.Millisecond, MaxTTL: 1200 * time.Millisecond, NodeTimeout: 200 * time.Millisecond}

// counts waits until all nodes count, and returns how long that took.
func counts(t *testing.T, r *Redlock) time.Duration {
	t.Helper()
	start := time.Now()
	redistest.Eventually(t, func() bool { return r.Check(t.Context()) == nil }, "all nodes count")
	return time.Since(start)
}

// quarantined checks that no lock can be had since the nodes' memory is too short. A call may go over a
// connection to a server that has been restarted since: then it says so, and the next one doesn't.
func quarantined(t *testing.T, r *Redlock, nodes int) {
	t.Helper()
	key := redistest.Name(t)
	var q *QuorumError
	redistest.Eventually(t, func() bool {
		q = nil
		l, err := r.TryAcquire(t.Context(), key)
		if !errors.As(err, &q) || len(q.Nodes) != nodes || errors.Is(err, ErrHeld) {
			t.Fatalf("%v, %v", l, err)
		}
		return !errors.Is(err, io.EOF)
	}, "each node is asked")
	// The first time the node itself says so; from then on we know.
	for _, n := range q.Nodes {
		if text := n.Error(); !strings.Contains(text, "lost its memory") {
			t.Error(text)
		}
	}
}

// A node that may have forgotten locks doesn't count until all of them would have expired, for
// any client: those that knew it before, and those that come later.
func TestRestartDelay(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r := delayedRedlockOn(t, servers, shortDelay)
	quarantined(t, r, 5) // all new
	if d := counts(t, r); d < shortDelay.MaxTTL-300*time.Millisecond {
		t.Errorf("new nodes count after %v", d)
	}
	release(t, acquire(t, r, key))
	later := delayedRedlockOn(t, servers, shortDelay)
	release(t, acquire(t, later, key)) // for a new client they count at once

	for _, s := range servers[:3] {
		s.Restart()
	}
	start := time.Now()
	newest := delayedRedlockOn(t, servers, shortDelay)
	for _, r := range []*Redlock{r, later, newest} {
		quarantined(t, r, 3)
	}
	counts(t, later)
	if d := time.Since(start); d < shortDelay.MaxTTL {
		t.Errorf("nodes that restarted count after %v", d)
	}
	counts(t, r)
	counts(t, newest)
	release(t, acquire(t, r, key))
	for i, s := range servers {
		if n := s.Client().Exists(t.Context(), freshMarker).Val(); n != 0 {
			t.Errorf("node %d counts, and has %s", i, freshMarker)
		}
	}
}

// The same without a restart: the server goes on, and its keys are gone.
func TestFlushedNodesDontCount(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	r, other := delayedRedlockOn(t, servers, shortDelay), delayedRedlockOn(t, servers, shortDelay)
	counts(t, r)
	counts(t, other)
	for _, s := range servers[:3] {
		if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	quarantined(t, r, 3)     // it sees that the markers are gone
	quarantined(t, r, 3)     // and leaves new ones,
	quarantined(t, other, 3) // which the other doesn't take for the old ones
	quarantined(t, other, 3)
	counts(t, r)
	counts(t, other)
	release(t, acquire(t, r, key))
	nothingLeft(t, servers, key)
}

// What is on disk before it is answered outlives a restart, so that there is nothing to wait for.
func TestAppendfsyncAlwaysCountsAtOnce(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3, "--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no")
	key := redistest.Name(t)
	c := shortDelay
	c.MaxTTL, c.TTL = time.Minute, 30*time.Second
	for _, s := range servers { // as if they had been up for a minute
		rdb := s.Client()
		run := parseServerInfo(rdb.Info(t.Context(), "server").Val())["run_id"]
		if err := rdb.Set(t.Context(), runMarker, run+" memory 1", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r := delayedRedlockOn(t, servers, c)
	l := acquire(t, r, key)
	for _, s := range servers {
		s.Kill()
		s.Restart()
	}
	for _, r := range []*Redlock{r, delayedRedlockOn(t, servers, c)} {
		redistest.Eventually(t, func() bool { _, err := r.TryAcquire(t.Context(), key); return errors.Is(err, ErrHeld) }, "they count, and the lock is held")
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, l)
	release(t, acquire(t, r, key))
	nothingLeft(t, servers, key)

	for _, s := range servers { // but not this
		if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	quarantined(t, r, 3)
}

// A marker key that holds something else is no reason to count.
func TestMarkerOfAnotherType(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	if err := servers[0].Client().HSet(t.Context(), runMarker, "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := delayedRedlockOn(t, servers, roomy).Acquire(t.Context(), redistest.Name(t))
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "nodes[0]") || !strings.Contains(err.Error(), runMarker) {
		t.Errorf("%v", err)
	}
}
