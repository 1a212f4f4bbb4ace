package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// A guard runs fn when that is allowed, or returns an error.
type guard func(ctx context.Context, fn func(context.Context) error) error

// ttl is how long a lock stays after its holder died. A holder that works longer renews it.
const ttl = 3 * time.Second

// newGuard makes the lock that the settings name. close stops everything that it has
// started.
func newGuard(s settings, rdb *redis.Client) (g guard, close func() error, err error) {
	key, nothing := s.prefix+"create_item", func() error { return nil }
	switch s.lock {
	case "none":
		return func(ctx context.Context, fn func(context.Context) error) error { return fn(ctx) }, nothing, nil
	case "naive":
		return naive(rdb, key), nothing, nil
	case "single":
		r, err := lock.New(rdb, lock.Config{TTL: ttl})
		if err != nil {
			return nil, nil, err
		}
		return with(r, key), nothing, nil
	case "redlock":
		var nodes []*redis.Options
		for _, addr := range s.masters {
			nodes = append(nodes, farAway(&redis.Options{Addr: addr}))
		}
		r, err := redlock.New(nodes, redlock.Config{
			TTL: ttl,
			// By default a node counts only after it has been up for a TTL: before that it
			// may have forgotten a lock when it restarted. These masters are new.
			NoRestartDelay: true,
		})
		if err != nil {
			return nil, nil, err
		}
		return with(r, key), r.Close, nil
	}
	return nil, nil, fmt.Errorf("%s=%q: want one of %q", envLock, s.lock, locks)
}

// with returns a guard that works, on one Redis or with Redlock. An application needs no
// more.
func with(locker lock.Locker, key string) guard {
	return func(ctx context.Context, fn func(context.Context) error) error {
		return lock.Do(ctx, locker, key, fn)
	}
}

// naive is wrong in three ways:
//   - Between its GET and its SET, others look at the key as well, and all of them find it free.
//   - If its process dies, the lock stays forever, since it has no TTL.
//   - Its DEL deletes the lock even if another process has it by then.
func naive(rdb *redis.Client, key string) guard {
	return func(ctx context.Context, fn func(context.Context) error) error {
		for tries := 0; ; tries++ {
			err := rdb.Get(ctx, key).Err()
			if errors.Is(err, redis.Nil) {
				break
			}
			if err != nil {
				return err
			}
			if tries == 50 {
				return errors.New("others have it")
			}
			select {
			case <-time.After(100*time.Millisecond + rand.N(100*time.Millisecond)):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := rdb.Set(ctx, key, "1", 0).Err(); err != nil {
			return err
		}
		defer rdb.Del(context.WithoutCancel(ctx), key)
		return fn(ctx)
	}
}
