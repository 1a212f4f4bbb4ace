package fence

import (
	"context"
	"database/sql"
)

// A Tx is the transaction of [DB.InTx], with its guard. Run the statements by its methods: they are those that
// database/sql, sqlx and gorm (as a ConnPool) know. After a failure that ends the transaction they refuse to run.
type Tx struct {
	*Guard

	q        querier
	commit   func() error
	rollback func()
	open     func() // closes the last rows; in MariaDB there is one result at a time
}

// ExecContext is that of [sql.Tx].
func (tx *Tx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	tx.used = true
	res, err := tx.q.ExecContext(ctx, query, args...)
	return res, tx.saw(err)
}

// QueryContext is that of [sql.Tx].
func (tx *Tx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	tx.used = true
	rows, err := tx.q.QueryContext(ctx, query, args...)
	if err == nil {
		tx.open = func() { _ = rows.Close() }
	}
	return rows, tx.saw(err)
}

// QueryRowContext is that of [sql.Tx].
func (tx *Tx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if err := tx.ready(ctx); err != nil {
		return tx.q.QueryRowContext(refused{ctx, err}, query, args...)
	}
	tx.used = true
	row := tx.q.QueryRowContext(ctx, query, args...)
	tx.open = func() { _ = row.Scan() } // that closes it, if it is open
	_ = tx.saw(row.Err())
	return row
}

// PrepareContext is that of [sql.Tx]. Errors of the statement itself are not seen by the Tx: check them. If you don't, [DB.InTx] still returns an [ErrNoTransaction] when one of
// them has ended the transaction. In SQLite what the statement does after that has been committed by itself.
//
// Close the statement's rows before fn returns. If they are open, [DB.InTx] fails in MariaDB, and with some drivers of PostgreSQL once a guard has written.
func (tx *Tx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if err := tx.ready(ctx); err != nil {
		return nil, err
	}
	tx.used = true
	stmt, err := tx.q.PrepareContext(ctx, query)
	return stmt, tx.saw(err)
}

// saw notes an error after which the transaction can't go on. In MariaDB the statements after a deadlock would commit by themselves.
func (tx *Tx) saw(err error) error {
	if err != nil {
		switch tx.dialect.faultOf(err) {
		case faultReplay, faultBusy, faultAborted:
			return tx.fail(err)
		}
	}
	return err
}

// refused is a context that has ended with an error. A *sql.Row can't be made in another way.
type refused struct {
	context.Context
	err error
}

func (refused) Done() <-chan struct{} { return ended }
func (r refused) Err() error          { return r.err }

var ended = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
