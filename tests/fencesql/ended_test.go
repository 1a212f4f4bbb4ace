package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/signalbox-go/signalbox/lock/fence"
)

// fn overlooks a deadlock that a *sql.Stmt or *sql.Rows has met, which the Tx doesn't see. Nothing of it lands, at any isolation level, and the session is as it was.
func TestOverlookedDeadlock(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.MariaDB)
	d.run(t, "INSERT INTO account (id, balance, token) VALUES (8, 0, 0)")
	ways := map[string]func(ctx context.Context, tx *fence.Tx) func(query string) error{
		"Stmt": func(ctx context.Context, tx *fence.Tx) func(query string) error {
			return func(query string) error {
				stmt, err := tx.PrepareContext(ctx, query)
				if err != nil {
					return err
				}
				defer stmt.Close()
				_, err = stmt.ExecContext(ctx)
				return err
			}
		},
		"Rows": func(ctx context.Context, tx *fence.Tx) func(query string) error {
			return func(query string) error {
				if strings.HasSuffix(query, "7") {
					_, err := tx.ExecContext(ctx, query)
					return err
				}
				rows, err := tx.QueryContext(ctx, "SELECT id FROM account WHERE id > 7 AND id < 9 FOR UPDATE")
				if err != nil {
					t.Errorf("the error comes before the rows: %v", err)
					return err
				}
				defer rows.Close()
				for rows.Next() {
				}
				return rows.Err()
			}
		},
	}
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelSerializable} {
		for _, more := range []string{"", "&autocommit=0"} {
			for way, statements := range ways {
				name := strings.ReplaceAll(fmt.Sprint(way, ":", level, more), " ", "")
				pool := d.open(t, more)
				pool.SetMaxOpenConns(1)
				db, err := fence.New(pool, fence.MariaDB, fence.Config{Isolation: level, Tries: 1})
				if err != nil {
					t.Fatal(err)
				}
				ctx := effect(name, time.Now())
				err = db.InTx(ctx, func(tx *fence.Tx) error {
					_ = tx.Once(ctx, "s", func() error {
						deadlock(t, d, statements(ctx, tx))
						return nil
					})
					_ = d.earn(ctx, tx, name)()
					return nil
				})
				if !errors.Is(err, fence.ErrNoTransaction) {
					t.Errorf("%s: %v", name, err)
				}
				if n := d.had(t, name); n != 0 {
					t.Errorf("%s: %d effects", name, n)
				}
				var autocommit, within int
				if err := pool.QueryRow("SELECT @@autocommit, @@in_transaction").Scan(&autocommit, &within); err != nil || autocommit != map[string]int{"": 1, "&autocommit=0": 0}[more] || within != 0 {
					t.Errorf("%s: afterwards autocommit is %d, in_transaction %d: %v", name, autocommit, within, err)
				}
				// The next transaction is none the worse.
				if err := db.InTx(ctx, func(tx *fence.Tx) error { return tx.Once(ctx, "s", d.earn(ctx, tx, name)) }); err != nil || d.had(t, name) != 1 {
					t.Errorf("%s: the next one: %v, %d effects", name, err, d.had(t, name))
				}
				pool.Close()
			}
		}
	}
	if n := d.number(t, "SELECT count(*) FROM signalbox_once"); n != 8 {
		t.Errorf("%d records", n)
	}
}

// A statement that commits ends the guard: the error says so.
func TestImplicitCommit(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.MariaDB)
	err := d.fence(t, fence.Config{}).InTx(t.Context(), func(tx *fence.Tx) error {
		_, err := tx.ExecContext(t.Context(), "CREATE TABLE other (n bigint)")
		return err
	})
	if !errors.Is(err, fence.ErrNoTransaction) {
		t.Errorf("got %v", err)
	}
}

