package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Unserved reports whether the queue has jobs but no worker has ever served it.
func (q *Queue) Unserved(ctx context.Context) (bool, error) {
	k := &q.keys
	var jobs *redis.IntCmd
	var sessions *redis.StringSliceCmd
	var token *redis.StringCmd
	_, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		jobs, sessions, token = p.HLen(ctx, k.Jobs), p.ZRange(ctx, k.Sessions, 0, 0), p.Get(ctx, k.Fence)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	return jobs.Val() > 0 && len(sessions.Val()) == 0 && errors.Is(token.Err(), redis.Nil), nil
}

// Unused reports whether nobody has ever put a job into the queue.
func (q *Queue) Unused(ctx context.Context) (bool, error) {
	k := &q.keys
	var jobs *redis.IntCmd
	var enqueued *redis.BoolCmd
	_, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		jobs, enqueued = p.HLen(ctx, k.Jobs), p.HExists(ctx, k.Stats, "enqueued")
		return nil
	})
	if err != nil {
		return false, err
	}
	return jobs.Val() == 0 && !enqueued.Val(), nil
}
