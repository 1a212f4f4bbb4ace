package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limit is the largest number of items.
const Limit = 3

// work is how long a request takes between counting the items and adding its own. It stands for
// the work of a real service. The longer it is, the more certain is the race.
const work = 100 * time.Millisecond

var errFull = errors.New("there are as many items as there may be")

// A store has the items, in a list that all servers share. It stands for any database, which does
// not know the limit.
type store struct {
	rdb *redis.Client
	key string
}

func (s store) count(ctx context.Context) (int, error) {
	n, err := s.rdb.LLen(ctx, s.key).Result()
	return int(n), err
}

// add adds an item if there is room: check, then act. It returns all items after that.
func (s store) add(ctx context.Context, name string) ([]string, error) {
	n, err := s.count(ctx)
	if err != nil {
		return nil, err
	}
	if n >= Limit {
		return nil, errFull
	}
	select {
	case <-time.After(work):
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // under a lock: ctx also ends when the lease is lost
		return nil, context.Cause(ctx)
	}
	if err := s.rdb.RPush(ctx, s.key, name).Err(); err != nil {
		return nil, err
	}
	return s.rdb.LRange(ctx, s.key, 0, -1).Result()
}

// deleteAll deletes the keys of a run from the server of REDIS_URL: the items and the keys of the
// locks. It also works after the run was interrupted.
func deleteAll(rdb *redis.Client, prefix string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys := rdb.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := rdb.Unlink(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("some keys are left in Redis, %s*: %w", prefix, err)
		}
	}
	return keys.Err()
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