// fn ends the transaction by a statement of its own: the error says so, whichever guard has run, and whatever fn does next.
func TestEndedByHand(t *testing.T) {
	t.Parallel()
	for _, dialect := range []fence.Dialect{fence.PostgreSQL, fence.MariaDB, fence.SQLite} {
		d := newDatabase(t, dialect)
		db := d.fence(t, fence.Config{})
		for _, end := range []string{"COMMIT", "ROLLBACK"} {
			for next, then := range map[string]string{"nothing": "", "a write": "UPDATE account SET balance = balance + 1", "another transaction": "BEGIN"} {
				for _, guard := range []string{"Enter", "Once"} {
					name := strings.ReplaceAll(fmt.Sprintf("%v: %s, then %s, after %s", dialect, end, next, guard), " ", "-")
					ctx := effect(name, time.Now())
					err := db.InTx(ctx, func(tx *fence.Tx) error {
						var err error
						if guard == "Enter" {
							err = tx.Enter(under(5))
						} else {
							err = tx.Once(ctx, "s", d.earn(ctx, tx, name))
						}
						if err != nil {
							return err
						}
						if _, err := tx.ExecContext(ctx, end); err != nil {
							return err
						}
						if then != "" {
							_, _ = tx.ExecContext(ctx, then) // SQLite's Tx notices here
						}
						return nil
					})
					if !errors.Is(err, fence.ErrNoTransaction) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		}
		// The connections are as they were.
		ctx := effect("afterwards", time.Now())
		if err := db.InTx(ctx, func(tx *fence.Tx) error {
			return errors.Join(tx.Enter(under(6)), tx.Once(ctx, "s", d.earn(ctx, tx, "afterwards")))
		}); err != nil || d.had(t, "afterwards") != 1 {
			t.Errorf("%v: afterwards: %v, %d effects", dialect, err, d.had(t, "afterwards"))
		}
	}
}

// A guard in a transaction of PostgreSQL that isn't the one of the guard before says so.
func TestGuardsInTwoTransactions(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.PostgreSQL)
	ctx := effect("two", time.Now())
	tx, err := d.pool.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	g := fence.SQL(tx, fence.PostgreSQL)
	if err := g.Enter(under(5)); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := g.Once(ctx, "s", d.earn(ctx, tx, "two")); !errors.Is(err, fence.ErrNoTransaction) {
		t.Errorf("Once: %v", err)
	}
	if n := d.had(t, "two"); n != 0 {
		t.Errorf("%d effects", n)
	}
}

// InTx runs at the level that it is told, also in MariaDB, where it begins by statements of its own.
func TestLevel(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.MariaDB)
	for level, want := range map[sql.IsolationLevel]int64{0: 1, sql.LevelReadCommitted: 1, sql.LevelRepeatableRead: 0} {
		d.run(t, "UPDATE account SET balance = 0")
		read := func(tx *fence.Tx) (n int64, err error) {
			err = tx.QueryRowContext(t.Context(), "SELECT balance FROM account WHERE id = 7").Scan(&n)
			return n, err
		}
		err := d.fence(t, fence.Config{Isolation: level}).InTx(t.Context(), func(tx *fence.Tx) error {
			if _, err := read(tx); err != nil {
				return err
			}
			d.run(t, "UPDATE account SET balance = 1")
			if n, err := read(tx); n != want || err != nil {
				t.Errorf("%v: the balance is %d, want %d: %v", level, n, want, err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// In SQLite a constraint may roll back. What comes after it isn't sent, and a guard has no effect.
func TestSQLiteRollsBack(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.SQLite)
	d.run(t, "CREATE TABLE one (n BIGINT UNIQUE ON CONFLICT ROLLBACK)")
	d.run(t, "INSERT INTO one VALUES (1)")
	db := d.fence(t, fence.Config{})
	overlook := func(ctx context.Context, tx *fence.Tx) error {
		stmt, err := tx.PrepareContext(ctx, "INSERT INTO one VALUES (1)")
		if err != nil {
			return err
		}
		defer stmt.Close()
		if _, err := stmt.ExecContext(ctx); err == nil {
			t.Error("no error")
		}
		return nil
	}
	for name, after := range map[string]func(ctx context.Context, tx *fence.Tx) error{
		"nothing":     func(context.Context, *fence.Tx) error { return nil },
		"a statement": func(ctx context.Context, tx *fence.Tx) error { _ = d.earn(ctx, tx, "e")(); return nil },
		"a query": func(ctx context.Context, tx *fence.Tx) error {
			var n int64
			_ = tx.QueryRowContext(ctx, "INSERT INTO ledger (effect) VALUES ('e') RETURNING n").Scan(&n)
			return nil
		},
		"Once": func(ctx context.Context, tx *fence.Tx) error { _ = tx.Once(ctx, "s", d.earn(ctx, tx, "e")); return nil },
	} {
		ctx := effect(strings.ReplaceAll(name, " ", "-"), time.Now())
		for where, fn := range map[string]func(tx *fence.Tx) error{
			"before": func(tx *fence.Tx) error {
				if err := overlook(ctx, tx); err != nil {
					return err
				}
				return after(ctx, tx)
			},
			"in Once": func(tx *fence.Tx) error {
				return tx.Once(ctx, "first", func() error {
					if err := overlook(ctx, tx); err != nil {
						return err
					}
					return after(ctx, tx)
				})
			},
		} {
			if err := db.InTx(ctx, fn); !errors.Is(err, fence.ErrNoTransaction) {
				t.Errorf("%s, %s: %v", name, where, err)
			}
			if n, records := d.had(t, "e"), d.number(t, "SELECT count(*) FROM signalbox_once"); n != 0 || records != 0 {
				t.Errorf("%s, %s: %d effects, %d records", name, where, n, records)
			}
		}
		// A transaction of the caller's own.
		tx, err := d.pool.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("INSERT INTO one VALUES (1)"); err == nil {
			t.Error("no error")
		}
		g := fence.SQL(tx, fence.SQLite)
		if err := errors.Join(g.Once(ctx, "s", d.earn(ctx, tx, "e")), g.Enter(under(5))); !errors.Is(err, fence.ErrNoTransaction) {
			t.Errorf("SQL: %v", err)
		}
		_ = tx.Rollback()
		if n := d.had(t, "e") + d.number(t, "SELECT count(*) FROM signalbox_fence"); n != 0 {
			t.Errorf("SQL: %d rows", n)
		}
	}
}

// While fn still runs, a transaction whose context has ended holds up nobody.
func TestEndedContextFreesTheResource(t *testing.T) {
	t.Parallel()
	for _, dialect := range []fence.Dialect{fence.PostgreSQL, fence.MariaDB} {
		d := newDatabase(t, dialect)
		db := d.fence(t, fence.Config{})
		ctx, cancel := context.WithCancel(under(5))
		err := db.InTx(ctx, func(tx *fence.Tx) error {
			if err := tx.Enter(ctx); err != nil {
				return err
			}
			cancel()
			within(t, "a newer holder", func() {
				if err := db.InTx(under(6), func(tx *fence.Tx) error { return tx.Enter(under(6)) }); err != nil {
					t.Errorf("%v: a newer holder: %v", dialect, err)
				}
			})
			_ = d.earn(context.Background(), tx, "late")()
			return nil
		})
		if !errors.Is(err, context.Canceled) || d.had(t, "late") != 0 {
			t.Errorf("%v: %v, %d effects", dialect, err, d.had(t, "late"))
		}
	}
}

// InTx waits for a lock for at most 10 s, unless the database has a bound of its own.
func TestBoundOfWaits(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.PostgreSQL)
	for more, want := range map[string]string{"": "10s", "&lock_timeout=7000": "7s"} {
		pool := d.open(t, more)
		pool.SetMaxOpenConns(1)
		db, err := fence.New(pool, fence.PostgreSQL, fence.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			got := ""
			err = db.InTx(under(5), func(tx *fence.Tx) error {
				if err := tx.Enter(under(5)); err != nil { // it is still the first statement
					return err
				}
				return tx.QueryRowContext(t.Context(), "SHOW lock_timeout").Scan(&got)
			})
			if err != nil || got != want {
				t.Errorf("%q: lock_timeout is %s, want %s: %v", more, got, want, err)
			}
		}
		var after string
		if err := pool.QueryRow("SHOW lock_timeout").Scan(&after); err != nil || after != map[string]string{"": "0", "&lock_timeout=7000": "7s"}[more] {
			t.Errorf("%q: afterwards lock_timeout is %s: %v", more, after, err)
		}
	}
}

// PostgreSQL notices an Enter after a write, also one that was made past the guard.
func TestEnterAfterAWrite(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.PostgreSQL)
	conn, err := pgx.Connect(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, known := range []bool{false, true} { // whether the resource has a mark
		for statement, late := range map[string]bool{
			"SELECT 1": false,
			"UPDATE account SET balance = balance + 1":       true,
			"SELECT id FROM account WHERE id = 7 FOR UPDATE": true,
		} {
			guards := map[string]func(enter func(g *fence.Guard) error) error{
				"Pgx": func(enter func(g *fence.Guard) error) error {
					return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
						if _, err := tx.Exec(t.Context(), statement); err != nil {
							return err
						}
						return enter(fence.Pgx(tx))
					})
				},
				"SQL": func(enter func(g *fence.Guard) error) error {
					tx, err := d.pool.BeginTx(t.Context(), nil)
					if err != nil {
						return err
					}
					defer tx.Rollback()
					if _, err := tx.Exec(statement); err != nil {
						return err
					}
					return enter(fence.SQL(tx, fence.PostgreSQL))
				},
			}
			for name, guard := range guards {
				if !known {
					d.run(t, "DELETE FROM signalbox_fence")
				}
				err := guard(func(g *fence.Guard) error {
					return g.Enter(under(5), lease{"a", "redis", "h", 1}, lease{"b", "redis", "h", 1})
				})
				if late && (!errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "too late")) || !late && err != nil {
					t.Errorf("%s after %s, with a mark: %v: %v", name, statement, known, err)
				}
			}
		}
		tx := d.fence(t, fence.Config{})
		if err := tx.InTx(under(5), func(tx *fence.Tx) error {
			return tx.Enter(under(5), lease{"a", "redis", "h", 1}, lease{"b", "redis", "h", 1})
		}); err != nil {
			t.Error(err)
		}
	}
	// One that is stale is called stale.
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return fence.Pgx(tx).Enter(t.Context(), lease{"a", "redis", "other", 1})
	})
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v", err)
	}
}
