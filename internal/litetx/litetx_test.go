package litetx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/signalbox-go/signalbox/internal/litetx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a driver that notes what is run, and answers as it is told.
type fake struct {
	driver.Conn
	answer func(ctx context.Context, query string) error
	mu     sync.Mutex
	ran    []string
	closed bool
}

func (d *fake) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *fake) Driver() driver.Driver                        { return nil }
func (d *fake) Close() error                                 { d.closed = true; return nil }

func (d *fake) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	return d, d.run(ctx, "BEGIN")
}
func (d *fake) Commit() error                      { return d.run(context.Background(), "COMMIT") }
func (d *fake) Rollback() error                    { return d.run(context.Background(), "ROLLBACK") }
func (d *fake) ResetSession(context.Context) error { return nil }
func (d *fake) IsValid() bool                      { return true }

func (d *fake) run(ctx context.Context, query string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ran = append(d.ran, query)
	return d.answer(ctx, query)
}

func (d *fake) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.RowsAffected(0), d.run(ctx, query)
}

// A transaction that began while its context ended isn't left open on a connection of the pool: drivers say that the context has ended, though BEGIN has succeeded.
func TestBeginThatIsLate(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	d := &fake{answer: func(ctx context.Context, query string) error {
		if query == "BEGIN IMMEDIATE" {
			end()
		}
		return ctx.Err()
	}}
	pool := sql.OpenDB(d)
	defer pool.Close()
	if _, err := litetx.Begin(ctx, pool); !errors.Is(err, context.Canceled) || !slices.Contains(d.ran[2:], "ROLLBACK") || d.closed {
		t.Errorf("%v; ran %q, closed %v", err, d.ran, d.closed)
	}
}

// A connection that may have an open transaction isn't used again. One whose transaction has ended is: it may have a database in memory.
func TestRollbackFails(t *testing.T) {
	t.Parallel()
	for text, dropped := range map[string]bool{
		"cannot rollback - no transaction is active": false,
		"disk I/O error": true,
	} {
		d := &fake{answer: func(_ context.Context, query string) error {
			if query == "ROLLBACK" {
				return errors.New(text)
			}
			return nil
		}}
		pool := sql.OpenDB(d)
		tx, err := litetx.Begin(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		tx.Rollback()
		if d.closed != dropped {
			t.Errorf("%s: the connection is closed: %v, want %v", text, d.closed, dropped)
		}
		pool.Close()
	}
}

// A commit that fails rolls back. One whose context has ended isn't tried.
func TestCommit(t *testing.T) {
	t.Parallel()
	cause := errors.New("the lease was lost")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	busy := errors.New("database is locked")
	for _, c := range []struct {
		ctx  context.Context
		want error
		ran  []string
	}{
		{t.Context(), busy, []string{"BEGIN", "COMMIT", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"}},
		{ended, cause, []string{"BEGIN", "COMMIT", "BEGIN IMMEDIATE", "ROLLBACK", "ROLLBACK"}},
	} {
		ran := 0
		d := &fake{answer: func(_ context.Context, query string) error {
			if ran++; query == "COMMIT" && ran > 2 {
				return busy
			}
			return nil
		}}
		pool := sql.OpenDB(d)
		tx, err := litetx.Begin(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(c.ctx); !errors.Is(err, c.want) || !slices.Equal(d.ran, c.ran) {
			t.Errorf("%v; ran %q, want %q", err, d.ran, c.ran)
		}
		pool.Close()
	}
}
