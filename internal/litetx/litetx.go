// Package litetx runs transactions of SQLite over database/sql that begin with BEGIN IMMEDIATE, and finds out whether there is a transaction.
//
// SQLite may end a transaction by itself: after a full disk, an I/O error, an interrupted write, or a constraint with ON CONFLICT ROLLBACK. The
// next statement then commits by itself. No SQL function says so.
package litetx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
)

// An Execer is a *sql.Tx or a *sql.Conn.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// A Tx is a transaction. It is for one goroutine at a time.
type Tx struct {
	*sql.Tx // for the statements. When it ends it closes rows that were left open: a *sql.Conn would wait for them for ever
	conn    *sql.Conn
}

// Begin begins a transaction on a connection of the pool's. Commit or Rollback must be called.
func Begin(ctx context.Context, pool *sql.DB) (*Tx, error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return nil, err
	}
	std, err := conn.BeginTx(ctx, nil)
	if err != nil {
		giveBack(conn) // if ctx has ended meanwhile, the driver may say so though the transaction is open
		return nil, err
	}
	tx := &Tx{std, conn}
	// A transaction that begins with a read can't become a writer if another one has written since. So the one that the driver has begun makes room for another.
	for _, statement := range []string{"COMMIT", "BEGIN IMMEDIATE"} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			tx.Rollback()
			return nil, err
		}
	}
	return tx, nil
}

// Commit commits, and gives the connection back, also if it fails. If ctx has ended it rolls back instead, and returns the context's cause.
func (tx *Tx) Commit(ctx context.Context) error {
	err := ctx.Err()
	if err == nil {
		err = tx.Tx.Commit()
	}
	if err != nil {
		tx.Rollback() // after BUSY the transaction is still open
		if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, sql.ErrTxDone)) {
			return context.Cause(ctx)
		}
		return err
	}
	if err := tx.conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

// Rollback rolls back, and gives the connection back. It does so also if ctx has ended.
func (tx *Tx) Rollback() {
	_ = tx.Tx.Rollback()
	giveBack(tx.conn)
}

// giveBack gives a connection back without a transaction.
func giveBack(conn *sql.Conn) {
	if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil && !Ended(err) {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool must not use a connection with an open transaction
	}
	_ = conn.Close()
}

// Within reports whether tx is in a transaction: there BEGIN is an error that changes nothing. If it isn't, that is so afterwards as well.
func Within(ctx context.Context, tx Execer) (bool, error) {
	ctx = context.WithoutCancel(ctx) // it waits for nothing, and must not be left half done
	_, err := tx.ExecContext(ctx, "BEGIN")
	switch {
	case err == nil:
		_, err = tx.ExecContext(ctx, "ROLLBACK")
		return false, err
	case strings.Contains(err.Error(), "within a transaction"):
		return true, nil
	}
	return false, err
}

// Ended reports whether COMMIT or ROLLBACK failed with err because there is no transaction.
func Ended(err error) bool { return strings.Contains(err.Error(), "no transaction is active") }
