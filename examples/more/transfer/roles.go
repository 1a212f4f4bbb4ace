package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock/fence"
	"github.com/signalbox-go/signalbox/outbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Move is the job of a transfer.
type Move struct {
	Transfer int64 `json:"transfer"`
	Payer    int   `json:"payer"`
	Payee    int   `json:"payee"`
	Amount   int   `json:"amount"`
}

// Kind implements signalbox.Args.
func (Move) Kind() string { return "transfer.move" }

// run is one of the roles, until it is killed.
func run(ctx context.Context, role string, here site) error {
	db, d, err := here.open()
	if err != nil {
		return err
	}
	rdb := here.client()
	switch role {
	case "web":
		return web(ctx, db, d)
	case "relay":
		relay, err := outbox.NewRelay(db, rdb, outbox.RelayConfig{Dialect: d, Poll: 20 * time.Millisecond, TakeOver: 500 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	case "worker":
		return work(ctx, db, d, rdb)
	}
	return fmt.Errorf("no role %q", role)
}

// web commits a transfer and its job in one transaction, again and again. A third of the transactions are rolled back.
func web(ctx context.Context, db *sql.DB, d outbox.Dialect) error {
	box, err := outbox.New(d, outbox.Config{})
	if err != nil {
		return err
	}
	for {
		err := inTx(ctx, db, func(tx *sql.Tx) error {
			m := Move{Transfer: rand.Int64(), Payer: rand.IntN(accounts), Amount: 1 + rand.IntN(20)}
			m.Payee = (m.Payer + 1 + rand.IntN(accounts-1)) % accounts
			if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO transfers (id) VALUES (%d)", m.Transfer)); err != nil {
				return err
			}
			if _, err := box.Enqueue(ctx, tx, m, scheduler.Queue("money")); err != nil {
				return err
			}
			if rand.IntN(3) == 0 {
				return fmt.Errorf("the customer thinks better of it")
			}
			return nil
		})
		if err != nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond) // a customer a moment
	}
}

// work makes the transfers. Once notes the effect in their transaction: a job that runs again finds it there.
func work(ctx context.Context, db *sql.DB, d outbox.Dialect, rdb redis.UniversalClient) error {
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{"money": {Concurrency: 4, CrashLimit: 255}}, SessionTTL: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	bank, err := fence.New(db, guards[d], fence.Config{})
	if err != nil {
		return err
	}
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, m Move) error { return m.once(ctx, bank) })
	return w.Run(ctx)
}

// once makes the transfer, unless an earlier run of its job did.
func (m Move) once(ctx context.Context, bank *fence.DB) error {
	return bank.InTx(ctx, func(tx *fence.Tx) error {
		return tx.Once(ctx, "move", func() error { return m.make(ctx, tx) })
	})
}

// make moves the money. Accounts are locked in one order, so that transfers don't wait for each other in a circle.
func (m Move) make(ctx context.Context, tx *fence.Tx) error {
	statements := []string{
		fmt.Sprintf("UPDATE accounts SET balance = balance - %d WHERE id = %d", m.Amount, m.Payer),
		fmt.Sprintf("UPDATE accounts SET balance = balance + %d WHERE id = %d", m.Amount, m.Payee),
		fmt.Sprintf("INSERT INTO moves (transfer, payer, payee, amount) VALUES (%d, %d, %d, %d)", m.Transfer, m.Payer, m.Payee, m.Amount),
	}
	if m.Payee < m.Payer {
		statements[0], statements[1] = statements[1], statements[0]
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func inTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}
