package lock

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// heldUntil answers as a Redis whose lock another holds until then.
func heldUntil(free time.Time, pttl func() int64, looks *[]time.Time) fakeRedis {
	return fakeRedis{run: func(script *redis.Script, _ []any) (any, error) {
		*looks = append(*looks, time.Now())
		if script == acquireScript && time.Now().Before(free) {
			return []any{int64(0), int64(1), pttl(), int64(0), int64(0), int64(0)}, nil
		}
		if script == acquireScript {
			return []any{int64(1), "7"}, nil
		}
		return []any{int64(1), int64(0)}, nil
	}}
}

// Waiting is neither a busy loop nor in step with other waiters.
func TestLooksAtAHeldLock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var looks []time.Time
		start := time.Now()
		forever := func() int64 { return -1 }
		l, err := newRedis(heldUntil(start.Add(20*time.Minute), forever, &looks)).Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err) // not before 20 minutes: backoff stops at 15 by default
		}
		if late := time.Since(start.Add(20 * time.Minute)); late > 260*time.Millisecond {
			t.Errorf("it got in %v after the lock was free", late)
		}
		longest := time.Duration(0)
		gaps := map[time.Duration]bool{}
		for i, look := range looks[1:] {
			gap := look.Sub(looks[i])
			gaps[gap] = true
			longest = max(longest, gap)
			if least := othersLook; i > 0 && gap < least {
				t.Fatalf("look %d came %v after the one before", i+1, gap)
			}
		}
		if longest > 260*time.Millisecond || len(gaps) < len(looks)/2 {
			t.Errorf("%d looks, %d different delays, the longest %v", len(looks), len(gaps), longest)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLooksWhenTheTTLIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, ttl := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 10 * time.Second} {
			var looks []time.Time
			free := time.Now().Add(ttl)
			l, err := newRedis(heldUntil(free, func() int64 { return time.Until(free).Milliseconds() }, &looks)).Acquire(t.Context(), "key")
			if err != nil {
				t.Fatal(err)
			}
			if late := time.Since(free); late > time.Millisecond+expiryJitter {
				t.Errorf("a TTL of %v: it got in %v late", ttl, late)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWaitingStopsAtAFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tries atomic.Int64
		_, err := newRedis(fakeRedis{run: func(*redis.Script, []any) (any, error) {
			if tries.Add(1) < 3 {
				return []any{int64(0), int64(1), int64(-1), int64(0), int64(0), int64(0)}, nil
			}
			return nil, errMine
		}}).Acquire(t.Context(), "key")
		if !errors.Is(err, errMine) || errors.Is(err, ErrHeld) {
			t.Errorf("a failure after contention: %v", err)
		}
	})
}
