package store

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Register adds the queue to the queues that its namespace is known to have. It may be called again and again.
func (pr *Presence) Register(ctx context.Context) error {
	return pr.q.rdb.SAdd(ctx, pr.q.keys.Registry, pr.q.name).Err()
}

// Known reports whether anybody has used the queue: a job was enqueued, a session is open, a setting was made, or it was registered. It returns a
// *layout.Error if the queue's layout is older than layout.Number: what the queue has would be misread.
func (pr *Presence) Known(ctx context.Context) (bool, error) {
	used, err := pr.q.Site().Begun(ctx)
	if err != nil || used {
		return used, err
	}
	sessions, err := pr.q.rdb.Exists(ctx, pr.q.keys.Sessions).Result()
	if err != nil || sessions > 0 {
		return sessions > 0, err
	}
	return pr.q.rdb.SIsMember(ctx, pr.q.keys.Registry, pr.q.name).Result()
}

// Unserved reports whether the queue has jobs but no worker has ever served it.
func (pr *Presence) Unserved(ctx context.Context) (bool, error) {
	k := &pr.q.keys
	var jobs *redis.IntCmd
	var sessions *redis.StringSliceCmd
	var token *redis.StringCmd
	_, err := pr.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		jobs, sessions, token = p.HLen(ctx, k.Jobs), p.ZRange(ctx, k.Sessions, 0, 0), p.Get(ctx, k.Fence)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	return jobs.Val() > 0 && len(sessions.Val()) == 0 && errors.Is(token.Err(), redis.Nil), nil
}

// Unused reports whether nobody has ever put a job into the queue.
func (pr *Presence) Unused(ctx context.Context) (bool, error) {
	k := &pr.q.keys
	var jobs *redis.IntCmd
	var enqueued *redis.BoolCmd
	_, err := pr.q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		jobs, enqueued = p.HLen(ctx, k.Jobs), p.HExists(ctx, k.Stats, "enqueued")
		return nil
	})
	if err != nil {
		return false, err
	}
	return jobs.Val() == 0 && !enqueued.Val(), nil
}
