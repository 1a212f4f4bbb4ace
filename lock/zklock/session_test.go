package zklock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// A lock ends with its session, at the latest when the client learns of that: no lock of an old session looks alive in
// the next one.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	link, key := servertest.NewLink(t, server(t)), newKey()
	l, other := lockerOn(t, Config{TTL: time.Minute, SessionTimeout: time.Second}, link.Addr()), locker(t, Config{})
	k := acquire(t, l, key)
	if v := seen(t, other, key); !v.marked {
		t.Fatal("the lock has no mark")
	}
	link.Cut()
	eventually(t, "the session has ended", func() bool { return !seen(t, other, key).marked })
	if _, err := other.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryAcquire while the holder can't know that its session ended: %v; want ErrHeld", err)
	}
	if err := k.Context().Err(); err != nil {
		t.Errorf("nobody else can have the lock, and it is said to be lost: %v", err)
	}
	link.Heal()
	lost(t, k)
	if err := k.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Extend after the session ended: %v", err)
	}
	next := acquire(t, l, key) // in the next session, which gives up the old lease
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	if err := k.Release(t.Context()); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("Release of a lock of the last session: %v", err)
	}
	if err := next.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, next)
}

// A waiter whose session ended asks again at the end of the queue.
func TestWaiterOutlivesItsSession(t *testing.T) {
	t.Parallel()
	link, key := servertest.NewLink(t, server(t)), newKey()
	l, other := lockerOn(t, Config{SessionTimeout: 2 * time.Second}, link.Addr()), locker(t, Config{})
	holder := acquire(t, other, key)
	r := acquiring(t.Context(), l, key)
	queued := func() bool { return len(seen(t, other, key).queue) == 1 }
	eventually(t, "a waiter stands in the queue", queued)
	place := seen(t, other, key).queue[0].name
	// The server ends the session, but the client isn't cut off for as long.
	path, _ := pathOf(other.root, key)
	if _, err := ask(t.Context(), other.session, deletion(path+"/"+place)); err != nil {
		t.Fatal(err)
	}
	link.Drop()
	release(t, holder)
	got := <-r
	if got.err != nil {
		t.Fatal(got.err)
	}
	release(t, got.lock)
}

// When ZooKeeper is away for 5 s, waiters and new acquires get that as their error, and never ErrHeld.
func TestServiceAway(t *testing.T) {
	t.Parallel()
	link, key := servertest.NewLink(t, server(t)), newKey()
	l, other := lockerOn(t, Config{SessionTimeout: time.Second}, link.Addr()), locker(t, Config{})
	holder := acquire(t, other, key)
	waiter := acquiring(t.Context(), l, key)
	eventually(t, "a waiter stands in the queue", func() bool { return len(seen(t, other, key).queue) == 1 })
	link.Hold()
	fresh := acquiring(t.Context(), l, newKey())
	tried := make(chan result, 1)
	go func() {
		_, err := l.TryAcquire(t.Context(), key)
		tried <- result{err: err}
	}()
	for who, r := range map[string]<-chan result{"a waiter": waiter, "another key": fresh, "TryAcquire": tried} {
		if got := <-r; !errors.Is(got.err, errAway) || errors.Is(got.err, lock.ErrHeld) {
			t.Errorf("%s while nothing answers: %v", who, got.err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, key); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("Acquire with a deadline while nothing answers: %v", err)
	}
	link.Heal()
	release(t, holder)
	release(t, acquire(t, l, key))
}

// Close ends locks and waiters, and leaves nothing in ZooKeeper.
func TestClose(t *testing.T) {
	t.Parallel()
	key, queueKey := newKey(), newKey()
	l, other := locker(t, Config{}), locker(t, Config{})
	k, holder := acquire(t, l, key), acquire(t, other, queueKey)
	waiter := acquiring(t.Context(), l, queueKey)
	eventually(t, "a waiter stands in the queue", func() bool { return len(seen(t, other, queueKey).queue) == 1 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lost(t, k)
	if r := <-waiter; !errors.Is(r.err, errClosed) {
		t.Errorf("a waiter of a closed locker: %v", r.err)
	}
	if v := seen(t, other, key); v.lease != "" {
		t.Error("Close left a lease")
	}
	if v := seen(t, other, queueKey); len(v.queue) != 0 {
		t.Error("Close left a place in the queue")
	}
	if _, err := l.Acquire(t.Context(), key); !errors.Is(err, errClosed) {
		t.Errorf("Acquire after Close: %v", err)
	}
	if err := k.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release after Close: %v", err)
	}
	release(t, holder)
}

// Close ends everything even if ZooKeeper hangs.
func TestCloseWhileAway(t *testing.T) {
	t.Parallel()
	link := servertest.NewLink(t, server(t))
	l := lockerOn(t, Config{TTL: 2 * time.Second}, link.Addr())
	k := acquire(t, l, newKey())
	link.Hold()
	waiter := acquiring(t.Context(), l, newKey())
	begin := time.Now()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("Close took %v", took)
	}
	lost(t, k)
	if r := <-waiter; r.err == nil {
		t.Error("a closed locker granted a lock")
	}
	link.Heal()
	release(t, acquire(t, locker(t, Config{}), k.Key())) // after its TTL at the latest
}

// A server that is killed and started again costs nobody a lock, if that is quicker than the TTL.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	s := servertest.ZooKeeper(t, 1)[0]
	c := Config{TTL: 30 * time.Second, SessionTimeout: 30 * time.Second}
	a, b, key := lockerOn(t, c, s.Addr()), lockerOn(t, c, s.Addr()), newKey()
	k := acquire(t, a, key)
	r := acquiring(t.Context(), b, key)
	eventually(t, "a waiter stands in the queue", func() bool { return len(seen(t, a, key).queue) == 1 })
	s.Kill()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := k.Extend(t.Context()); err != nil {
		t.Fatalf("Extend after a restart: %v", err)
	}
	release(t, k)
	got := <-r
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.lock.Token() <= k.Token() {
		t.Errorf("token %d after %d", got.lock.Token(), k.Token())
	}
	release(t, got.lock)
}
