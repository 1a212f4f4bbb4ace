package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

const (
	// grace is how long a call goes on after its caller left. A call that is cut costs a connection.
	grace = 100 * time.Millisecond
	// conflictPause bounds the pause before a statement is run again that the server rolled back. It begins with 1 ms, and
	// doubles.
	conflictPause = 64 * time.Millisecond
)

// An answer is what a call returns.
type answer[T any] struct {
	row   T
	again bool // the statement was sent twice: nobody knows whether the server ran it the first time
	err   error
}

// call runs one statement outside of any transaction, and reads its one row. It returns when ctx ends, while the
// statement goes on. late gets the answer if nobody waits for it, or if nobody knows whether the statement ran; it may be
// nil.
//
// A connection that was broken before, as after a restart of the server, costs a second try. So every statement
// must give the same answer when it is run again.
func call[T any](ctx context.Context, p *Locker, timeout time.Duration, sql string, args []any, late func(T, error)) (T, error) {
	a := ask(ctx, p, timeout, sql, args, late)
	return a.row, a.err
}

// ask is call, and also returns whether the statement was sent twice.
func ask[T any](ctx context.Context, p *Locker, timeout time.Duration, sql string, args []any, late func(T, error)) answer[T] {
	if ctx.Err() != nil {
		return answer[T]{err: lease.Ended(ctx)}
	}
	answers := make(chan answer[T])
	left := make(chan struct{})
	go func() {
		run, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })()
		a := query[T](run, p, sql, args)
		if a.err != nil && run.Err() != nil && !isAnswer(a.err) {
			a.err = fmt.Errorf("PostgreSQL has not answered within %v, or all connections of the pool were in use: %w", timeout, a.err)
		}
		if a.err != nil && !isAnswer(a.err) && !errors.Is(a.err, pgx.ErrNoRows) && late != nil {
			select {
			case answers <- a:
			case <-left:
			}
			late(a.row, a.err)
			return
		}
		select {
		case answers <- a:
		case <-left:
			if late != nil {
				late(a.row, a.err)
			}
		}
	}()
	select {
	case a := <-answers:
		a.err = p.advise(a.err)
		return a
	case <-ctx.Done():
		close(left)
		return answer[T]{err: lease.Ended(ctx)}
	}
}

// query runs a statement, again if the connection was broken or the server rolled it back.
func query[T any](ctx context.Context, p *Locker, sql string, args []any) (a answer[T]) {
	pause := time.Millisecond
	for {
		a.row, a.err = once[T](ctx, p, sql, args, a.again)
		switch {
		case a.err == nil, ctx.Err() != nil, errors.Is(a.err, pgx.ErrNoRows):
			return a
		case isConflict(a.err):
			timer := time.NewTimer(rand.N(pause))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return a
			}
			pause = min(2*pause, conflictPause)
		case !isAnswer(a.err) && !a.again:
			a.again = true
		default:
			return a
		}
	}
}

// once runs a statement on a connection of the pool; a second try on one that answers.
func once[T any](ctx context.Context, p *Locker, sql string, args []any, again bool) (row T, err error) {
	conn, err := p.pool.Acquire(ctx)
	if err == nil && again {
		conn, err = p.answering(ctx, conn)
	}
	if err != nil {
		return row, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return row, err
	}
	return pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[T])
}

// answering returns a connection that answers a ping: conn, or the next ones of the pool. A restart of the server breaks all idle connections,
// and the pool drops a broken one only when somebody has used it. The error is that of the last ping, or of a new connection.
func (p *Locker) answering(ctx context.Context, conn *pgxpool.Conn) (*pgxpool.Conn, error) {
	for left := p.pool.Config().MaxConns; ; left-- {
		err := conn.Ping(ctx)
		if err == nil {
			return conn, nil
		}
		conn.Release()
		if left == 0 || ctx.Err() != nil {
			return nil, err
		}
		if conn, err = p.pool.Acquire(ctx); err != nil {
			return nil, err
		}
	}
}

// isAnswer reports whether an error is an answer of the server itself, which then changed nothing. A server that shuts
// down may have committed.
func isAnswer(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && !strings.HasPrefix(answer.Code, "57") && !strings.HasPrefix(answer.Code, "08")
}

// isConflict reports whether the server rolled a statement back that may succeed the next time. That happens if
// sessions run at REPEATABLE READ or above by default.
func isConflict(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (answer.Code == "40001" || answer.Code == "40P01")
}

// advise says what to do about an error.
func (p *Locker) advise(err error) error {
	var answer *pgconn.PgError
	if err == nil || !errors.As(err, &answer) {
		return err
	}
	switch answer.Code {
	case "42P01", "3F000":
		return fmt.Errorf("%w: there is no table %s; create it with pglock.Schema: %w", lock.ErrInvalid, p.table, err)
	case "42703", "42P10", "42804", "42883", "23514", "22P02", "42846", "42809", "55000":
		return fmt.Errorf("%w: the table %s is not that of pglock.Schema: %w", lock.ErrInvalid, p.table, err)
	case "42501":
		return fmt.Errorf("%w: the user needs SELECT, INSERT and UPDATE on the table %s: %w", lock.ErrInvalid, p.table, err)
	case "25006":
		return fmt.Errorf("the server takes no writes: it is a replica, or transactions are read-only by default: %w", err)
	}
	return err
}

// A fitness is the row of preflight.sql.
type fitness struct {
	Forgets, Unlogged bool
	Schemas           string
}

// preflight checks once that the server keeps what it has granted.
func (p *Locker) preflight(ctx context.Context) error {
	if p.checked.Load() {
		return nil
	}
	name := p.table
	if strings.Contains(name, ".") {
		name = ""
	}
	f, err := call[fitness](ctx, p, p.askTimeout, p.sql.preflight, []any{quoted(p.table), name}, nil)
	switch {
	case err != nil:
		return err
	case f.Forgets:
		return fmt.Errorf("%w: synchronous_commit is off for this user or database, so a crash could forget a lock that was granted; set it to local or on", lock.ErrInvalid)
	case f.Unlogged:
		return fmt.Errorf("%w: the table %s is unlogged or temporary, so a crash would empty it; use ALTER TABLE ... SET LOGGED", lock.ErrInvalid, p.table)
	case f.Schemas != "":
		return fmt.Errorf("%w: several schemas in which users may find it have a table %s: %s; users with other search_paths would lock in different tables, so name the schema in Config.Table, as schema.%s", lock.ErrInvalid, p.table, f.Schemas, p.table)
	}
	p.checked.Store(true)
	return nil
}
