package pglock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// A counter counts the statements of a pool, and of the connection that listens.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counter) count(config *pgxpool.Config) { config.ConnConfig.Tracer = c }

// settles waits until no statement was made for a second and a half. Waiters that look now and then never get there.
func (c *counter) settles(t *testing.T) int64 {
	t.Helper()
	n, since := c.n.Load(), time.Now()
	eventually(t, "waiters are silent", func() bool {
		if now := c.n.Load(); now != n {
			n, since = now, time.Now()
		}
		return time.Since(since) > 1500*time.Millisecond
	})
	return n
}

// Waiters of a process are silent while the lock is held. The release wakes one of them, by a notification, and they
// get the lock in the order of their coming.
func TestWaitersAreSilent(t *testing.T) {
	t.Parallel()
	const waiters, key = 20, "silent"
	var c counter
	a := locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: time.Minute})
	b := locker(t, dial(t, sharedURL(t), c.count), pglock.Config{TTL: time.Minute})
	l := acquire(t, a, key)
	granted := make(chan int, waiters)
	next := make(chan struct{})
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			l, err := b.Acquire(t.Context(), key)
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				return
			}
			granted <- i
			<-next
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		eventually(t, "it waits", func() bool { return pglock.Waiting(b, key) == i+1 })
	}
	before := c.settles(t)
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if first := <-granted; first != 0 {
		t.Errorf("waiter %d is first", first)
	}
	// The first asks and gets the lock. The next asks and finds it held.
	if n := c.settles(t) - before; n > 3 {
		t.Errorf("a release caused %d statements of a process with %d waiters", n, waiters)
	}
	for i := 1; i < waiters; i++ {
		next <- struct{}{}
		if n := <-granted; n != i {
			t.Errorf("waiter %d came in as number %d", n, i)
		}
	}
	close(next)
	all.Wait()
	// Each hand-over costs a release, its waiter's ask, and that of the next.
	if n := c.n.Load() - before; n > 5*waiters {
		t.Errorf("%d waiters made %d statements", waiters, n)
	}
}

// Nobody who waits: then a release sends no notification, which would make commits wait for each other.
func TestReleaseNotifiesOnlyWaiters(t *testing.T) {
	t.Parallel()
	pool := dial(t, sharedURL(t))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `LISTEN "signalbox:notifies"`); err != nil {
		t.Fatal(err)
	}
	schema, err := pglock.Schema("notifies")
	if err != nil {
		t.Fatal(err)
	}
	exec(t, pool, schema)
	p := locker(t, pool, pglock.Config{TTL: time.Minute, Table: "notifies"})
	for range 3 {
		l := acquire(t, p, "a")
		if _, err := p.TryAcquire(t.Context(), "a"); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("TryAcquire: %v", err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	exec(t, pool, `NOTIFY "signalbox:notifies", 'end'`)
	n, err := conn.Conn().WaitForNotification(t.Context())
	if err != nil || n.Payload != "end" {
		t.Errorf("a notification %v, %v, though nobody waited", n, err)
	}
}
