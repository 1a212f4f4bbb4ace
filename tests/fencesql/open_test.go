package fencesql

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/fence"
)

// fn leaves rows open, or doesn't scan a row. As with a *sql.Tx, they end with the transaction: InTx doesn't wait for them.
func TestRowsLeftOpen(t *testing.T) {
	const query = "SELECT id FROM account UNION ALL SELECT id FROM account"
	ways := map[string]func(ctx context.Context, tx *fence.Tx) error{
		"Rows": func(ctx context.Context, tx *fence.Tx) error {
			rows, err := tx.QueryContext(ctx, query)
			if err == nil && !rows.Next() {
				err = rows.Err()
			}
			return err
		},
		"Row": func(ctx context.Context, tx *fence.Tx) error {
			return tx.QueryRowContext(ctx, query).Err()
		},
		"Stmt": func(ctx context.Context, tx *fence.Tx) error {
			stmt, err := tx.PrepareContext(ctx, query)
			if err != nil {
				return err
			}
			_, err = stmt.QueryContext(ctx)
			return err
		},
	}
	each(t, func(t *testing.T, d *database) {
		errFn := errors.New("fn fails")
		for way, open := range ways {
			for _, fails := range []bool{false, true} {
				pool := d.open(t, "")
				pool.SetMaxOpenConns(1)
				db, err := fence.New(pool, d.dialect, fence.Config{Tries: 1})
				if err != nil {
					t.Fatal(err)
				}
				d.run(t, "UPDATE account SET balance = 0")
				within(t, way, func() {
					err = db.InTx(context.Background(), func(tx *fence.Tx) error {
						if _, err := tx.ExecContext(context.Background(), "UPDATE account SET balance = 1 WHERE id = 7"); err != nil {
							return err
						}
						if err := open(context.Background(), tx); err != nil || !fails {
							return err
						}
						return errFn
					})
				})
				want, balance := error(nil), int64(1)
				switch {
				case !fails && way == "Stmt" && d.dialect == fence.MariaDB: // the Tx doesn't see these rows
					if err == nil {
						t.Errorf("%s: committed", way)
					}
					want, balance = err, 0
				case fails:
					want, balance = errFn, 0
				}
				if !errors.Is(err, want) || d.number(t, "SELECT balance FROM account WHERE id = 7") != balance {
					t.Errorf("%s, fails: %v: got %v, balance %d", way, fails, err, d.number(t, "SELECT balance FROM account WHERE id = 7"))
				}
				// The session is as it was.
				within(t, way+", again", func() { err = db.InTx(context.Background(), func(tx *fence.Tx) error { return nil }) })
				if err != nil {
					t.Errorf("%s, fails: %v: the next one: %v", way, fails, err)
				}
				pool.Close()
			}
		}
	})
}

// A server that hangs doesn't hold up InTx for long after its context has ended.
func TestServerHangsInARollback(t *testing.T) {
	t.Parallel()
	for _, dialect := range []fence.Dialect{fence.PostgreSQL, fence.MariaDB} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, dialect)
			addr := map[fence.Dialect]*shared{fence.PostgreSQL: &postgres, fence.MariaDB: &maria}[dialect].addr(t)
			link := servertest.NewLink(t, addr)
			d.dsn = strings.Replace(d.dsn, addr, link.Addr(), 1)
			pool := d.open(t, "")
			db, err := fence.New(pool, dialect, fence.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			within(t, "InTx", func() {
				err = db.InTx(ctx, func(tx *fence.Tx) error {
					if err := d.earn(ctx, tx, "late")(); err != nil {
						return err
					}
					link.Hold()
					cancel()
					return nil
				})
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			link.Heal()
			if n := d.had(t, "late"); n != 0 {
				t.Errorf("%d effects", n)
			}
			pool.Close()
		})
	}
}
