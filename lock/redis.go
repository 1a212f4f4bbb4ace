package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

const (
	defaultTTL = 30 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 24 * time.Hour

	// fenceTTL is how long a token counter outlives the last grant or extension.
	fenceTTL = 7 * 24 * time.Hour

	// callTimeout bounds one call, so that a Redis that hangs holds nobody up.
	callTimeout = 5 * time.Second
)

// An Option changes how [New] makes a locker.
type Option func(*config)

type config struct {
	ttl time.Duration
}

// TTL is how long a lock lives in Redis unless it is extended: from 10 ms to 24 h, in
// whole ms (a fraction is cut off). The default is 30 s. The promised validity is
// 1 % + 2 ms shorter.
func TTL(d time.Duration) Option { return func(c *config) { c.ttl = d } }

// Redis is a [Locker] on one Redis: a single server, one behind Sentinel, or the node
// of a Cluster that serves the key. It is safe for concurrent use and has nothing
// to close.
type Redis struct {
	rdb redis.Scripter
	ttl time.Duration
	err error // of the options; every acquire returns it
}

var _ Locker = (*Redis)(nil)

// New returns a locker over the caller's client, which any [redis.UniversalClient] is.
// It does nothing yet. A mistake in the arguments is returned by every acquire, as
// an error that wraps [ErrInvalid].
func New(rdb redis.Scripter, opts ...Option) *Redis {
	c := config{ttl: defaultTTL}
	for _, opt := range opts {
		opt(&c)
	}
	r := &Redis{rdb: rdb, ttl: c.ttl.Truncate(time.Millisecond)}
	if rdb == nil {
		r.err = fmt.Errorf("%w: New needs a Redis client, not nil", ErrInvalid)
	}
	if c.ttl < minTTL || c.ttl > maxTTL {
		r.err = errors.Join(r.err, fmt.Errorf("%w: TTL is %v; it must be from %v to %v", ErrInvalid, c.ttl, minTTL, maxTTL))
	}
	return r
}

// Acquire waits for the lock, looking again after a jittered delay and when the holder's
// TTL is over. If ctx ends first the error wraps its cause, and [ErrHeld] if the
// lock was seen held. A failure of Redis is returned and not waited out, since
// nobody knows for how long; it never wraps ErrHeld.
func (r *Redis) Acquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, key, r.wait)
}

// TryAcquire asks once. The error wraps [ErrHeld] if another holds the lock.
func (r *Redis) TryAcquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, key, func(ctx context.Context, l *redisLock) error {
		_, err := r.try(ctx, l)
		return err
	})
}

func (r *Redis) acquire(ctx context.Context, key string, grant func(context.Context, *redisLock) error) (Lock, error) {
	fence, err := fenceKey(key)
	if r.err != nil {
		err = r.err
	}
	if err != nil {
		return nil, err
	}
	// The span is for the asking only, so the lock's context has the values of ctx.
	l := &redisLock{redis: r, key: key, fence: fence, validity: NewValidity(context.WithoutCancel(ctx))}
	spanCtx, span := telemetry.StartAcquire(ctx)
	if err := grant(spanCtx, l); err != nil {
		outcome := telemetry.LockFailed
		if errors.Is(err, ErrHeld) {
			outcome = telemetry.LockHeld
		}
		span.End(outcome, 0, err)
		return nil, fmt.Errorf("lock: acquire %q: %w", key, err)
	}
	span.End(telemetry.LockAcquired, l.token, nil)
	return l, nil
}

// try asks for the lock once and fills in l if it is granted. With ErrHeld it returns for
// how long the holder has it at most; negative: unknown.
func (r *Redis) try(ctx context.Context, l *redisLock) (heldFor time.Duration, err error) {
	if ctx.Err() != nil {
		return 0, ended(ctx)
	}
	value := rand.Text() // a new one, so that a late answer to an earlier try can't be mistaken for this one's
	start := Now()
	reply, err := r.call(ctx, min(r.ttl, callTimeout), acquireScript, []string{l.key, l.fence},
		[]any{value, r.ttl.Milliseconds(), fenceTTL.Milliseconds()},
		func(ctx context.Context, reply any, err error) { r.undo(ctx, l.key, l.fence, value, reply, err) })
	if redis.HasErrorPrefix(err, "WRONGTYPE") || redis.HasErrorPrefix(err, "BADCOUNTER") {
		return 0, fmt.Errorf("%w: the key or its token counter %q holds something else: %w", ErrInvalid, l.fence, err)
	}
	if err != nil {
		return 0, err
	}
	granted, number, err := parseGrant(reply)
	if err != nil {
		return 0, err
	}
	if !granted {
		return time.Duration(number) * time.Millisecond, ErrHeld
	}
	l.value, l.token = value, number
	if !l.validity.Extend(start, r.ttl) {
		took := time.Since(start.mono)
		return 0, errors.Join(
			fmt.Errorf("%w: it was granted with no validity left: Redis took %v of a TTL of %v", ErrLost, took, r.ttl),
			l.release(context.WithoutCancel(ctx)))
	}
	return 0, nil
}

// undo releases what an acquire may have taken though its caller didn't get it: the answer
// came too late, or the connection broke and the command may or may not have run.
// If this fails too, the lock is gone after its TTL.
func (r *Redis) undo(ctx context.Context, key, fence, value string, reply any, err error) {
	if err == nil {
		if granted, _, err := parseGrant(reply); err == nil && !granted {
			return
		}
	} else if isAnswer(err) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = releaseScript.Run(ctx, r.rdb, []string{key, fence}, value, "").Err()
}
