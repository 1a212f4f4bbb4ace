package fence

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"testing"
)

// late is a driver whose BEGIN succeeds, and says that its context has ended meanwhile, as drivers of SQLite do.
type late struct {
	driver.Conn
	end context.CancelFunc
	ran []string
}

func (d *late) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *late) Driver() driver.Driver                        { return nil }
func (d *late) Close() error                                 { return nil }

func (d *late) ExecContext(ctx context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	d.ran = append(d.ran, query)
	if query == "BEGIN IMMEDIATE" {
		d.end()
	}
	return driver.RowsAffected(0), ctx.Err()
}

// A transaction that began while its context ended isn't left open on a connection of the pool.
func TestBeginThatIsLate(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	d := &late{end: end}
	pool := sql.OpenDB(d)
	defer pool.Close()
	db, err := New(pool, SQLite, Config{})
	if err != nil {
		t.Fatal(err)
	}
	err = db.InTx(ctx, func(*Tx) error { t.Error("it runs"); return nil })
	if !errors.Is(err, context.Canceled) || !slices.Equal(d.ran, []string{"BEGIN IMMEDIATE", "ROLLBACK"}) {
		t.Errorf("%v; ran %q", err, d.ran)
	}
}
