package store

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// maxAsked bounds the questions in one pipeline of Running: IDs times sessions.
const maxAsked = 20_000

// Running reports of each ID whether the job is in flight in a session. It sees the sessions one after the
// other, a moment after the call: a job that moves meanwhile can be reported either way. It asks in pipelines of
// bounded size, and none begins after ctx has ended.
func (q *Queue) Running(ctx context.Context, ids []string) ([]bool, error) {
	sessions, err := q.rdb.ZRange(ctx, q.keys.sessions, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	running := make([]bool, 0, len(ids))
	for some := range slices.Chunk(ids, MaxBatch) {
		flags := make([]bool, len(some))
		for part := range slices.Chunk(sessions, max(maxAsked/len(some), 1)) {
			if err := q.runningIn(ctx, part, some, flags); err != nil {
				return nil, err
			}
		}
		running = append(running, flags...)
	}
	return running, nil
}

// runningIn sets the flags of the IDs that are in flight in one of the sessions, by one pipeline.
func (q *Queue) runningIn(ctx context.Context, sessions, ids []string, flags []bool) error {
	if err := ctx.Err(); err != nil { // a client may not look
		return err
	}
	tokens := make([]*redis.SliceCmd, len(sessions))
	_, err := q.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, session := range sessions {
			tokens[i] = p.HMGet(ctx, q.keys.inflight(session), ids...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, cmd := range tokens {
		for i, token := range cmd.Val() {
			flags[i] = flags[i] || token != nil
		}
	}
	return nil
}
