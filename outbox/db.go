package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A session is what a transaction's statements go through.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A dbTx runs statements in a dialect.
type dbTx struct {
	session
	d Dialect
}

// exec runs a statement, and returns how many rows it changed.
func (t dbTx) exec(ctx context.Context, query string, args ...any) (int, error) {
	res, err := t.ExecContext(ctx, t.d.sql(query), args...)
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}

// scan reads one row.
func (t dbTx) scan(ctx context.Context, query string, args []any, into ...any) error {
	return t.QueryRowContext(ctx, t.d.sql(query), args...).Scan(into...)
}

// each calls add for each row.
func (t dbTx) each(ctx context.Context, query string, args []any, add func(scan func(into ...any) error) (more bool, err error)) error {
	rows, err := t.QueryContext(ctx, t.d.sql(query), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if more, err := add(rows.Scan); err != nil || !more {
			return err
		}
	}
	return rows.Err()
}

// plain runs statements outside of transactions.
func (r *Relay) plain() dbTx { return dbTx{r.db, r.cfg.Dialect} }

// inTx runs fn in a transaction at READ COMMITTED. Its bound is callTimeout.
func (r *Relay) inTx(ctx context.Context, fn func(context.Context, dbTx) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := conn.Close(); err == nil && !errors.Is(closeErr, sql.ErrConnDone) {
			err = closeErr
		}
	}()
	if r.cfg.Dialect != SQLite {
		return r.onServer(ctx, conn, fn)
	}
	end := func(word string) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, err := conn.ExecContext(ctx, word)
		return err
	}
	// A transaction of SQLite that begins with a read can't become a writer if another one has written since.
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		_ = end("ROLLBACK") // if ctx has ended meanwhile, the driver may say so though the transaction is open
		return err
	}
	if err := fn(ctx, dbTx{conn, SQLite}); err != nil {
		if end("ROLLBACK") != nil {
			_ = conn.Raw(func(any) error { return errBad }) // the pool must not give it to anybody
		}
		return err
	}
	if err := end("COMMIT"); err != nil {
		if end("ROLLBACK") != nil {
			_ = conn.Raw(func(any) error { return errBad })
		}
		return err
	}
	return nil
}

// onServer runs fn in a transaction of PostgreSQL or MariaDB. If this process is stopped in it, the server ends the transaction, so that its locks don't stop
// the other relays.
func (r *Relay) onServer(ctx context.Context, conn *sql.Conn, fn func(context.Context, dbTx) error) error {
	idle := max(2*r.cfg.TakeOver, time.Second).Round(time.Second)
	if r.cfg.Dialect == MariaDB { // it has no SET for one transaction
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION idle_transaction_timeout = %d", int(idle/time.Second))); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if _, err := conn.ExecContext(ctx, "SET SESSION idle_transaction_timeout = DEFAULT"); err != nil {
				_ = conn.Raw(func(any) error { return errBad })
			}
		}()
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if r.cfg.Dialect == PostgreSQL {
		_, err = tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", idle.Milliseconds()))
	}
	if err == nil {
		err = fn(ctx, dbTx{tx, r.cfg.Dialect})
	}
	if err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
