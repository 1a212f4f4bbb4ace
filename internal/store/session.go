package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Open opens a session, or renews it: it lives for ttl from now, by the server's clock.
func (q *Queue) Open(ctx context.Context, session string, ttl time.Duration) (alive bool, hints Hints, err error) {
	return q.renew(ctx, session, ttl, true)
}

// Renew lets the session live for ttl from now. It is not alive if it is unknown or over.
func (q *Queue) Renew(ctx context.Context, session string, ttl time.Duration) (alive bool, hints Hints, err error) {
	return q.renew(ctx, session, ttl, false)
}

func (q *Queue) renew(ctx context.Context, session string, ttl time.Duration, open bool) (bool, Hints, error) {
	r, err := run(ctx, q.rdb, renewScript, renewScript.keys(&q.keys), renewScript.args(0,
		arg{"protocol", Protocol}, arg{"session", session}, arg{"ttl", ttl.Microseconds()}, arg{"open", flag(open)}))
	if err != nil {
		return false, Hints{}, err
	}
	return parseRenew(r)
}

func parseRenew(r *reply) (alive bool, hints Hints, err error) {
	if err := r.status("ok"); err != nil {
		return false, Hints{}, err
	}
	alive, hints = r.int(2) == 1, r.hints(3)
	hints.Standing = r.standing(6)
	if r.err != nil {
		return false, Hints{}, r.err
	}
	return alive, hints, nil
}

// Close ends a session that has no deliveries left, and the lanes of its worker. It returns how many deliveries are left.
func (q *Queue) Close(ctx context.Context, session string, lanes ...*Lane) (left int, err error) {
	keys := closeScript.keys(&q.keys, q.keys.inflight(session))
	for _, l := range lanes {
		keys = append(keys, l.key)
	}
	r, err := run(ctx, q.rdb, closeScript, keys, closeScript.args(0, arg{"session", session}))
	if err != nil {
		return 0, err
	}
	left = int(r.int(0))
	return left, r.err
}

// Sweep drops terminal jobs beyond what the queue keeps, up to 500 of each kind, and returns how many.
func (q *Queue) Sweep(ctx context.Context) (dropped int, err error) {
	r, err := run(ctx, q.rdb, sweepScript, sweepScript.keys(&q.keys), sweepScript.args(0, arg{"protocol", Protocol},
		arg{"keep_jobs", q.kept.count}, arg{"keep_bytes", q.kept.bytes}, arg{"keep_us", q.kept.age.Microseconds()}))
	if err != nil {
		return 0, err
	}
	dropped = int(r.int(0))
	return dropped, r.err
}

// Wait blocks until one of the queues, which must be in one slot of a Redis Cluster or on one
// server, has something to do, or the bell rings, or the timeout is over: then it returns
// nil. ctx does not end it. (go-redis rounds timeouts below a second up.)
func Wait(ctx context.Context, rdb redis.UniversalClient, bell string, timeout time.Duration, queues ...*Queue) (*Queue, error) {
	keys := make([]string, 0, len(queues)+1)
	for _, q := range queues {
		keys = append(keys, q.keys.wake)
	}
	v, err := rdb.BLPop(ctx, timeout, append(keys, bell)...).Result()
	if err == redis.Nil {
		return nil, nil
	}
	if err != nil {
		seekMaster(ctx, rdb, err)
		return nil, err
	}
	for i, q := range queues {
		if len(v) > 0 && v[0] == keys[i] {
			return q, nil
		}
	}
	return nil, nil
}

// Bell returns a key in the queue's slot with which Ring ends a Wait.
func (q *Queue) Bell() string { return q.keys.bell(NewID()) }

// Ring ends the Wait on the bell, or the next one. The key expires by itself.
func Ring(ctx context.Context, rdb redis.UniversalClient, bell string) error {
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.LPush(ctx, bell, "1")
		p.PExpire(ctx, bell, time.Minute)
		return nil
	})
	return err
}
