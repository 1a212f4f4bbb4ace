package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// redisLock is the lock that a [Redis] grants, of one key or several.
type redisLock struct {
	redis    *Redis
	places   []place
	value    string // what the keys hold while the lock is ours
	token    int64
	row      row
	since    time.Time // when it was granted
	validity *Validity
	asked    Instant // the first call for it was made after that

	confirm *confirmation                     // of an offer; nil if it needs none
	holding atomic.Pointer[telemetry.Holding] // a confirmation may come before it is set

	mu       sync.Mutex // one release at a time
	released bool       // Release was called: the context has ended
	lost     error      // how the lease had ended before that
	done     bool       // Redis has answered the release
}

func (l *redisLock) Key() string              { return joinKeys(l.places) }
func (l *redisLock) Token() int64             { return l.token }
func (l *redisLock) Until() time.Time         { return l.validity.Until() }
func (l *redisLock) Context() context.Context { return l.validity.Context() }

// granted fills in what was granted for a TTL that began after start.
func (l *redisLock) granted(ctx context.Context, start Instant, ttl time.Duration, value string, token int64, row row) error {
	l.value, l.token, l.row, l.since = value, token, row, time.Now()
	if l.validity.Extend(start, ttl) {
		return nil
	}
	took := time.Since(start.mono)
	return errors.Join(
		fmt.Errorf("%w: it was granted with no validity left: Redis took %v of a TTL of %v", ErrLost, took, ttl),
		l.giveBack(ctx, 0))
}

func (l *redisLock) Extend(ctx context.Context) error {
	if l.validity.Err() != nil {
		return l.failed("extend", ErrLost)
	}
	if ctx.Err() != nil {
		return l.failed("extend", ended(ctx))
	}
	keys := make([]string, 0, 2)
	for _, p := range l.places {
		keys = append(keys, p.lock, p.fence)
	}
	start := Now()
	reply, err := l.redis.caller.call(ctx, min(l.redis.ttl, callTimeout), extendScript, keys,
		[]any{l.value, l.redis.ttlArg}, nil)
	switch {
	case err == nil:
		err = parseExtended(reply)
	case isWrongType(err):
		err = ErrTaken // somebody put another type in its place
	}
	if errors.Is(err, ErrLost) {
		l.validity.End(err)
	} else if err == nil && !l.validity.Extend(start, l.redis.ttl) {
		err = ErrExpired
	}
	if err != nil {
		return l.failed("extend", err)
	}
	l.holding.Load().Renewed()
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
		if l.validity.Err() != nil {
			l.lost = ErrExpired // unless Redis knows more
		} else {
			l.holding.Load().Released()
		}
		l.validity.End(context.Canceled) // nothing starts under it from here on
		l.confirm.end()
	}
	if !l.done {
		err := l.giveBack(ctx, l.redis.minHold-time.Since(l.since))
		l.holding.Load().Lost(howLost(err))
		switch {
		case err == nil:
			l.done = true
		case errors.Is(err, ErrLost):
			l.done, l.lost = true, err
		case l.lost == nil:
			return err
		}
	}
	return l.lost
}

// giveBack gives all keys up, and says the worst that it found.
func (l *redisLock) giveBack(ctx context.Context, keep time.Duration) error {
	if len(l.places) == 1 {
		return l.redis.give(ctx, l.places[0], l.value, l.streak(), keep)
	}
	errs := make([]error, len(l.places))
	var all sync.WaitGroup
	for i, p := range l.places {
		all.Go(func() { errs[i] = l.redis.give(ctx, p, l.value, l.streak(), keep) })
	}
	all.Wait()
	for _, worst := range []error{ErrTaken, ErrExpired} {
		for _, err := range errs {
			if errors.Is(err, worst) {
				return worst
			}
		}
	}
	return errors.Join(errs...)
}

// streak is the row that this grant is in. The first of a row began when it was granted, and
// a token is about the server's clock then.
func (l *redisLock) streak() row {
	if l.row.n == 0 {
		return row{0, l.token}
	}
	return l.row
}

func (l *redisLock) failed(what string, err error) error {
	return fmt.Errorf("lock: %s %q: %w", what, l.Key(), err)
}
