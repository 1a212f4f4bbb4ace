package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/signalbox-go/signalbox/internal/servertest"
)

// A riverJob has arguments that take as many bytes in JSON as the other payloads.
type riverJob struct {
	Text string `json:"text"`
}

func (riverJob) Kind() string { return payload.Kind() }

// missingPostgres returns why River can't run here, or nil.
func missingPostgres() error { return servertest.HasPostgreSQL() }

// noDisk are the settings of a PostgreSQL beside a Redis without persistence: it doesn't wait for the disk. All others are PostgreSQL's own.
var noDisk = []string{"fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=256MB"}

// riverPool returns so many connections to a PostgreSQL, in which it has made River's tables.
func riverPool(ctx context.Context, pg *servertest.Server, conns int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(servertest.PostgresURL(pg.Addr()))
	if err != nil {
		return nil, err
	}
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// riverUnique inserts one job at a time in each of 16 goroutines. River makes a key of the arguments, so each job has others. Each run has a PostgreSQL of
// its own, which is started and migrated before the clock starts.
func riverUnique(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
	db, err := servertest.NewPostgreSQL(noDisk...)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	pool, err := riverPool(ctx, db, producers)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{}) // it only inserts
	if err != nil {
		return nil, err
	}
	options := &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
	var count atomic.Int64
	begin := time.Now()
	err = produce(n, func() error {
		r, err := client.Insert(ctx, riverJob{fmt.Sprintf("%089d", count.Add(1))}, options)
		if err == nil && r.UniqueSkippedAsDuplicate {
			return fmt.Errorf("job %d was there before", r.Job.ID)
		}
		return err
	})
	took := time.Since(begin)
	var there int
	err = errors.Join(err, pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE unique_key IS NOT NULL").Scan(&there))
	if err == nil && there != n {
		err = fmt.Errorf("%d of %d jobs are in the table", there, n)
	}
	if err != nil {
		return nil, err
	}
	return rate(n, took), nil
}
