package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
)

// A database is the Redis with the jobs: one inside this process, or that of REDIS_URL.
type database struct {
	rdb   *redis.Client
	url   string // for the other processes; may contain a password
	queue string // of this run alone

	embedded *embedded.Server // nil with REDIS_URL
}

func connect(ctx context.Context, out io.Writer, url string) (*database, error) {
	db := &database{url: url, queue: "shop-" + strings.ToLower(rand.Text()[:12])}
	where := "the server of " + envRedis
	if url == "" {
		srv, err := embedded.Start()
		if err != nil {
			return nil, err
		}
		db.embedded, db.url, where = srv, "redis://"+srv.Addr(), "a server inside this process"
	}
	opt, err := parseURL(db.url)
	if err != nil {
		return nil, err
	}
	db.rdb = redis.NewClient(opt)
	if err := db.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis does not answer: %w", err), db.rdb.Close())
	}
	fmt.Fprintf(out, "tracing: queue %s on %s\n", db.queue, where)
	return db, nil
}

// parseURL leaves the URL out of its error, since it may contain a password.
func parseURL(url string) (*redis.Options, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New(envRedis + " can't be read; want redis://host:6379/0, rediss://... or unix:///path/to.sock")
	}
	opt.ContextTimeoutEnabled = true // else go-redis ignores the deadlines of contexts
	return opt, nil
}

// close deletes the keys of the queue and of the lock, even after the run's context ended.
func (db *database) close() error {
	if db.embedded != nil {
		return errors.Join(db.rdb.Close(), db.embedded.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	errs := []error{db.rdb.SRem(ctx, "signalbox:{default:}:queues", db.queue).Err()}
	for _, pattern := range []string{"*{default:" + db.queue + "}*", "*{" + db.queue + "}*"} {
		keys := db.rdb.Scan(ctx, 0, pattern, 1000).Iterator()
		for keys.Next(ctx) {
			errs = append(errs, db.rdb.Unlink(ctx, keys.Val()).Err())
		}
		errs = append(errs, keys.Err())
	}
	return errors.Join(append(errs, db.rdb.Close())...)
}
