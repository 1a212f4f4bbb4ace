package looks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Counts are the numbers of a queue's jobs by state, and of what happened to jobs so far.
type Counts struct {
	Ready     int64 // waiting for a worker, suspects among them
	Due       int64 // waiting for their time
	Running   int64 // in flight
	Dead      int64 // kept
	Cancelled int64 // kept
	Completed int64 // kept

	// Since the queue began.
	Total Totals
}

// Totals count transitions of jobs.
type Totals struct {
	Enqueued, Completed, Retried, Delayed, Returned, Dead, Cancelled, Crashed, Deleted, Revived, Expired int64
}

// Counts returns the queue's counts. All are of one moment, as far as AtOnce has that, except Running: sessions that
// open while it is counted are missed.
func (q *Looks) Counts(ctx context.Context) (Counts, error) {
	k := &q.Keys
	sessions, err := q.Client.ZRange(ctx, k.Sessions, 0, -1).Result()
	if err != nil {
		return Counts{}, err
	}
	sum := func(cmds ...*redis.IntCmd) (n int64) {
		for _, cmd := range cmds {
			n += cmd.Val()
		}
		return n
	}
	var ready, running []*redis.IntCmd
	var due, dead, cancelled, completed *redis.IntCmd
	var stats *redis.MapStringStringCmd
	_, err = q.AtOnce(ctx, func(p redis.Pipeliner) error {
		ready, running = []*redis.IntCmd{p.ZCard(ctx, k.Lined)}, nil
		for _, class := range slices.Sorted(maps.Keys(k.Ready())) {
			ready = append(ready, p.LLen(ctx, k.Ready()[class]))
		}
		for _, id := range sessions {
			running = append(running, p.HLen(ctx, k.Inflight(id)))
		}
		due, dead, cancelled, completed = p.ZCard(ctx, k.Due), p.ZCard(ctx, k.Dead), p.ZCard(ctx, k.Cancelled), p.ZCard(ctx, k.Completed)
		stats = p.HGetAll(ctx, k.Stats)
		return nil
	})
	if err != nil {
		return Counts{}, err
	}
	c := Counts{Ready: sum(ready...), Running: sum(running...), Due: sum(due), Dead: sum(dead), Cancelled: sum(cancelled), Completed: sum(completed)}
	c.Total, err = parseTotals(stats.Val())
	return c, err
}

func parseTotals(stats map[string]string) (t Totals, err error) {
	var errs []error
	for field, total := range map[string]*int64{
		"enqueued": &t.Enqueued, "completed": &t.Completed, "retry": &t.Retried,
		"delay": &t.Delayed, "return": &t.Returned, "dead": &t.Dead,
		"cancelled": &t.Cancelled, "crashed": &t.Crashed, "deleted": &t.Deleted, "revived": &t.Revived, "expired": &t.Expired,
	} {
		if v, ok := stats[field]; ok {
			*total, err = strconv.ParseInt(v, 10, 64)
			if err != nil {
				errs = append(errs, fmt.Errorf("store: counter %s: %w", field, err))
			}
		}
	}
	return t, errors.Join(errs...)
}
