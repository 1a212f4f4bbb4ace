package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/signalbox-go/signalbox/lock"
)

// lockTTL is the default of ours. The peers get the same: no lock ends in a measurement.
const lockTTL = 30 * time.Second

// ourLocks is the single node's, with default options: 30 s, a token and the owner's name.
func ourLocks(addrs []string) (grab, func() error, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0], ContextTimeoutEnabled: true}) // as lock.New asks for
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return nil, nil, err
	}
	return grabOurs(locker), rdb.Close, nil
}

func grabOurs(locker lock.Locker) grab {
	return func(ctx context.Context, key string) (func() error, error) {
		l, err := locker.Acquire(ctx, key)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Release(ctx) }, nil
	}
}

// redislocks looks again every millisecond where it must wait: with 16 processes this is the
// fastest of its strategies that gives all of them their turn. README.md has the others.
func redislocks(addrs []string) (grab, func() error, error) {
	rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
	client := redislock.New(rdb)
	options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)}
	return func(ctx context.Context, key string) (func() error, error) {
		l, err := client.Obtain(ctx, key, lockTTL, options)
		if err != nil {
			return nil, err
		}
		return func() error { return l.Release(ctx) }, nil
	}, rdb.Close, nil
}

// rueidislocks is configured as its README says for one server of 7.0.5 or later.
func rueidislocks(addrs []string) (grab, func() error, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: addrs},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    lockTTL,
	})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, key string) (func() error, error) {
		for {
			// A waiter that misses a wake-up waits for ever, and now and then one does. A
			// deadline would bound the holding too.
			waiting, giveUp := context.WithCancel(ctx)
			timer := time.AfterFunc(rueidisPatience, giveUp)
			_, release, err := locker.WithContext(waiting, key)
			missed := !timer.Stop()
			switch {
			case err == nil && !missed:
				return func() error { release(); giveUp(); return nil }, nil
			case err == nil:
				release()
			}
			giveUp()
			if !missed || ctx.Err() != nil {
				return nil, err
			}
		}
	}, func() error { locker.Close(); return nil }, nil
}

// rueidisPatience is after what time a waiter asks again.
const rueidisPatience = time.Second

// redsyncs is Redlock, on one server too, with its default pauses of 50 to 250 ms between two
// tries. It waits for the answers of all servers: when it fails fast, an acquire that is
// late lands after the release and stays there for the TTL, and on a third server of five
// it keeps everybody out.
func redsyncs(addrs []string) (grab, func() error, error) { return openRedsync(addrs) }

// redsyncsFailingFast go on when a quorum has answered, which is meant for servers that don't.
func redsyncsFailingFast(addrs []string) (grab, func() error, error) {
	return openRedsync(addrs, redsync.WithFailFast(true))
}

func openRedsync(addrs []string, options ...redsync.Option) (grab, func() error, error) {
	var clients []*redis.Client
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		clients = append(clients, rdb)
		pools = append(pools, goredis.NewPool(rdb))
	}
	rs := redsync.New(pools...)
	closeAll := func() error {
		var errs []error
		for _, rdb := range clients {
			errs = append(errs, rdb.Close())
		}
		return errors.Join(errs...)
	}
	options = append(options, redsync.WithExpiry(lockTTL), redsync.WithTries(math.MaxInt))
	return func(ctx context.Context, key string) (func() error, error) {
		m := rs.NewMutex(key, options...)
		if err := m.LockContext(ctx); err != nil {
			return nil, err
		}
		return func() error {
			ok, err := m.UnlockContext(ctx)
			if !ok && err == nil {
				err = errors.New("not unlocked on a quorum")
			}
			if ok {
				err = nil // of a minority
			}
			return err
		}, nil
	}, closeAll, nil
}
