package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/examples/internal/demo"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// ttl is how long a lock stays after its holder died. A holder that works longer renews it.
const ttl = 3 * time.Second

// locks are the values of -lock.
var locks = []demo.Lock{
	{Name: "none", New: none},
	{Name: "naive", New: naive},
	{Name: "single", Works: true, New: single},
	{Name: "redlock", Works: true, New: quorum, Nodes: &demo.NodeKind{
		Name: "masters", Default: 5, Min: 3, Max: 15, Start: demo.StartMasters,
	}},
}

func none(demo.Settings) (demo.Guard, func() error, error) {
	return func(ctx context.Context, fn func(context.Context) error) error { return fn(ctx) }, nil, nil
}

// single is a lock on one Redis.
func single(s demo.Settings) (demo.Guard, func() error, error) {
	r, err := lock.New(s.Redis, lock.Config{TTL: ttl})
	if err != nil {
		return nil, nil, err
	}
	return demo.With(r, s.Key), nil, nil
}

// quorum is a lock on several Redis servers that know nothing of each other.
func quorum(s demo.Settings) (demo.Guard, func() error, error) {
	var nodes []*redis.Options
	for _, addr := range s.Nodes {
		nodes = append(nodes, demo.FarAway(&redis.Options{Addr: addr}))
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
	return demo.With(r, s.Key), r.Close, nil
}

// naive is wrong in three ways:
//   - Between its GET and its SET, others look at the key as well, and all of them find it free.
//   - If its process dies, the lock stays forever, since it has no TTL.
//   - Its DEL deletes the lock even if another process has it by then.
func naive(s demo.Settings) (demo.Guard, func() error, error) {
	rdb, key := s.Redis, s.Key
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
	}, nil, nil
}
