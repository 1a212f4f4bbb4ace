package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	peerlock "cirello.io/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver that the peer needs

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock/pglock"
)

// pgConns bounds the connections of both sides to PostgreSQL.
const pgConns = 16

// pgCycles runs n cycles on a PostgreSQL of its own, in so many goroutines, each with a key of its own. The server
// flushes each commit to disk, as by default. addrs is the server's URL.
func pgCycles(open library, goroutines int) measure {
	return func(ctx context.Context, _ *server, n int) (samples [][]float64, err error) {
		srv, err := servertest.NewPostgreSQL()
		if err != nil {
			return nil, err
		}
		defer srv.Close()
		return cycles(ctx, open, []string{servertest.PostgresURL(srv.Addr())}, goroutines, n)
	}
}

func ourPostgres(addrs []string) (grab, func() error, error) {
	config, err := pgxpool.ParseConfig(addrs[0])
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = pgConns
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, nil, err
	}
	schema, err := pglock.Schema("")
	if err == nil {
		_, err = pool.Exec(context.Background(), schema)
	}
	locker, errNew := pglock.New(pool, pglock.Config{})
	if err := errors.Join(err, errNew); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return grabOurs(locker), func() error { pool.Close(); return nil }, nil
}

// peerPostgres has the lease of ours, and its heartbeat: each of its locks has a goroutine that extends it. No cycle is
// long enough for that.
func peerPostgres(addrs []string) (grab, func() error, error) {
	db, err := sql.Open("postgres", addrs[0])
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(pgConns)
	db.SetMaxIdleConns(pgConns)
	client, err := peerlock.New(db, peerlock.WithLeaseDuration(lockTTL), peerlock.WithHeartbeatFrequency(lockTTL/3))
	if err == nil {
		err = client.CreateTable()
	}
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	return func(ctx context.Context, key string) (func() error, error) {
		l, err := client.AcquireContext(ctx, key)
		if err != nil {
			return nil, err
		}
		return func() error {
			release, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return client.ReleaseContext(release, l)
		}, nil
	}, db.Close, nil
}
