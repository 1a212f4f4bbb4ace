package outboxsql

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/gorm"

	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/outbox"
)

// The code of docs/effects.md and docs/effects that needs pgx or gorm is from this file, where it is compiled, and from TestPgx and
// TestGorm, which run it. TestDocsEffects at the root of the tree compares them.

// A Charge takes money from an account.
type Charge struct{ Account, Cents int64 }

// Kind names the work.
func (Charge) Kind() string { return "card.charge" }

var _ = func(ctx context.Context, pool *pgxpool.Pool, box *outbox.Outbox) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := box.Enqueue(ctx, pgxTx{tx}, Charge{Account: 7, Cents: 100})
		return err
	})
	return err
}

var _ = func(ctx context.Context, db *gorm.DB, box *outbox.Outbox) error {
	err := db.Transaction(func(tx *gorm.DB) error {
		_, err := box.Enqueue(ctx, tx.Statement.ConnPool, Charge{Account: 7, Cents: 100})
		return err
	})
	return err
}

var _ = func(ctx context.Context, pool *pgxpool.Pool) error {
	err := fence.Replay(ctx, fence.PostgreSQL, func() error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			guard := fence.Pgx(tx)
			if err := guard.Enter(ctx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE accounts SET cents = 0 WHERE id = 7`)
			return err
		})
	})
	return err
}
