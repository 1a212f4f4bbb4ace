package redlock

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// shortDelay has a restart delay that a test can wait for.
var shortDelay = Config{TTL: 2500 * time.Millisecond, MaxTTL: 2500 * time.Millisecond, NodeTimeout: time.Second}

// counts waits until all nodes count, and returns how long that took.
func counts(t *testing.T, r *Locker) time.Duration {
	t.Helper()
	start := time.Now()
	redistest.Eventually(t, func() bool { return r.Check(t.Context()) == nil }, "all nodes count")
	return time.Since(start)
}

// quarantined checks that no lock can be had since the nodes' memory is too short. A call may go over a
// connection to a server that has been restarted since: then it says so, and the next one doesn't.
func quarantined(t *testing.T, r *Locker, nodes int) {
	t.Helper()
	key := redistest.Name(t)
	var q *lock.QuorumError
	redistest.Eventually(t, func() bool {
		q = nil
		l, err := r.TryAcquire(t.Context(), key)
		if !errors.As(err, &q) || len(q.Nodes) < nodes || errors.Is(err, lock.ErrHeld) {
			t.Fatalf("%v, %v", l, err)
		}
		return len(q.Nodes) == nodes && !errors.Is(err, io.EOF) // on a busy machine others, too, may answer too late
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
	begun := time.Now() // nobody has asked them before
	quarantined(t, r, 5)
	counts(t, r)
	if d := time.Since(begun); d < shortDelay.MaxTTL {
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
	for _, r := range []*Locker{r, later, newest} {
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

// For how long the marker of another memory has been there is told by the server's clock, which may have jumped. So
// a client that knew the node before waits for the whole delay by its own.
func TestRejoinWaitsByOurClock(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	c := roomy
	c.MaxTTL = time.Hour
	// settle makes new nodes count at once: as the key that says otherwise would be gone after a jump.
	settle := func() {
		t.Helper()
		if err := delayedRedlockOn(t, servers, c).Check(t.Context()); err == nil {
			t.Fatal("new nodes count")
		}
		everywhere(t, servers, func(_ int, rdb redis.UniversalClient) { rdb.Del(t.Context(), freshMarker) })
	}
	settle()
	before := delayedRedlockOn(t, servers, c)
	if err := before.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	everywhere(t, servers, func(_ int, rdb redis.UniversalClient) { rdb.FlushAll(t.Context()) })
	settle()
	if err := delayedRedlockOn(t, servers, c).Check(t.Context()); err != nil {
		t.Errorf("for a client that comes later: %v", err)
	}
	for range 2 { // it sees that the markers are others, and takes them over
		if err := before.Check(t.Context()); err == nil {
			t.Error("for a client that knew them before they count at once")
		}
	}
	if l, err := before.TryAcquire(t.Context(), redistest.Name(t)); err == nil {
		t.Errorf("it is granted token %d", l.Token())
	}
}

// A marker key that holds something else is no reason to count.
func TestMarkerOfAnotherType(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	if err := servers[0].Client().HSet(t.Context(), runMarker, "a", "b").Err(); err != nil {
		t.Fatal(err)
	}
	r := delayedRedlockOn(t, servers, shortDelay)
	redistest.Eventually(t, func() bool {
		var q *lock.QuorumError
		return errors.As(r.Check(t.Context()), &q) && len(q.Nodes) == 1
	}, "the others count")
	saysUnfit(t, r.Check(t.Context()), "nodes[0]", runMarker)
}
