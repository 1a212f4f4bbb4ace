package fencesql

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock/fence"
)

// Missing and different tables are ErrSchema, which names the remedy. The transaction is still its owner's: it can be rolled back, and the pool goes on.
func TestWrongSchema(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		guards := map[string]func(g *fence.Guard) error{
			"Enter": func(g *fence.Guard) error { return g.Enter(under(5)) },
			"Once": func(g *fence.Guard) error {
				return g.Once(effect("e", time.Now()), "s", func() error { t.Error("the effect is had"); return nil })
			},
		}
		for what, change := range map[string]string{
			"no tables":               "DROP TABLE signalbox_fence;\nDROP TABLE signalbox_once;\nDROP TABLE signalbox_horizon",
			"columns of another name": "ALTER TABLE signalbox_fence RENAME COLUMN holder TO owner;\nALTER TABLE signalbox_once RENAME COLUMN born TO at",
			"no horizon":              "DELETE FROM signalbox_horizon",
		} {
			d := newDatabase(t, d.dialect)
			d.run(t, change)
			for name, guard := range guards {
				if what == "no horizon" && name == "Enter" {
					continue // it doesn't need it
				}
				tx, err := d.pool.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				g := fence.SQL(tx, d.dialect)
				if err := guard(g); !errors.Is(err, fence.ErrSchema) || !strings.Contains(err.Error(), "fence.Schema(fence."+d.dialect.String()+")") {
					t.Errorf("%s, %s: %v", what, name, err)
				}
				if again := g.Enter(under(6)); !errors.Is(again, fence.ErrSchema) {
					t.Errorf("%s, %s: after the failure the guard says %v", what, name, again)
				}
				if err := tx.Rollback(); err != nil {
					t.Errorf("%s, %s: the owner's rollback: %v", what, name, err)
				}
			}
			db := d.fence(t, fence.Config{})
			if err := db.Check(t.Context()); !errors.Is(err, fence.ErrSchema) {
				t.Errorf("%s: Check says %v", what, err)
			}
			if _, err := db.Sweep(t.Context(), time.Hour); !errors.Is(err, fence.ErrSchema) {
				t.Errorf("%s: Sweep says %v", what, err)
			}
			if what == "columns of another name" {
				continue
			}
			for range 2 { // it can be run again
				d.run(t, fence.Schema(d.dialect))
			}
			if err := db.Check(t.Context()); err != nil {
				t.Errorf("%s, mended: %v", what, err)
			}
		}
	})
}

// In a transaction that has failed or ended, a guard says so.
func TestAbortedTransaction(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		begin := func() *sql.Tx {
			tx, err := d.pool.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return tx
		}
		tx := begin()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := fence.SQL(tx, d.dialect).Enter(under(5)); err == nil || !strings.Contains(err.Error(), "has ended the transaction") {
			t.Errorf("it was rolled back: %v", err)
		}
		if d.dialect == fence.PostgreSQL {
			tx := begin()
			_, _ = tx.Exec("SELECT nothing")
			if err := fence.SQL(tx, d.dialect).Enter(under(5)); err == nil || !strings.Contains(err.Error(), "has ended the transaction") {
				t.Errorf("it has failed: %v", err)
			}
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := d.fence(t, fence.Config{}).InTx(ctx, func(tx *fence.Tx) error {
			err := errors.Join(tx.Enter(under(5)), d.earn(ctx, tx, "e")())
			cancel()
			return err
		})
		if err == nil || d.had(t, "e") != 0 {
			t.Errorf("its context has ended: %v, and %d effects", err, d.had(t, "e"))
		}
	})
}

