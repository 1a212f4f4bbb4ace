package pglock_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// waits returns where the lock of a key comes that b waits for.
func waits(t *testing.T, b *pglock.Locker, key string) <-chan lock.Lock {
	t.Helper()
	got := make(chan lock.Lock, 1)
	go func() {
		l, err := b.Acquire(t.Context(), key)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	eventually(t, "it waits", func() bool { return pglock.Waiting(b, key) == 1 })
	return got
}

// The connection that listens breaks, and no new one can be made. The waiters know that nothing tells them of a release, and look
// now and then. They don't wait for the end of the holder's TTL.
func TestListeningEnds(t *testing.T) {
	t.Parallel()
	const key = "listening ends"
	var c counter
	var mu sync.Mutex
	var conns []net.Conn
	refused := false
	pool := dial(t, sharedURL(t), c.count)
	listen := pool.Config().ConnConfig.Copy()
	listen.Tracer = nil
	listen.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if refused {
			return nil, errors.New("refused")
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		conns = append(conns, conn)
		return conn, err
	}
	l := acquire(t, locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: 5 * time.Minute}), key)
	got := waits(t, locker(t, pool, pglock.Config{TTL: 5 * time.Minute, Listen: listen}), key)
	c.settles(t) // it listens
	mu.Lock()
	refused = true
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
	mu.Unlock()
	before := c.n.Load()
	eventually(t, "it looks now and then", func() bool { return c.n.Load() >= before+12 })
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if heir := <-got; heir != nil {
		if err := heir.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The connection that listens is made as the pool makes its own, with what BeforeConnect changes. A handler of notifications that the pool has doesn't get
// those of the locks.
func TestListensAsThePoolConnects(t *testing.T) {
	t.Parallel()
	const key = "listens as the pool"
	var c counter
	pool := dial(t, sharedURL(t), c.count, func(config *pgxpool.Config) {
		user := config.ConnConfig.User
		config.ConnConfig.User = "nobody_of_this_name"
		config.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			conn.User = user
			return nil
		}
		config.ConnConfig.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { t.Errorf("the pool was notified: %v", n) }
	})
	l := acquire(t, locker(t, dial(t, sharedURL(t)), pglock.Config{TTL: 5 * time.Minute}), key)
	got := waits(t, locker(t, pool, pglock.Config{TTL: 5 * time.Minute}), key)
	c.settles(t) // else it would look now and then
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if heir := <-got; heir != nil {
		if err := heir.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// countedConn counts what is sent on a connection.
type countedConn struct {
	net.Conn
	sent *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.sent.Add(1)
	return c.Conn.Write(b)
}

// Nothing comes on the connection that listens, so it is checked now and then. If PostgreSQL answers, the connection is kept. If nothing comes back, as after a
// firewall has forgotten the connection, waiters don't rely on it any more: they look now and then, and don't wait for the end of the holder's TTL.
func TestQuietListeningIsChecked(t *testing.T) {
	t.Parallel()
	const key = "quiet"
	link := servertest.NewLink(t, serverOf(t))
	var dials, sent atomic.Int64
	listen := dial(t, url(link)).Config().ConnConfig.Copy()
	listen.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return countedConn{conn, &sent}, err
	}
	pool := dial(t, sharedURL(t))
	b := locker(t, pool, pglock.Config{TTL: 5 * time.Minute, Listen: listen})
	pglock.CheckEach(b, 10*time.Millisecond)
	l := acquire(t, locker(t, pool, pglock.Config{TTL: 5 * time.Minute}), key)
	got := waits(t, b, key)
	eventually(t, "it listens", func() bool { return pglock.Listens(b) })
	before := sent.Load()
	eventually(t, "it is checked", func() bool { return sent.Load() >= before+5 })
	if n := dials.Load(); n != 1 || !pglock.Listens(b) {
		t.Errorf("%d connections, listens: %v; want that the first one goes on", n, pglock.Listens(b))
	}
	link.Hold()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if heir := <-got; heir != nil {
		if err := heir.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
