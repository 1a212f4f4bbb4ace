package outbox_test

import (
	"context"
	"database/sql"

	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
)

type Invoice struct{ Order int }

func (Invoice) Kind() string { return "invoice" }

// Many jobs of one transaction are written in few statements.
func ExampleOutbox_EnqueueMany() {
	bill := func(ctx context.Context, db *sql.DB, box *outbox.Outbox, orders []int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		items := make([]scheduler.Item, len(orders))
		for i, order := range orders {
			items[i].Args = Invoice{Order: order}
		}
		if _, err := box.EnqueueMany(ctx, tx, items, scheduler.Queue("billing")); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = bill
}