// A database with a wrong clock doesn't sweep: it could forget everything.
func TestClockIsOff(t *testing.T) {
	t.Parallel()
	for _, dialect := range []fence.Dialect{fence.PostgreSQL, fence.MariaDB} {
		d := newDatabase(t, dialect)
		ctx := effect("e", time.Now())
		if err := d.fence(t, fence.Config{}).InTx(ctx, func(tx *fence.Tx) error { return tx.Once(ctx, "s", d.earn(ctx, tx, "e")) }); err != nil {
			t.Fatal(err)
		}
		if err := d.fence(t, fence.Config{}).Check(ctx); err != nil {
			t.Errorf("%v: its clock is right: %v", dialect, err)
		}
		switch dialect {
		case fence.PostgreSQL: // a function that hides the system's
			d.run(t, "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT pg_catalog.clock_timestamp() + interval ''30 days'''")
			d.dsn += ",pg_catalog"
			d.pool = d.open(t, "")
		case fence.MariaDB:
			d.pool = d.open(t, "&timestamp=4000000000")
		}
		db := d.fence(t, fence.Config{})
		if _, err := db.Sweep(t.Context(), time.Hour); err == nil || !strings.Contains(err.Error(), "clocks") {
			t.Errorf("%v: Sweep says %v", dialect, err)
		}
		if err := db.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "clocks") {
			t.Errorf("%v: Check says %v", dialect, err)
		}
		if n := d.number(t, "SELECT count(*) FROM signalbox_once"); n != 1 || d.number(t, "SELECT born FROM signalbox_horizon") != 0 {
			t.Errorf("%v: something was swept", dialect)
		}
	}
}

// Two transactions deadlock in MariaDB. The server rolls the victim back, and says 1213. What the victim does then commits by itself.
func deadlock(t *testing.T, d *database, victim func(name string) error) {
	t.Helper()
	other, err := d.pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	run := func(query string) {
		if _, err := other.Exec(query); err != nil {
			t.Error(err)
		}
	}
	for range 20 { // the one that has changed less is the victim
		run("INSERT INTO ledger (effect) VALUES ('other')")
	}
	run("UPDATE account SET balance = balance + 1 WHERE id = 8")
	if err := victim("UPDATE account SET balance = balance + 1 WHERE id = 7"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { run("UPDATE account SET balance = balance + 1 WHERE id = 7") })
	err = victim("UPDATE account SET balance = balance + 1 WHERE id = 8")
	all.Wait()
	if err == nil || !strings.Contains(err.Error(), "1213") {
		t.Fatalf("no deadlock: %v", err)
	}
}

