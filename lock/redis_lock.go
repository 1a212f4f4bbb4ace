package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

// redisLock is the lock that a [Redis] grants, on one key or several.
type redisLock struct {
	held.Lock
	redis  *Redis
	places []place
	value  string // what the keys hold while the lock is ours
	row    row
	asked  lease.Instant // before the first call for it was made

	confirm *confirmation // of an offer; nil: it needs none
	only    handover      // for a lock of one key
	each    []handover    // for a lock of several keys, one each
}

func (l *redisLock) Key() string { return joinKeys(l.places) }

// Keys returns the sorted keys of a lock of several keys, and the key of any other lock.
func (l *redisLock) Keys() []string {
	keys := make([]string, len(l.places))
	for i, p := range l.places {
		keys[i] = p.lock
	}
	return keys
}

// Issuer and Holder implement [Origin]. The holder is the value that the key has in Redis.
func (l *redisLock) Issuer() string { return "redis" }
func (l *redisLock) Holder() string { return l.value }

// granted fills in a grant. Its TTL began after start.
func (l *redisLock) granted(ctx context.Context, start lease.Instant, ttl time.Duration, value string, token int64, row row) error {
	l.value, l.row = value, row
	l.Grant(token)
	if l.Validity.Extend(start, ttl) {
		return nil
	}
	took := time.Since(start.Time())
	return errors.Join(
		fmt.Errorf("%w: it was granted with no validity left: Redis took %v of a TTL of %v", ErrLost, took, ttl),
		l.giveBack(ctx, time.Time{}))
}

func (l *redisLock) Extend(ctx context.Context) error { return l.failed("extend", l.ExtendBy(ctx, l)) }

// Renew is part of [held.Service].
func (l *redisLock) Renew(ctx context.Context) error {
	keys := make([]string, 0, 2)
	for _, p := range l.places {
		keys = append(keys, p.lock, p.fence)
	}
	reply, err := l.redis.caller.Call(ctx, l.redis.askTimeout, extendScript, keys,
		[]any{l.value, l.redis.ttlArg}, nil)
	switch {
	case err == nil:
		return parseExtended(reply)
	case lua.IsWrongType(err):
		return ErrTaken // somebody put another type at the lock's key
	default:
		return advise(err, l.places[0])
	}
}

func (l *redisLock) Release(ctx context.Context) error {
	return l.failed("release", l.ReleaseBy(ctx, l))
}

// ReleaseNow is Release without [Config.MinHold]: the lock is free at once. MinHold keeps others from
// repeating the holder's work. A holder that didn't do the work calls this. All lockers of this library have it.
func (l *redisLock) ReleaseNow(ctx context.Context) error {
	l.DropMinHold()
	return l.Release(ctx)
}

// GiveUp is part of [held.Service].
func (l *redisLock) GiveUp(ctx context.Context, keep time.Time) error {
	l.confirm.end()
	return l.giveBack(ctx, keep)
}

// giveBack gives all keys up, and returns the worst that it found. The keep of the first call counts: until
// then they stay held.
func (l *redisLock) giveBack(ctx context.Context, keep time.Time) error {
	if len(l.places) == 1 {
		l.handover(&l.only, l.places[0], keep)
		return l.redis.give(ctx, &l.only)
	}
	if l.each == nil {
		l.each = make([]handover, len(l.places))
	}
	errs := make([]error, len(l.places))
	var all sync.WaitGroup
	for i, p := range l.places {
		l.handover(&l.each[i], p, keep)
		all.Go(func() { errs[i] = l.redis.give(ctx, &l.each[i]) })
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

// handover fills h in before its first use.
func (l *redisLock) handover(h *handover, p place, keep time.Time) {
	if h.value == "" {
		h.place, h.value, h.token, h.row, h.keep, h.ttl = p, l.value, l.Token(), l.streak(), keep, l.redis.ttl
		h.lock = &l.Lock
	}
}

// streak returns the row that this grant is in. For the first grant of a row the time is that of the grant.
// Its token is about the server's clock then.
func (l *redisLock) streak() row {
	if l.row.n == 0 {
		return row{0, l.Token()}
	}
	return l.row
}

func (l *redisLock) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s %.200q: %w", what, l.Key(), err)
}
