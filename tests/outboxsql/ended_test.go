package outboxsql

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

// A database may end a transaction without being asked. A caller that overlooks that must not enqueue a job, which would commit by itself.
func TestEndedTransaction(t *testing.T) {
	t.Parallel()
	type end struct {
		name  string
		dsn   string // more of it
		after func(t *testing.T, b *database, tx *sql.Tx)
		typed bool // the error is ErrNoTransaction
	}
	overlooked := func(query, want string) func(t *testing.T, b *database, tx *sql.Tx) {
		return func(t *testing.T, _ *database, tx *sql.Tx) {
			if _, err := tx.Exec(query); fmt.Sprint(err) != want && (want == "<nil>" || err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want %s", query, err, want)
			}
		}
	}
	for _, c := range []struct {
		d    outbox.Dialect
		ends []end
	}{
		{outbox.PostgreSQL, []end{{"division", "", overlooked("SELECT 1/0", "division"), false}}}, // the server refuses all until the rollback
		{outbox.MariaDB, []end{
			{"deadlock", "", deadlock, true},
			{"deadlock, without prepared statements", "&interpolateParams=true", deadlock, true},
			{"DDL", "", overlooked("CREATE TABLE other (n bigint)", "<nil>"), true}, // it commits
		}},
		{outbox.SQLite, []end{{"ON CONFLICT ROLLBACK", "", overlooked("INSERT INTO mine VALUES (1)", "UNIQUE"), true}}},
	} {
		t.Run(string(c.d), func(t *testing.T) {
			t.Parallel()
			b := open(t, c.d)
			b.exec(map[outbox.Dialect]string{outbox.SQLite: "CREATE TABLE mine (n bigint UNIQUE ON CONFLICT ROLLBACK)"}[c.d] + map[bool]string{true: "CREATE TABLE mine (n bigint PRIMARY KEY)"}[c.d != outbox.SQLite])
			b.exec("INSERT INTO mine VALUES (1), (2)")
			for _, ordered := range []bool{false, true} {
				box := b.box(outbox.Config{Ordered: ordered})
				for _, e := range c.ends {
					name := fmt.Sprintf("%s, ordered=%v", e.name, ordered)
					db, err := sql.Open(b.driver, b.dsn+e.dsn)
					if err != nil {
						t.Fatal(err)
					}
					tx, err := db.Begin()
					if err != nil {
						t.Fatal(err)
					}
					e.after(t, b, tx)
					id, err := box.Enqueue(bg, tx, note{}, scheduler.Group("g"))
					if err == nil || id != "" || errors.Is(err, outbox.ErrNoTransaction) != e.typed || !strings.Contains(err.Error(), "begin again") {
						t.Errorf("%s: %q, %v", name, id, err)
					}
					_ = tx.Rollback() // SQLite says that there is none
					if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); n != 0 {
						t.Errorf("%s: %d jobs after the rollback", name, n)
					}
					b.exec("DELETE FROM signalbox_outbox")
					if c.d == outbox.MariaDB {
						b.exec("DROP TABLE IF EXISTS other")
					}
					db.Close()
				}
				if c.d == outbox.PostgreSQL {
					continue
				}
				conn, err := b.db.Conn(bg)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := box.Enqueue(bg, conn, note{}, scheduler.Group("g")); !errors.Is(err, outbox.ErrNoTransaction) {
					t.Errorf("a connection without a transaction: %v", err)
				}
				for _, query := range []string{"BEGIN", "ROLLBACK"} { // no transaction was left open
					if _, err := conn.ExecContext(bg, query); err != nil {
						t.Errorf("afterwards %s: %v", query, err)
					}
				}
				_ = conn.Close()
				b.in(func(tx *sql.Tx) error { _, err := box.Enqueue(bg, tx, note{}, scheduler.Group("g")); return err })
				if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); n != 1 {
					t.Errorf("%d jobs of a transaction that commits", n)
				}
				b.exec("DELETE FROM signalbox_outbox")
			}
		})
	}
}