// The trap: after 1213 a statement survives the caller's Rollback. A guard notices it.
func TestMariaDBDeadlock(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.MariaDB)
	d.run(t, "INSERT INTO account (id, balance, token) VALUES (8, 0, 0)")
	for name, c := range map[string]struct {
		after func(tx *sql.Tx) error
		left  int64
	}{
		"a statement": {func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO ledger (effect) VALUES ('a statement')")
			return err
		}, 1}, // the trap
		"Once": {func(tx *sql.Tx) error {
			return fence.SQL(tx, fence.MariaDB).Once(effect("e", time.Now()), "s", d.earn(t.Context(), tx, "Once"))
		}, 0},
		"Enter": {func(tx *sql.Tx) error {
			return errors.Join(fence.SQL(tx, fence.MariaDB).Enter(under(5)))
		}, 0},
	} {
		tx, err := d.pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		deadlock(t, d, func(query string) error { _, err := tx.Exec(query); return err })
		err = c.after(tx)
		if name != "a statement" && (err == nil || !strings.Contains(err.Error(), "no transaction")) {
			t.Errorf("%s: %v", name, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if n := d.had(t, name); n != c.left {
			t.Errorf("%s: %d effects after the rollback, want %d", name, n, c.left)
		}
	}
	// InTx rolls back and runs all of it again. A statement that would commit by itself isn't sent.
	tries := 0
	ctx := effect("replayed", time.Now())
	err := d.fence(t, fence.Config{}).InTx(ctx, func(tx *fence.Tx) error {
		tries++
		if tries == 1 {
			deadlock(t, d, func(query string) error { _, err := tx.ExecContext(ctx, query); return err })
			if err := d.earn(ctx, tx, "replayed")(); err == nil {
				t.Error("a statement runs after the deadlock")
			}
			var n int
			if err := tx.QueryRowContext(ctx, "SELECT 1").Scan(&n); err == nil {
				t.Error("a query runs after the deadlock")
			}
			return nil // it ignores all that
		}
		return tx.Once(ctx, "s", d.earn(ctx, tx, "replayed"))
	})
	if err != nil || tries != 2 || d.had(t, "replayed") != 1 {
		t.Errorf("%v after %d tries, with %d effects", err, tries, d.had(t, "replayed"))
	}
}

// SQLite: a transaction that reads first and writes later may fail with code 517, and no busy timeout helps. Replay runs it again. InTx has no such transactions.
func TestSQLiteSnapshot(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, fence.SQLite)
	ctx := effect("e", time.Now())
	tries := 0
	err := fence.Replay(ctx, fence.SQLite, func() error {
		tries++
		tx, err := d.pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		var n int
		if err := tx.QueryRow("SELECT count(*) FROM ledger").Scan(&n); err != nil {
			return err
		}
		if tries == 1 {
			d.run(t, "INSERT INTO ledger (effect) VALUES ('other')")
		}
		if err := fence.SQL(tx, fence.SQLite).Once(ctx, "s", d.earn(ctx, tx, "e")); err != nil {
			if !strings.Contains(err.Error(), "517") {
				t.Errorf("not code 517: %v", err)
			}
			return err
		}
		return tx.Commit()
	})
	if err != nil || tries != 2 || d.had(t, "e") != 1 {
		t.Errorf("%v after %d tries, with %d effects", err, tries, d.had(t, "e"))
	}
	// In InTx another writer comes after the end, though the transaction only reads at first.
	pool := d.open(t, "")
	d.dsn = strings.Replace(d.dsn, "busy_timeout(10000)", "busy_timeout(1)", 1)
	impatient := d.open(t, "")
	tries = 0
	err = d.fence(t, fence.Config{}).InTx(ctx, func(tx *fence.Tx) error {
		tries++
		var n int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n); err != nil {
			return err
		}
		if _, err := impatient.Exec("INSERT INTO ledger (effect) VALUES ('other')"); err == nil {
			t.Error("another writer comes between")
		}
		return d.earn(ctx, tx, "e")()
	})
	if err != nil || tries != 1 || d.had(t, "e") != 2 {
		t.Errorf("%v after %d tries, with %d effects", err, tries, d.had(t, "e"))
	}
	// BUSY at the beginning: InTx tries again until the other has ended.
	d.pool = impatient
	other, err := pool.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { _, _ = other.ExecContext(ctx, "COMMIT") })
	if err := d.fence(t, fence.Config{Tries: 1000}).InTx(ctx, func(tx *fence.Tx) error { return d.earn(ctx, tx, "e")() }); err != nil {
		t.Error(err)
	}
}

// Every mistake in the arguments of New is named.
func TestNew(t *testing.T) {
	t.Parallel()
	_, err := fence.New(nil, 9, fence.Config{Isolation: sql.LevelSnapshot, Tries: -1})
	for _, part := range []string{"*sql.DB", "Dialect(9)", "Isolation", "Tries"} {
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), part) {
			t.Errorf("%s isn't in: %v", part, err)
		}
	}
	d := newDatabase(t, fence.SQLite)
	if _, err := fence.New(d.pool, fence.SQLite, fence.Config{Isolation: sql.LevelSerializable}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("SQLite with a level: %v", err)
	}
	if err := fence.SQL(nil, fence.SQLite).Enter(under(1)); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("a nil transaction: %v", err)
	}
	if err := fence.Replay(t.Context(), 0, func() error { return nil }); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Replay of no dialect: %v", err)
	}
}
