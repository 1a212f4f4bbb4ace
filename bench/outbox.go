package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/outbox"
)

const (
	// outboxConns bounds the connections of each side: those of the 16 writers, and as many for what moves and runs the jobs.
	outboxConns = 2 * producers

	createOrders = "CREATE TABLE bench_order (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, note text NOT NULL)"
	insertOrder  = "INSERT INTO bench_order (note) VALUES ($1)"
	countOrders  = "SELECT count(*) FROM bench_order"
	countWaiting = "SELECT count(*) FROM signalbox_outbox WHERE batch = 0"
	countDone    = "SELECT count(*) FROM river_job WHERE state = 'completed'"
)

// ourOutbox runs n transactions, in 16 goroutines. Each inserts a row and enqueues a job. A relay and a worker run meanwhile.
// The time is from the first transaction to the last handler's call.
func ourOutbox(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	pg, err := servertest.NewPostgreSQL(noDisk...)
	if err != nil {
		return nil, err
	}
	defer pg.Close()
	db, err := sql.Open("pgx", servertest.PostgresURL(pg.Addr()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(outboxConns)
	db.SetMaxIdleConns(outboxConns)
	for _, statements := range []string{outbox.Schema(outbox.PostgreSQL), createOrders} {
		if _, err := db.ExecContext(ctx, statements); err != nil {
			return nil, err
		}
	}
	box, err := outbox.New(outbox.PostgreSQL, outbox.Config{})
	if err != nil {
		return nil, err
	}
	rdb, _, err := ours(srv)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rdb.Close()) }()
	relay, err := outbox.NewRelay(db, rdb, outbox.RelayConfig{Dialect: outbox.PostgreSQL, Logger: silent})
	if err != nil {
		return nil, err
	}
	done := newTally(n)
	running, stop, err := work(ctx, rdb, slots(100), done.ran)
	if err != nil {
		return nil, err
	}
	running, stopRelay := runRelay(running, relay)

	begin := time.Now()
	err = produce(n, func() error { return ourOrder(running, db, box) })
	var last time.Time
	if err == nil {
		last, err = done.wait(running)
	}
	err = errors.Join(err, stopRelay(), stop(), done.check())
	if err != nil {
		return nil, err
	}
	return rate(n, last.Sub(begin)), errors.Join(
		hasRows(n, db.QueryRowContext(ctx, countOrders), "orders"), hasRows(0, db.QueryRowContext(ctx, countWaiting), "rows of the outbox that wait"),
	)
}

// runRelay runs a relay until stop is called, or it fails: then the context that it returns ends.
func runRelay(ctx context.Context, relay *outbox.Relay) (running context.Context, stop func() error) {
	running, end := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := relay.Run(running)
		end(fmt.Errorf("the relay ended: %w", err))
		ended <- err
	}()
	return running, func() error {
		end(nil)
		return <-ended
	}
}

// ourOrder is one transaction of ours.
func ourOrder(ctx context.Context, db *sql.DB, box *outbox.Outbox) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if _, err := tx.ExecContext(ctx, insertOrder, payload.Data); err != nil {
		return err
	}
	if _, err := box.Enqueue(ctx, tx, payload); err != nil {
		return err
	}
	return tx.Commit()
}

// riverOutbox is ourOutbox with River's InsertTx and a River client that runs the jobs. It uses pgx itself, as River's faster driver does.
func riverOutbox(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
	pg, err := servertest.NewPostgreSQL(noDisk...)
	if err != nil {
		return nil, err
	}
	defer pg.Close()
	pool, err := riverPool(ctx, pg, outboxConns)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, createOrders); err != nil {
		return nil, err
	}
	done := newTally(n)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[riverJob]) error {
		done.ran()
		return nil
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1000}},
		Workers: workers,
		Logger:  silent,
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}

	begin := time.Now()
	err = produce(n, func() error { return riverOrder(ctx, pool, client) })
	var last time.Time
	if err == nil {
		last, err = done.wait(ctx)
	}
	err = errors.Join(err, client.Stop(context.WithoutCancel(ctx)), done.check())
	if err != nil {
		return nil, err
	}
	return rate(n, last.Sub(begin)), errors.Join(
		hasRows(n, pool.QueryRow(ctx, countOrders), "orders"), hasRows(n, pool.QueryRow(ctx, countDone), "completed jobs"),
	)
}

// riverOrder is one transaction of River.
func riverOrder(ctx context.Context, pool *pgxpool.Pool, client *river.Client[pgx.Tx]) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
	if _, err := tx.Exec(ctx, insertOrder, payload.Data); err != nil {
		return err
	}
	if _, err := client.InsertTx(ctx, tx, riverJob{payload.Data}, nil); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// hasRows returns an error unless a query that counts found so many.
func hasRows(want int, row interface{ Scan(...any) error }, what string) error {
	var got int
	if err := row.Scan(&got); err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("there are %d %s; want %d", got, what, want)
	}
	return nil
}

// outboxContests returns the case of the outbox.
func outboxContests() []contest {
	return []contest{{
		peer:   "River",
		ours:   side{ourOutbox, 20_000, 4_000},
		theirs: side{riverOutbox, 20_000, 4_000},
		cases:  []testCase{{name: "outbox", unit: "jobs/s", target: 1}},
	}}
}