// deadlock makes tx the victim of a deadlock: MariaDB rolls back what has changed less.
func deadlock(t *testing.T, b *database, tx *sql.Tx) {
	t.Helper()
	other, err := b.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	for i := range 20 {
		if _, err := other.Exec("INSERT INTO mine VALUES (?)", i+100); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.Exec("UPDATE mine SET n = n WHERE n = 2"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec("SELECT n FROM mine WHERE n = 2 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("SELECT n FROM mine WHERE n = 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() { _, _ = other.Exec("DELETE FROM mine WHERE n = 1") })
	_, err = tx.Exec("DELETE FROM mine WHERE n = 2")
	wait.Wait()
	if err == nil || !strings.Contains(err.Error(), "1213") {
		t.Fatalf("no deadlock: %v", err)
	}
}

// In a MariaDB without autocommit the first statement begins a transaction, and Enqueue may be that one.
func TestWithoutAutocommit(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.MariaDB)
	db, err := sql.Open(b.driver, b.dsn+"&autocommit=0")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(bg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	box := b.box(outbox.Config{})
	for i, end := range []string{"ROLLBACK", "COMMIT"} {
		if _, err := box.Enqueue(bg, conn, note{}); err != nil {
			t.Error(err)
		}
		if _, err := conn.ExecContext(bg, end); err != nil {
			t.Error(err)
		}
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); n != int64(i) {
			t.Errorf("%d jobs after %s", n, end)
		}
	}
}

// A relay leaves the connection's settings as they were.
func TestRelayRestoresTheSession(t *testing.T) {
	t.Parallel()
	b := open(t, outbox.MariaDB)
	db, err := sql.Open(b.driver, b.dsn+"&idle_transaction_timeout=77")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	_ = b.db.Close()
	b.db = db
	b.in(func(tx *sql.Tx) error { _, err := b.box(outbox.Config{}).Enqueue(bg, tx, note{}); return err })
	rdb := redistest.New(t).Client()
	stop := b.relay(rdb, outbox.RelayConfig{})
	redistest.Eventually(t, func() bool { return enqueued(t, rdb, "default") == 1 }, "not enqueued")
	stop()
	if n := b.number("SELECT @@SESSION.idle_transaction_timeout"); n != 77 {
		t.Errorf("idle_transaction_timeout is %d", n)
	}
}

// A job can be enqueued in a guarded transaction. There it is enqueued if and only if that commits, whatever fn overlooks.
func TestInGuardedTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		for statement := range strings.SplitSeq(fence.Schema(fenceDialects[b.dialect]), ";\n") {
			if strings.TrimSpace(statement) != "" {
				b.exec(statement)
			}
		}
		db, err := fence.New(b.db, fenceDialects[b.dialect], fence.Config{})
		if err != nil {
			t.Fatal(err)
		}
		box := b.box(outbox.Config{Ordered: true})
		for _, end := range []error{errNo, nil} {
			err := db.InTx(bg, func(tx *fence.Tx) error {
				if _, err := box.Enqueue(bg, tx, note{}, scheduler.Group("g")); err != nil {
					return err
				}
				return end
			})
			if !errors.Is(err, end) {
				t.Errorf("got %v, want %v", err, end)
			}
		}
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); n != 1 {
			t.Errorf("%d jobs, want 1", n)
		}
		if b.dialect == outbox.PostgreSQL {
			return
		}
		err = db.InTx(bg, func(tx *fence.Tx) error {
			if _, err := tx.ExecContext(bg, "ROLLBACK"); err != nil {
				return err
			}
			_, _ = box.Enqueue(bg, tx, note{})
			return nil
		})
		if !errors.Is(err, fence.ErrNoTransaction) {
			t.Errorf("after a rollback: %v", err)
		}
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); n != 1 {
			t.Errorf("%d jobs, want 1", n)
		}
	})
}

var fenceDialects = map[outbox.Dialect]fence.Dialect{outbox.PostgreSQL: fence.PostgreSQL, outbox.MariaDB: fence.MariaDB, outbox.SQLite: fence.SQLite}
