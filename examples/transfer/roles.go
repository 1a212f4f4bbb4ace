package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite"

	"github.com/signalbox-go/signalbox"
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
func run(ctx context.Context, role string) error {
	db, d, err := openBank()
	if err != nil {
		return err
	}
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("TRANSFER_REDIS")})
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
		return work(ctx, db, rdb)
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

// work makes the transfers. The effect key is recorded in their transaction: a job that runs again finds it there.
func work(ctx context.Context, db *sql.DB, rdb redis.UniversalClient) error {
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{"money": {Concurrency: 4, CrashLimit: 255}}, SessionTTL: time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, m Move) error {
		return inTx(ctx, db, func(tx *sql.Tx) error {
			res, err := tx.ExecContext(ctx, "INSERT INTO effects (effect) VALUES ($1) ON CONFLICT DO NOTHING", job.EffectKey())
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n == 0 {
				return err // it was made before
			}
			for _, do := range []string{
				fmt.Sprintf("UPDATE accounts SET balance = balance - %d WHERE id = %d", m.Amount, m.Payer),
				fmt.Sprintf("UPDATE accounts SET balance = balance + %d WHERE id = %d", m.Amount, m.Payee),
				fmt.Sprintf("INSERT INTO moves (transfer, payer, payee, amount) VALUES (%d, %d, %d, %d)", m.Transfer, m.Payer, m.Payee, m.Amount),
			} {
				if _, err := tx.ExecContext(ctx, do); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return w.Run(ctx)
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

// openBank opens the database.
func openBank() (*sql.DB, outbox.Dialect, error) {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		db, err := sql.Open("pgx", url)
		return db, outbox.PostgreSQL, err
	}
	db, err := sql.Open("sqlite", "file:"+os.Getenv("TRANSFER_FILE")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err == nil {
		db.SetMaxOpenConns(4)
	}
	return db, outbox.SQLite, err
}

// install makes the tables and the accounts.
func install(ctx context.Context, db *sql.DB, d outbox.Dialect) error {
	statements := strings.Split(outbox.Schema(d), ";\n")
	statements = append(statements, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)", "CREATE TABLE transfers (id bigint PRIMARY KEY)",
		"CREATE TABLE moves (transfer bigint, payer bigint, payee bigint, amount bigint)", "CREATE TABLE effects (effect varchar(700) PRIMARY KEY)")
	for id := range accounts {
		statements = append(statements, fmt.Sprintf("INSERT INTO accounts VALUES (%d, %d)", id, each))
	}
	for _, s := range statements {
		if strings.TrimSpace(s) == "" {
			continue
		}
		if _, err := db.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// dropTables removes what install made.
func dropTables(ctx context.Context, db *sql.DB) {
	for _, name := range []string{"accounts", "transfers", "moves", "effects", "signalbox_outbox", "signalbox_outbox_shard", "signalbox_outbox_batch", "signalbox_outbox_order", "signalbox_outbox_dead", "signalbox_outbox_box"} {
		_, _ = db.ExecContext(ctx, "DROP TABLE IF EXISTS "+name)
	}
}

func count(ctx context.Context, db *sql.DB, query string) (n int, err error) {
	err = db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
