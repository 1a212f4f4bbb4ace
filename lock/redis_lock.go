package lock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// redisLock is the lock that a [Redis] grants.
type redisLock struct {
	redis      *Redis
	key, fence string
	value      string // what the key holds while the lock is ours
	token      int64
	validity   *Validity

	mu       sync.Mutex // one release at a time
	released bool       // Release was called: the context has ended
	lost     bool       // the lease had ended before
	done     bool       // Redis has answered the release
}

func (l *redisLock) Key() string              { return l.key }
func (l *redisLock) Token() int64             { return l.token }
func (l *redisLock) Until() time.Time         { return l.validity.Until() }
func (l *redisLock) Context() context.Context { return l.validity.Context() }

func (l *redisLock) Extend(ctx context.Context) error {
	if l.validity.Err() != nil {
		return l.failed("extend", ErrLost)
	}
	if ctx.Err() != nil {
		return l.failed("extend", ended(ctx))
	}
	start := Now()
	ours, err := l.run(ctx, min(l.redis.ttl, callTimeout), extendScript,
		l.value, l.redis.ttl.Milliseconds(), fenceTTL.Milliseconds())
	if err != nil {
		return l.failed("extend", err)
	}
	if !ours {
		l.validity.End(ErrLost)
	}
	if !l.validity.Extend(start, l.redis.ttl) {
		return l.failed("extend", ErrLost)
	}
	return nil
}

func (l *redisLock) Release(ctx context.Context) error {
	if err := l.release(ctx); err != nil {
		return l.failed("release", err)
	}
	return nil
}

func (l *redisLock) release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.released {
		l.released = true
		l.lost = l.validity.Err() != nil
		l.validity.End(context.Canceled) // nothing starts under it from here on
	}
	if !l.done {
		ours, err := l.run(context.WithoutCancel(ctx), callTimeout, releaseScript, l.value, l.token)
		if err != nil && !l.lost {
			return err
		}
		l.done = err == nil
		l.lost = l.lost || !ours
	}
	if l.lost {
		return ErrLost
	}
	return nil
}

// run runs a script that answers whether the lock is still ours.
func (l *redisLock) run(ctx context.Context, timeout time.Duration, script *redis.Script, args ...any) (ours bool, err error) {
	reply, err := l.redis.call(ctx, timeout, script, []string{l.key, l.fence}, args, nil)
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		return false, nil // somebody put another type in its place
	}
	if err != nil {
		return false, err
	}
	return parseDone(reply)
}

func (l *redisLock) failed(what string, err error) error {
	return fmt.Errorf("lock: %s %q: %w", what, l.key, err)
}
