package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/litetx"
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
func (r *Relay) inTx(ctx context.Context, fn func(context.Context, dbTx) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if r.cfg.Dialect != SQLite {
		return r.onServer(ctx, fn)
	}
	tx, err := litetx.Begin(ctx, r.db)
	if err != nil {
		return err
	}
	if err := fn(ctx, dbTx{tx, SQLite}); err != nil {
		tx.Rollback()
		return err
	}
	return tx.Commit(ctx)
}

// The relay's sessions in MariaDB: it has no SET for one transaction. The value before may be that of the connection string.
const (
	mariadbIdle    = "SET @signalbox_idle = @@SESSION.idle_transaction_timeout, SESSION idle_transaction_timeout = %d"
	mariadbRestore = "SET SESSION idle_transaction_timeout = @signalbox_idle"
)

// onServer runs fn in a transaction of PostgreSQL or MariaDB. If this process is stopped in it, the server ends the transaction, so that its locks don't stop
// the other relays.
func (r *Relay) onServer(ctx context.Context, fn func(context.Context, dbTx) error) (err error) {
	conn, err := r.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := conn.Close(); err == nil && !errors.Is(closeErr, sql.ErrConnDone) {
			err = closeErr
		}
	}()
	idle := max(2*r.cfg.TakeOver, time.Second).Round(time.Second)
	if r.cfg.Dialect == MariaDB {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf(mariadbIdle, int(idle/time.Second))); err != nil {
			return err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if _, err := conn.ExecContext(ctx, mariadbRestore); err != nil {
				_ = conn.Raw(func(any) error { return errBad }) // the pool must not give it to anybody
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
