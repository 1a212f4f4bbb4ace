package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// The floor: what a queue on Redis must do at least between an enqueue and the start of a handler, if its worker makes a call for the job. It wakes its worker with a
// blocking pop, and it changes Redis by scripts. These have no more than that needs: no leases, tokens,
// priorities, times or repeated calls.
var (
	floorEnqueue = redis.NewScript(`
		redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
		redis.call('RPUSH', KEYS[2], ARGV[1])
		redis.call('RPUSH', KEYS[3], '1')
		return 1`)
	floorClaim = redis.NewScript(`
		local id = redis.call('LPOP', KEYS[2])
		return {id, redis.call('HGET', KEYS[1], id)}`)
)

// floorKeys are the records, the ready jobs and the wake-ups.
var floorKeys = []string{"{floor}:jobs", "{floor}:ready", "{floor}:wake"}

// floorLatency enqueues to an idle consumer, one that blocks in BLPOP: one script puts a job in, and one takes it out.
func floorLatency(ctx context.Context, srv *server, n int) (samples [][]float64, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: srv.addr})
	defer rdb.Close()
	if err := errors.Join(floorEnqueue.Load(ctx, rdb).Err(), floorClaim.Load(ctx, rdb).Err()); err != nil {
		return nil, err
	}
	running, end := context.WithCancelCause(ctx)
	started, ended := make(chan time.Time, 1), make(chan struct{})
	const warm = 5
	go func() {
		defer close(ended)
		for range warm + n {
			at, err := floorTake(running, rdb)
			if err != nil {
				end(fmt.Errorf("the consumer ended: %w", err))
				return
			}
			started <- at
		}
	}()
	defer func() {
		end(nil)
		rdb.Close() // ends its blocking pop
		<-ended
	}()
	jobs := 0
	enqueue := func() error {
		jobs++
		return floorEnqueue.EvalSha(running, rdb, floorKeys, "job"+strconv.Itoa(jobs), payload.Data).Err()
	}
	waited, err := latencies(running, warm+n, idleLeast, idleMost, enqueue, started)
	if err != nil {
		return nil, err
	}
	return [][]float64{waited[warm:]}, nil
}

// floorTake waits for a job, takes it, and returns when it had it.
func floorTake(ctx context.Context, rdb *redis.Client) (time.Time, error) {
	if err := rdb.BLPop(ctx, 0, floorKeys[2]).Err(); err != nil {
		return time.Time{}, err
	}
	job, err := floorClaim.EvalSha(ctx, rdb, floorKeys).StringSlice()
	if err == nil && (len(job) != 2 || job[1] != payload.Data) {
		err = fmt.Errorf("the job is %q", job)
	}
	return time.Now(), err
}
