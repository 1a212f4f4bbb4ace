// Package pgnotify wakes the relay of an outbox by PostgreSQL's NOTIFY, so that a row doesn't wait for the relay's next look.
//
// Transactions that call [Notify] cost 42 to 60 % of the writers' throughput, since PostgreSQL lets one of them commit at a time. Use it for the rows that
// must be quick, or have one process call it from time to time.
package pgnotify

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/signalbox-go/signalbox/outbox"
)

// channel is the name of the channel.
const channel = "signalbox_outbox"

const (
	// connectTimeout bounds the time in which a server answers that it listens.
	connectTimeout = 10 * time.Second
	// closeTimeout bounds the goodbye to a server. After it the connection is closed without.
	closeTimeout = time.Second
)

// Notify has the relays look for rows when tx commits.
func Notify(ctx context.Context, tx outbox.Execer) error {
	if _, err := tx.ExecContext(ctx, "NOTIFY "+channel); err != nil {
		return fmt.Errorf("pgnotify: notify: %w", err)
	}
	return nil
}

// A Waker listens on a connection of its own. It is an [outbox.Waker] for one relay.
type Waker struct {
	url      string
	patience time.Duration // connectTimeout

	mu   sync.Mutex
	conn *pgx.Conn // nil: none
}

// New returns a waker. url is that of the primary, as for pgx.Connect. It must not go through a pooler of transactions. New doesn't connect. Call
// Close at the end.
func New(url string) (*Waker, error) {
	if _, err := pgx.ParseConfig(url); err != nil {
		return nil, fmt.Errorf("pgnotify: the URL can't be parsed; want postgres://user@host/database")
	}
	return &Waker{url: url, patience: connectTimeout}, nil
}

// Wait returns nil when a transaction with Notify has committed, and after it has connected: what came before isn't known. It returns an error if the
// connection is lost, if the server doesn't answer a new one within 10 s, or if ctx has ended; after that it takes up to a second. The next call connects again.
func (w *Waker) Wait(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn == nil {
		return w.listen(ctx)
	}
	if _, err := w.conn.WaitForNotification(ctx); err != nil {
		bury(ctx, w.conn)
		w.conn = nil
		return fmt.Errorf("pgnotify: wait: %w", err)
	}
	return nil
}

// listen connects and listens.
func (w *Waker) listen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.url)
	if err != nil {
		return fmt.Errorf("pgnotify: connect: %w", err)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		bury(ctx, conn)
		return fmt.Errorf("pgnotify: listen: %w", err)
	}
	w.conn = conn
	return nil
}

// bury closes a connection that failed. The server may not take part in that.
func bury(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
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
