package lock

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// offeredLock takes an offer of a second now, of a Redis that answers an extension so. It returns
// the number of the extensions that were tried.
func offeredLock(t *testing.T, extend func(try int64) (any, error)) (*redisLock, *atomic.Int64) {
	t.Helper()
	tries := new(atomic.Int64)
	locker := newRedis(fakeRedis{run: func(script *redis.Script, _ []any) (any, error) {
		if script == extendScript {
			return extend(tries.Add(1))
		}
		return []any{int64(1), int64(0)}, nil
	}})
	l := &redisLock{redis: locker, places: []place{placeOf(t, "key")}, Lock: held.Lock{TTL: locker.ttl, Validity: lease.NewValidity(t.Context())}}
	if err := l.offered(t.Context(), lease.Now(), turn{value: "offered", offered: 7, ttl: maxOffer}); err != nil {
		t.Fatal(err)
	}
	return l, tries
}

// A confirmation that gets no answer is tried again while there is time.
func TestConfirmationIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		l, _ := offeredLock(t, func(try int64) (any, error) {
			if try == 1 {
				<-hangs
			}
			return int64(1), nil
		})
		time.Sleep(maxOffer)
		if left := time.Until(l.Until()); l.Context().Err() != nil || left < spec.DefaultTTL/2 {
			t.Errorf("it was not confirmed: %v left", left)
		}
		release(t, l)
	})
}

// An offer that can't be confirmed is a lock for no longer than it was offered.
func TestConfirmationFails(t *testing.T) {
	for name, c := range map[string]struct {
		extend func(int64) (any, error)
		ends   time.Duration
		cause  error
	}{
		"by an error": {func(int64) (any, error) { return nil, errMine }, drifted(maxOffer), ErrExpired},
		"it is gone":  {func(int64) (any, error) { return int64(0), nil }, maxOffer / 8, ErrExpired},
		"it is taken": {func(int64) (any, error) { return int64(-1), nil }, maxOffer / 8, ErrTaken},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				start := time.Now()
				l, tries := offeredLock(t, c.extend)
				<-l.Context().Done()
				if took := time.Since(start); took != c.ends {
					t.Errorf("it was a lock for %v, want %v", took, c.ends)
				}
				if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
					t.Errorf("Extend: %v", err)
				}
				if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
					t.Errorf("Release: %v", err)
				}
				n := tries.Load()
				time.Sleep(time.Minute)
				if tries.Load() != n || n > 20 {
					t.Errorf("%d extensions, and then %d", n, tries.Load()-n)
				}
			})
		})
	}
}

// A release doesn't wait for a confirmation that hangs.
func TestReleaseWhileConfirming(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hangs := make(chan struct{})
		defer close(hangs)
		l, tries := offeredLock(t, func(int64) (any, error) {
			<-hangs
			return int64(1), nil
		})
		time.Sleep(maxOffer/8 + time.Millisecond)
		start := time.Now()
		release(t, l)
		if took := time.Since(start); took != 0 || tries.Load() != 1 {
			t.Errorf("it took %v, beside %d extensions", took, tries.Load())
		}
		time.Sleep(time.Minute)
		if tries.Load() != 1 {
			t.Error("what was released is extended")
		}
	})
}
