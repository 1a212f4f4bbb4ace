package signalboxtest

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A DB is a database that has the tables of package outbox, or a transaction of it: a *sql.DB, *sql.Tx or *sql.Conn, or gorm's Statement.ConnPool.
type DB interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Relay enqueues the jobs that were written into the tables of an outbox, and deletes their rows. It returns how many rows there were. From then on the jobs are
// as those of a scheduler: [One], [All] and [Jobs.Enqueued] have them, in the order in which they were written, and [Jobs.WorkAll] works them.
//
// db sees the rows of committed transactions, so give each test a database of its own. If db is the transaction of the code under test, Relay sees its rows before
// they are committed, and a rollback takes them back. The jobs stay.
//
// Relay is for tests without an [outbox.Relay], and it does without what that one is for: batches, other relays and failures. If the code under test has handlers that enqueue through the
// outbox, call Relay and WorkAll by turns until Relay returns 0.
//
// Relay ends the test if the database refuses a statement, if a row is not valid, or if another program has taken rows meanwhile.
//
// [outbox.Relay]: https://pkg.go.dev/github.com/signalbox-go/signalbox/outbox#Relay
func (j *Jobs) Relay(ctx context.Context, db DB) int {
	j.t.Helper()
	if db == nil {
		j.t.Fatalf("signalboxtest: Relay: db is nil; want the database with the tables of the outbox, or a transaction of it")
		return 0
	}
	rows, err := readRows(ctx, db)
	if err != nil {
		j.t.Fatalf("signalboxtest: Relay: can't read the rows of the outbox: %v; has the database the tables of outbox.Schema?", err)
		return 0
	}
	if len(rows) == 0 {
		return 0
	}
	items, err := itemsOf(rows, time.Now())
	if err != nil {
		j.t.Fatalf("signalboxtest: Relay: %v", err)
		return 0
	}
	if err := deleteRows(ctx, db, rows); err != nil {
		j.t.Fatalf("signalboxtest: Relay: can't delete the rows of the outbox: %v", err)
		return 0
	}
	for i, item := range items {
		q := store.New(j.rdb, rows[i].namespace, rows[i].queue)
		if _, err := q.Enqueue(ctx, q.NewLane(), []store.Item{item}); err != nil {
			j.t.Fatalf("signalboxtest: Relay: row %d: %v", rows[i].pos, err)
			return i
		}
	}
	return len(rows)
}

// A row is a job in the table of an outbox.
type row struct {
	pos              int64
	shard            string
	namespace, queue string
	parcel           store.Parcel
	due, born        int64 // in µs
}

// readRows returns the rows that wait, in their order.
func readRows(ctx context.Context, db DB) (all []row, err error) {
	rows, err := db.QueryContext(ctx, "SELECT pos, shard, id, class, due, born, envelope FROM signalbox_outbox WHERE batch = 0 ORDER BY pos")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.pos, &r.shard, &r.parcel.ID, &r.parcel.Class, &r.due, &r.born, &r.parcel.Envelope); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// itemsOf returns the jobs of rows, as a relay enqueues them at that time.
func itemsOf(rows []row, now time.Time) ([]store.Item, error) {
	items := make([]store.Item, len(rows))
	for i := range rows {
		r := &rows[i]
		var number int
		var ok bool
		if r.namespace, r.queue, number, ok = parcelseam.ParseShard(r.shard); !ok {
			return nil, fmt.Errorf("row %d can't be enqueued: its shard is %q; want namespace:queue/number", r.pos, r.shard)
		}
		if r.due > 0 {
			r.parcel.Due = time.UnixMicro(r.due)
		}
		if parcelseam.IsStrict(number) {
			r.parcel = r.parcel.WithSequence(r.pos)
		}
		var err error
		if items[i], err = r.parcel.Item(max(now.Sub(time.UnixMicro(max(r.born, r.due))), 0)); err != nil {
			return nil, fmt.Errorf("row %d can't be enqueued: %w", r.pos, err)
		}
	}
	return items, nil
}

// deleteRows deletes rows. The statement has no arguments, whose form differs between databases.
func deleteRows(ctx context.Context, db DB, rows []row) error {
	list := make([]string, len(rows))
	for i, r := range rows {
		list[i] = strconv.FormatInt(r.pos, 10)
	}
	res, err := db.ExecContext(ctx, "DELETE FROM signalbox_outbox WHERE batch = 0 AND pos IN ("+strings.Join(list, ",")+")")
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err == nil && n != int64(len(rows)) {
		return fmt.Errorf("%d of %d were there: another program takes rows of this database; give each test one of its own", n, len(rows))
	}
	return nil
}
