package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/signalbox-go/signalbox/internal/litetx"
)

// A Guard guards one transaction. The transaction stays its owner's: a guard never commits or rolls back. After an
// error of a guard the transaction must be rolled back. Until then every call of the Guard returns that error. So
// nothing lands by accident.
//
// A Guard is for one goroutine at a time, as a transaction is.
type Guard struct {
	dialect Dialect
	conn    conn
	lite    litetx.Execer // the transaction, if it is one of SQLite's: see ready
	xid     int64         // the number of PostgreSQL's transaction, once a guard has written in it
	used    bool          // a statement ran: it is too late for Enter
	err     error         // the first failure
}

// conn is what a guard needs of a transaction.
type conn interface {
	exec(ctx context.Context, query string, args ...any) (rows int64, err error)
	scan(ctx context.Context, query string, args, into []any) error // sql.ErrNoRows, or an error with its message, if there is no row
}

// SQL returns a guard for a transaction of database/sql. If you use the transaction of [DB.InTx] you don't need it.
//
// After a failure roll back and run the whole transaction again; see [Replay]. In MariaDB a deadlock (error 1213) ends the
// transaction on the server, and in SQLite a full disk or an interrupted write may do so. The next statement then commits by itself. A guard that is called afterwards
// returns an [ErrNoTransaction]. It can't see statements of your own: check the error of each.
func SQL(tx *sql.Tx, d Dialect) *Guard {
	g := &Guard{dialect: d, conn: sqlConn{tx}}
	if err := d.check(); err != nil {
		g.err = err
	} else if tx == nil {
		g.err = invalid("the transaction is nil")
	} else if d == SQLite {
		g.lite = tx
	}
	return g
}

// Pgx returns a guard for a transaction of pgx, version 4 or later: fence.Pgx(tx), where tx is a pgx.Tx. The compiler infers the types.
// For [New], which takes a *sql.DB, make one of the pool by stdlib.OpenDBFromPool, of github.com/jackc/pgx/v5/stdlib.
//
// It refuses a pool and a connection: there each statement would commit by itself, and a record of [Guard.Once] could stay without its effect.
func Pgx[Tag interface{ RowsAffected() int64 }, Row interface{ Scan(dest ...any) error }](tx interface {
	Exec(ctx context.Context, query string, args ...any) (Tag, error)
	QueryRow(ctx context.Context, query string, args ...any) Row
	Commit(ctx context.Context) error // never called: only transactions have it
},
) *Guard {
	g := &Guard{dialect: PostgreSQL}
	if tx == nil {
		g.err = invalid("the transaction is nil")
		return g
	}
	g.conn = pgxConn{
		func(ctx context.Context, query string, args ...any) (int64, error) {
			tag, err := tx.Exec(ctx, query, args...)
			if err != nil {
				return 0, err
			}
			return tag.RowsAffected(), nil
		},
		func(ctx context.Context, query string, args, into []any) error {
			return tx.QueryRow(ctx, query, args...).Scan(into...)
		},
	}
	return g
}

// Err returns the error of the guard that failed, or nil.
func (g *Guard) Err() error { return g.err }

// fail notes the first failure and returns err.
func (g *Guard) fail(err error) error {
	if err != nil && g.err == nil {
		g.err = err
	}
	return err
}

// ready returns an error if an earlier guard has failed, or if SQLite has ended the transaction.
func (g *Guard) ready(ctx context.Context) error {
	if g.err != nil {
		return fmt.Errorf("fence: an earlier step of this transaction has failed; roll it back: %w", g.err)
	}
	if g.lite == nil {
		return nil
	}
	within, err := litetx.Within(ctx, g.lite)
	if err == nil && !within {
		err = ErrNoTransaction
	}
	if err != nil {
		return g.fail(g.dialect.explain("check the transaction", err))
	}
	return nil
}

// write runs a statement that raises a mark or records a step, and returns how many rows it wrote. In PostgreSQL all of
// them must be in one transaction: a COMMIT or ROLLBACK of the caller's own ends it, and what follows commits by itself.
func (g *Guard) write(ctx context.Context, query string, args ...any) (rows int64, err error) {
	if g.dialect != PostgreSQL {
		return g.conn.exec(ctx, query, args...)
	}
	var xid int64
	switch err := g.conn.scan(ctx, query, args, []any{&xid}); {
	case isNoRows(err):
		return 0, nil
	case err != nil:
		return 0, err
	case g.xid != 0 && xid != g.xid:
		return 0, ErrNoTransaction
	}
	g.xid = xid
	return 1, nil
}

func isNoRows(err error) bool {
	return errors.Is(err, sql.ErrNoRows) || err != nil && err.Error() == "no rows in result set" // pgx before 5.7
}

// querier is a *sql.Tx or a *sql.Conn.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

type sqlConn struct{ q querier }

func (c sqlConn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	res, err := c.q.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c sqlConn) scan(ctx context.Context, query string, args, into []any) error {
	return c.q.QueryRowContext(ctx, query, args...).Scan(into...)
}

type pgxConn struct {
	execute func(ctx context.Context, query string, args ...any) (int64, error)
	read    func(ctx context.Context, query string, args, into []any) error
}

func (c pgxConn) exec(ctx context.Context, query string, args ...any) (int64, error) {
	return c.execute(ctx, query, args...)
}

func (c pgxConn) scan(ctx context.Context, query string, args, into []any) error {
	return c.read(ctx, query, args, into)
}
