package fence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/signalbox-go/signalbox/internal/litetx"
)

// begin begins a transaction of [DB.InTx].
func (db *DB) begin(ctx context.Context) (*Tx, error) {
	tx, err := db.beginPatient(ctx)
	if err == nil && db.dialect == PostgreSQL {
		if err = db.limit(ctx, tx.q); err != nil {
			tx.rollback()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("fence: begin: %w", err)
	}
	return tx, nil
}

// beginPatient begins a transaction that waits for locks for as long as the database lets it.
func (db *DB) beginPatient(ctx context.Context) (*Tx, error) {
	switch db.dialect {
	case MariaDB:
		return db.beginMariaDB(ctx)
	case SQLite:
		tx, err := litetx.Begin(ctx, db.pool)
		if err != nil {
			return nil, err
		}
		commit := func() error {
			err := tx.Commit(ctx)
			if err != nil && litetx.Ended(err) {
				return fmt.Errorf("%w: %w", ErrNoTransaction, err)
			}
			return err
		}
		return &Tx{Guard: &Guard{dialect: SQLite, conn: sqlConn{tx}, lite: tx}, q: tx, commit: commit, rollback: func() { tx.Rollback(ctx) }}, nil
	}
	tx, err := db.pool.BeginTx(ctx, &sql.TxOptions{Isolation: db.cfg.Isolation})
	if err != nil {
		return nil, err
	}
	return &Tx{Guard: SQL(tx, db.dialect), q: tx, commit: tx.Commit, rollback: func() { _ = tx.Rollback() }}, nil
}

// The values of DB.limits.
const (
	limitUnknown = iota
	limitSet     // the database has a lock_timeout
	limitNone
)

// limit bounds the waits for locks in a transaction of PostgreSQL, unless the database does. Neither statement takes a snapshot, which would be older than Enter.
func (db *DB) limit(ctx context.Context, q querier) error {
	known := db.limits.Load()
	if known == limitUnknown {
		var timeout string
		if err := q.QueryRowContext(ctx, "SHOW lock_timeout").Scan(&timeout); err != nil {
			return err
		}
		known = limitSet
		if timeout == "0" {
			known = limitNone
		}
		db.limits.Store(known)
	}
	if known == limitSet {
		return nil
	}
	_, err := q.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", maxWait.Milliseconds()))
	return err
}

// A deadlock ends MariaDB's transaction on the server. fn may overlook that: errors of a *sql.Stmt and of *sql.Rows aren't seen by the Tx. So the transaction runs
// without autocommit: what comes after the deadlock is in another transaction, which the server begins by itself. It has no savepoint of that name, so the commit fails. Each block is one call.
const (
	mariadbBegin    = "BEGIN NOT ATOMIC SET @signalbox_autocommit = @@autocommit, autocommit = 0; SET TRANSACTION ISOLATION LEVEL %s; START TRANSACTION; SAVEPOINT signalbox_fence; END"
	mariadbCommit   = "BEGIN NOT ATOMIC RELEASE SAVEPOINT signalbox_fence; COMMIT; SET autocommit = @signalbox_autocommit; END"
	mariadbRollback = "BEGIN NOT ATOMIC ROLLBACK; SET autocommit = @signalbox_autocommit; END"
)

// badConns is how many connections that turn out to be closed are passed over, as database/sql does.
const badConns = 3

func (db *DB) beginMariaDB(ctx context.Context) (*Tx, error) {
	for n := 1; ; n++ {
		conn, err := db.pool.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if _, err = conn.ExecContext(ctx, fmt.Sprintf(mariadbBegin, strings.ToUpper(db.cfg.Isolation.String()))); err == nil {
			return mariadbTx(ctx, conn), nil
		}
		drop(conn)
		if !errors.Is(err, driver.ErrBadConn) || n == badConns {
			return nil, err
		}
	}
}

// drop closes a connection. The pool doesn't get it back: nobody knows the state of its session.
func drop(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}

// mariadbTx returns the transaction that was begun on a connection. When ctx ends it is rolled back, as database/sql does, so that nobody waits for its locks.
func mariadbTx(ctx context.Context, conn *sql.Conn) *Tx {
	background := context.WithoutCancel(ctx)
	early := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(early)
		_, _ = conn.ExecContext(background, "ROLLBACK")
	})
	settle := func() (running bool) {
		if stop() {
			return true
		}
		<-early
		return false
	}
	undo := func() {
		if _, err := conn.ExecContext(background, mariadbRollback); err != nil {
			drop(conn)
			return
		}
		_ = conn.Close()
	}
	commit := func() error {
		if !settle() {
			undo()
			return context.Cause(ctx)
		}
		_, err := conn.ExecContext(background, mariadbCommit)
		if err != nil {
			undo()
			if code(err) == 1305 { // there is no such savepoint
				err = fmt.Errorf("%w: %w", ErrNoTransaction, err)
			}
			return err
		}
		if err := conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
			return err
		}
		return nil
	}
	return &Tx{
		Guard: &Guard{dialect: MariaDB, conn: sqlConn{conn}}, q: conn,
		commit: commit, rollback: func() { settle(); undo() },
	}
}
