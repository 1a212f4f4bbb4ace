package fence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

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
		return &Tx{Guard: &Guard{dialect: SQLite, conn: sqlConn{tx}, lite: tx}, q: tx, commit: commit, rollback: func() { untilAfter(ctx, tx.Rollback) }}, nil
	}
	tx, err := db.pool.BeginTx(ctx, &sql.TxOptions{Isolation: db.cfg.Isolation})
	if err != nil {
		return nil, err
	}
	return postgresqlTx(ctx, tx), nil
}

// postgresqlTx returns the transaction that was begun. If fn has ended it by a COMMIT or ROLLBACK of its own, the commit
// fails: then it has no number any more, or another one.
func postgresqlTx(ctx context.Context, std *sql.Tx) *Tx {
	tx := &Tx{Guard: SQL(std, PostgreSQL), q: std, rollback: func() { _ = std.Rollback() }}
	tx.commit = func() error {
		if tx.xid == 0 { // no guard has written
			return std.Commit()
		}
		if tx.open != nil {
			tx.open() // else some drivers have no room for the question
		}
		var xid int64
		err := std.QueryRowContext(ctx, "SELECT coalesce(txid_current_if_assigned(), 0)").Scan(&xid)
		if err == nil && xid != tx.xid {
			err = ErrNoTransaction
		}
		if err != nil {
			tx.rollback()
			return err
		}
		return std.Commit()
	}
	return tx
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
// without autocommit: what comes after the deadlock is in another transaction, which the server begins by itself. It has no savepoint of that name, so the commit fails. Each block is one call. database/sql has begun
// a transaction before the first block, which ends that one.
const (
	mariadbBegin    = "BEGIN NOT ATOMIC COMMIT; SET @signalbox_autocommit = @@autocommit, autocommit = 0; SET TRANSACTION ISOLATION LEVEL %s; START TRANSACTION; SAVEPOINT signalbox_fence; END"
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
		// The *sql.Tx rolls back when ctx ends, so that nobody waits for its locks, and closes rows that fn leaves open. The block ends its transaction and begins the guards'.
		tx, err := conn.BeginTx(ctx, nil)
		if err == nil {
			if _, err = tx.ExecContext(ctx, fmt.Sprintf(mariadbBegin, strings.ToUpper(db.cfg.Isolation.String()))); err == nil {
				return mariadbTx(ctx, conn, tx), nil
			}
			_ = tx.Rollback()
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

// mariadbTx returns the transaction that was begun on a connection.
func mariadbTx(ctx context.Context, conn *sql.Conn, std *sql.Tx) *Tx {
	tx := &Tx{Guard: &Guard{dialect: MariaDB, conn: sqlConn{std}}, q: std}
	undo := func() {
		_ = std.Rollback()
		if _, err := conn.ExecContext(context.WithoutCancel(ctx), mariadbRollback); err != nil {
			drop(conn)
			return
		}
		_ = conn.Close()
	}
	tx.rollback = func() { untilAfter(ctx, undo) }
	tx.commit = func() error {
		if ctx.Err() != nil {
			tx.rollback()
			return context.Cause(ctx)
		}
		if tx.open != nil {
			tx.open() // else the server's answer would stand behind the rows
		}
		if _, err := std.ExecContext(context.WithoutCancel(ctx), mariadbCommit); err != nil {
			tx.rollback()
			if code(err) == 1305 { // there is no such savepoint
				err = fmt.Errorf("%w: %w", ErrNoTransaction, err)
			}
			return err
		}
		_ = std.Rollback() // it has ended on the server
		_ = conn.Close()
		return nil
	}
	return tx
}

// goodbye is how long InTx waits for a rollback after its context has ended. A COMMIT has no bound, as in database/sql.
const goodbye = 3 * time.Second

// untilAfter runs undo. It returns when undo does, or some time after ctx has ended: a server that hangs doesn't hold up the caller.
func untilAfter(ctx context.Context, undo func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		undo()
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	timer := time.NewTimer(goodbye)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
