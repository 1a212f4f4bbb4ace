package store

import (
	"context"
	"time"
)

// Open opens a session, or renews it: it lives for ttl from now, by the server's clock.
func (q *Queue) Open(ctx context.Context, session string, ttl time.Duration) (alive bool, hints Hints, err error) {
	return q.renew(ctx, session, ttl, "", true)
}

// Renew lets the session live for ttl from now. It is not alive if it is unknown or over. address is where it waits for wake-ups, or "".
func (q *Queue) Renew(ctx context.Context, session string, ttl time.Duration, address string) (alive bool, hints Hints, err error) {
	return q.renew(ctx, session, ttl, address, false)
}

func (q *Queue) renew(ctx context.Context, session string, ttl time.Duration, address string, open bool) (bool, Hints, error) {
	seq, waited, ran := q.times.args()
	r, err := run(ctx, q.rdb, renewScript, renewScript.keys(&q.keys, q.timesLane()), renewScript.args(0,
		arg{"protocol", Protocol}, arg{"session", session}, arg{"ttl", ttl.Microseconds()}, arg{"open", flag(open)},
		arg{"address", address}, arg{"worker", q.worker}, arg{"seq", seq}, arg{"waited", waited}, arg{"ran", ran}))
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
	hints.Standing, hints.Slots = r.standing(6), r.slots(7)
	hints.Heard, hints.Idle = r.int(8) == 1, r.int(9) == 1
	hints.Cancels = len(r.list) > 10 && r.int(10) > 0
	if r.err != nil {
		return false, Hints{}, r.err
	}
	return alive, hints, nil
}

// Close ends a session that has no deliveries left, and the lanes of its worker. The lane of a batch of times is none of them: it must
// outlive a call that is made again. ends says that the worker ends, so that it is no longer to be quiet. Close returns how many deliveries are left.
func (q *Queue) Close(ctx context.Context, session string, ends bool, lanes ...*Lane) (left int, err error) {
	worker := ""
	if ends {
		worker = q.worker
	}
	seq, waited, ran := q.times.args()
	keys := closeScript.keys(&q.keys, q.timesLane(), q.keys.inflight(session))
	for _, l := range lanes {
		keys = append(keys, l.key)
	}
	r, err := run(ctx, q.rdb, closeScript, keys, closeScript.args(0, arg{"session", session}, arg{"channel", q.keys.channel(session)},
		arg{"worker", worker}, arg{"seq", seq}, arg{"waited", waited}, arg{"ran", ran}))
	if err != nil {
		return 0, err
	}
	left = int(r.int(0))
	return left, r.err
}

// Sweep drops terminal jobs beyond what the queue keeps, windows of unique keys that are over, and old receipts of moves, up to 500 of each kind. It returns how many:
// 0 if nothing is left to drop.
func (q *Queue) Sweep(ctx context.Context) (dropped int, err error) {
	r, err := run(ctx, q.rdb, sweepScript, sweepScript.keys(&q.keys), sweepScript.args(0, arg{"protocol", Protocol},
		arg{"keep_jobs", q.kept.count}, arg{"keep_bytes", q.kept.bytes}, arg{"keep_us", q.kept.age.Microseconds()}))
	if err != nil {
		return 0, err
	}
	dropped = int(r.int(0))
	return dropped, r.err
}
