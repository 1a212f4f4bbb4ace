package outboxsql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

// counted counts the statements of a transaction.
type counted struct {
	outbox.Execer
	n *int
}

func (c counted) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	*c.n++
	return c.Execer.ExecContext(ctx, query, args...)
}

// Many jobs go in few statements, in their order, with the transaction or not at all.
func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *database) {
		box := b.box(outbox.Config{Ordered: true})
		items := make([]scheduler.Item, 1200)
		for i := range items {
			items[i] = scheduler.Item{Args: note{N: i}}
			if i%2 == 0 {
				items[i].Options = []scheduler.EnqueueOption{scheduler.Serial(fmt.Sprint("g", i%3))}
			}
			if i == 7 {
				items[i].Options = []scheduler.EnqueueOption{scheduler.ID("seven"), scheduler.Queue("other")}
			}
		}
		undone := errors.New("undone")
		err := b.try(func(tx *sql.Tx) error {
			if _, err := box.EnqueueMany(bg, tx, items); err != nil {
				return err
			}
			return undone
		})
		if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); !errors.Is(err, undone) || n != 0 {
			t.Fatalf("%v, %d rows after the rollback", err, n)
		}
		var ids []string
		statements := 0
		b.in(func(tx *sql.Tx) (err error) {
			// What is wrong leaves the transaction as it is.
			wrong := slices.Concat(items[:3], []scheduler.Item{{Args: note{}, Options: []scheduler.EnqueueOption{scheduler.ID("no ID")}}})
			if _, err := box.EnqueueMany(bg, tx, wrong); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "item 3") {
				t.Errorf("a wrong item: %v", err)
			}
			if ids, err := box.EnqueueMany(bg, tx, nil); err != nil || len(ids) != 0 {
				t.Errorf("no items: %q, %v", ids, err)
			}
			ids, err = box.EnqueueMany(bg, counted{tx, &statements}, items, scheduler.Queue("bulk"))
			return err
		})
		if len(ids) != 1200 || ids[7] != "seven" || b.number("SELECT COUNT(*) FROM signalbox_outbox") != 1200 || b.number("SELECT COUNT(*) FROM signalbox_outbox WHERE shard LIKE 'default:bulk/%'") != 1199 {
			t.Errorf("%d IDs", len(ids))
		}
		if statements > 3+5+1 { // three groups, and what SQLite asks
			t.Errorf("%d statements", statements)
		}
		rows, err := b.db.Query("SELECT id FROM signalbox_outbox ORDER BY pos")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for i := 0; rows.Next(); i++ {
			var id []byte
			if err := rows.Scan(&id); err != nil || !bytes.Equal(id, []byte(ids[i])) {
				t.Fatalf("row %d is of job %s, %v; want %s", i, id, err, ids[i])
			}
		}
		if err := rows.Err(); err != nil {
			t.Error(err)
		}
		// Large ones are split: each statement is about 1 MiB.
		large := make([]scheduler.Item, 9)
		for i := range large {
			large[i] = scheduler.Item{Args: note{Group: strings.Repeat("x", 400<<10)}}
		}
		statements = 0
		b.in(func(tx *sql.Tx) error {
			_, err := box.EnqueueMany(bg, counted{tx, &statements}, large)
			return err
		})
		if statements < 5 || statements > 7 {
			t.Errorf("%d statements for 3.6 MB", statements)
		}
	})
}

// Without a transaction nothing is written, also where a database would take a row without a shard.
func TestEnqueueManyWithoutATransaction(t *testing.T) {
	t.Parallel()
	for _, d := range []outbox.Dialect{outbox.MariaDB, outbox.SQLite} {
		t.Run(string(d), func(t *testing.T) {
			t.Parallel()
			b := open(t, d)
			conn, err := b.db.Conn(bg)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if d == outbox.MariaDB {
				if _, err := conn.ExecContext(bg, "SET SESSION sql_mode = ''"); err != nil {
					t.Fatal(err)
				}
			}
			_, err = b.box(outbox.Config{}).EnqueueMany(bg, conn, []scheduler.Item{{Args: note{}}, {Args: note{}}})
			if n := b.number("SELECT COUNT(*) FROM signalbox_outbox"); !errors.Is(err, outbox.ErrNoTransaction) || n != 0 {
				t.Errorf("%v, %d rows", err, n)
			}
			if _, err := b.box(outbox.Config{}).EnqueueMany(bg, b.db, nil); !errors.Is(err, signalbox.ErrInvalid) {
				t.Errorf("a *sql.DB: %v", err)
			}
		})
	}
}
