package pgnotify

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/outbox"
)

func TestMain(m *testing.M) { redistest.Main(m) }

type note struct{}

func (note) Kind() string { return "note" }

// A row is enqueued at once, though the relay looks only once a minute.
func TestWaker(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	url := servertest.PostgresURL(servertest.PostgreSQL(t, "fsync=off").Addr())
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(outbox.Schema(outbox.PostgreSQL)); err != nil {
		t.Fatal(err)
	}
	w, err := New(url)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.Background())
	rdb := redistest.New(t).Client()
	relay, err := outbox.NewRelay(db, rdb, outbox.RelayConfig{Dialect: outbox.PostgreSQL, Poll: time.Minute, Waker: w, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	redistest.Eventually(t, func() bool { // it listens
		var n int
		err := db.QueryRow("SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' OR query LIKE 'listen%'").Scan(&n)
		return err == nil && n > 0
	}, "nobody listens")
	box, err := outbox.New(outbox.PostgreSQL, outbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := box.Enqueue(ctx, tx, note{}); err != nil {
		t.Fatal(err)
	}
	if err := Notify(ctx, tx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool {
		c, err := store.New(rdb, "", "default").Looks().Counts(ctx)
		return err == nil && c.Total.Enqueued == 1
	}, "not enqueued")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBadURL(t *testing.T) {
	t.Parallel()
	if _, err := New("postgres://user:secret@host:port"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

// A stuckConn is a connection whose writes hang, once stuck is set, until their deadline or the end of the connection.
type stuckConn struct {
	net.Conn
	stuck  atomic.Bool
	closed chan struct{}
	once   sync.Once

	mu  sync.Mutex
	end chan struct{} // closed at the deadline
}

func (c *stuckConn) Write(b []byte) (int, error) {
	if !c.stuck.Load() {
		return c.Conn.Write(b)
	}
	c.mu.Lock()
	end := c.end
	c.mu.Unlock()
	select {
	case <-end:
	case <-c.closed:
	}
	return 0, errors.New("it is stuck")
}

func (c *stuckConn) SetDeadline(at time.Time) error {
	c.mu.Lock()
	if at.IsZero() {
		c.end = make(chan struct{})
	} else if !at.After(time.Now()) {
		close(c.end)
	}
	c.mu.Unlock()
	return c.Conn.SetDeadline(at)
}

func (c *stuckConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Wait returns when its context ends though the connection can't be closed in good order.
func TestWaitOnAStuckConnection(t *testing.T) {
	t.Parallel()
	url := servertest.PostgresURL(servertest.PostgreSQL(t, "fsync=off").Addr())
	var conn *stuckConn
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		conn = &stuckConn{Conn: c, closed: make(chan struct{}), end: make(chan struct{})}
		return conn, err
	}
	w, err := New(url)
	if err != nil {
		t.Fatal(err)
	}
	if w.conn, err = pgx.ConnectConfig(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.stuck.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Wait(ctx) }()
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v", err)
		}
	case <-time.After(8 * closeTimeout):
		t.Fatal("Wait has not returned")
	}
}

// Wait gives a server up that accepts connections and says nothing. The next call connects to one that serves.
func TestWaitOnASilentServer(t *testing.T) {
	t.Parallel()
	link := servertest.NewLink(t, servertest.PostgreSQL(t, "fsync=off").Addr())
	w, err := New(servertest.PostgresURL(link.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.Background())
	w.patience = 100 * time.Millisecond
	link.Hold()
	done := make(chan error, 1)
	go func() { done <- w.Wait(t.Context()) }()
	select {
	case err := <-done:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait = %v", err)
		}
	case <-time.After(10 * time.Second):
		link.Cut()
		t.Fatal("Wait has not returned")
	}
	link.Heal()
	w.patience = time.Minute
	if err := w.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v", err)
	}
}
