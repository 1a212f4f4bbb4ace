package looks

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

// maxAsked limits the questions in one pipeline of Running: the number of IDs times the number of sessions.
const maxAsked = 20_000

// Running reports for each ID whether the job is in flight in a session. It looks at the sessions one after the other, a moment after
// the call. If a job moves meanwhile, either answer is possible. It uses pipelines of limited size. It begins no pipeline after ctx
// has ended.
func (q *Looks) Running(ctx context.Context, ids []string) ([]bool, error) {
	sessions, err := q.Client.ZRange(ctx, q.Keys.Sessions, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	running := make([]bool, 0, len(ids))
	for some := range slices.Chunk(ids, facts.MaxScanned) {
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

// runningIn uses one pipeline to set the flags of the IDs that are in flight in one of the sessions.
func (q *Looks) runningIn(ctx context.Context, sessions, ids []string, flags []bool) error {
	if err := ctx.Err(); err != nil { // the client may not check ctx
		return err
	}
	tokens := make([]*redis.SliceCmd, len(sessions))
	_, err := q.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, session := range sessions {
			tokens[i] = p.HMGet(ctx, q.Keys.Inflight(session), ids...)
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
