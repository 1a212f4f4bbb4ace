package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

func connect(ctx context.Context, out *screen, url string) (*database, error) {
	db := &database{url: url, queue: "quickstart-" + strings.ToLower(rand.Text()[:12])}
	where := "the server of " + envRedis
	if db.url == "" {
		srv, err := embedded.Start()
		if err != nil {
			return nil, err
		}
		db.embedded, db.url = srv, "redis://"+srv.Addr()
		where = "a server inside this process (" + envRedis + " takes a real one)"
	}
	opt, err := parseURL(db.url)
	if err != nil {
		return nil, err
	}
	db.rdb = redis.NewClient(opt)
	if err := db.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis does not answer: %w", err), db.rdb.Close())
	}
	out.say("quickstart: queue %s on %s", db.queue, where)
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

// close deletes the queue's keys, even after ctx ended. If that fails, it says so on the screen. docs/wire.md
// lists these keys.
func (db *database) close(out *screen) {
	if db.embedded == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		pattern := "signalbox:{default:" + db.queue + "}:*"
		if err := db.delete(ctx, pattern); err != nil {
			out.say("some keys are left in Redis, %s: %v", pattern, err)
		}
	}
	_ = db.rdb.Close()
	if db.embedded != nil {
		_ = db.embedded.Close()
	}
}

func (db *database) delete(ctx context.Context, pattern string) error {
	keys := db.rdb.Scan(ctx, 0, pattern, 1000).Iterator()
	for keys.Next(ctx) {
		if err := db.rdb.Unlink(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}
