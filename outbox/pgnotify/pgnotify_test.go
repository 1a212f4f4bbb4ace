package pgnotify

import (
	"context"
	"database/sql"
	"log/slog"
	"strings"
	"testing"
	"time"

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
		c, err := store.New(rdb, "", "default").Counts(ctx)
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
