package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
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
	k := &q.keys
	r, err := run(ctx, q.rdb, renewScript, []string{
		k.sessions, k.due, k.readyHigh, k.readyNormal, k.readyLow, k.readySuspect,
	}, []any{session, ttl.Microseconds(), flag(open)})
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
	if r.err != nil {
		return false, Hints{}, r.err
	}
	return alive, hints, nil
}

// maxLost bounds the records that a Reclaim returns, in bytes. Any one of them has room, so a job
// that is left for the next call is told then.
const maxLost = 2 * wire.MaxEnvelope

// Reclaimed is what a Reclaim did. Its deliveries have the token that was lost and, if Redis had
// heard of it, the span.
type Reclaimed struct {
	At       time.Time  // by the server's clock
	Left     int        // deliveries of the session left for the next call
	Returned []string   // jobs that will run again
	Dead     []Delivery // of jobs that crashed CrashLimit times
	Lost     []Delivery // of those Returned, if they were asked for
}

// Reclaim takes back up to MaxBatch/2 jobs of a session, if it is over, and counts their crashes.
// With details it says more of those that will run again, and takes back as many as have room for
// that in 2 MiB.
func (q *Queue) Reclaim(ctx context.Context, session string, details bool) (Reclaimed, error) {
	k := &q.keys
	room := 0
	if details {
		room = maxLost
	}
	why := wire.AppendLastError(nil, fmt.Sprintf(
		"the process running this job died, or lost its lease, %d times", CrashLimit))
	r, err := run(ctx, q.rdb, reclaimScript, []string{
		k.inflight(session), k.sessions, k.jobs, k.wake, k.stats, k.dead,
		k.readyHigh, k.readyNormal, k.readyLow, k.readySuspect, k.spans,
	}, []any{session, MaxBatch / 2, CrashLimit, why, q.kept.count, q.kept.bytes, q.kept.age.Microseconds(), room})
	if err != nil {
		return Reclaimed{}, err
	}
	return parseReclaim(r, q.name)
}

func parseReclaim(r *reply, queue string) (Reclaimed, error) {
	if err := r.status("ok", "alive"); err != nil {
		return Reclaimed{}, err
	}
	if r.str(0) == "alive" {
		return Reclaimed{}, nil
	}
	res := Reclaimed{Left: int(r.int(1)), At: time.UnixMicro(r.int(2)), Returned: r.strs(3)}
	res.Dead, res.Lost = r.lost(4, queue), r.lost(5, queue)
	if r.err != nil {
		return Reclaimed{}, r.err
	}
	return res, nil
}

// lost reads a list of an ID, a token, a record and a span for each delivery.
func (r *reply) lost(i int, queue string) []Delivery {
	list := r.strs(i)
	if len(list)%4 != 0 {
		r.fail(i, fmt.Sprintf("a list of %d, not of fours", len(list)))
		return nil
	}
	ds := make([]Delivery, 0, len(list)/4)
	for l := range slices.Chunk(list, 4) {
		token, err := strconv.ParseInt(l[1], 10, 64)
		if err != nil {
			token = 0 // what another program wrote there is no token
		}
		job := &signalbox.Job{ID: l[0], Queue: queue, Token: token}
		ds = append(ds, Delivery{Job: job, Err: wire.Decode([]byte(l[2]), job), Span: l[3]})
	}
	return ds
}

// Close ends a session that has no deliveries left, and the lanes of its worker. It returns how many deliveries are left.
func (q *Queue) Close(ctx context.Context, session string, lanes ...*Lane) (left int, err error) {
	k := &q.keys
	keys := []string{
		k.inflight(session), k.sessions, k.wake, k.readyHigh, k.readyNormal, k.readyLow, k.readySuspect, k.due,
	}
	for _, l := range lanes {
		keys = append(keys, l.key)
	}
	r, err := run(ctx, q.rdb, closeScript, keys, []any{session})
	if err != nil {
		return 0, err
	}
	left = int(r.int(0))
	return left, r.err
}

// Sweep drops terminal jobs that have been kept long enough.
func (q *Queue) Sweep(ctx context.Context) error {
	k := &q.keys
	r, err := run(ctx, q.rdb, sweepScript, []string{k.jobs, k.stats, k.dead, k.cancelled}, []any{q.kept.age.Microseconds()})
	if err != nil {
		return err
	}
	r.int(0)
	return r.err
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
