package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// heldUntil answers as a Redis whose lock another holds until then.
func heldUntil(free time.Time, pttl func() int64, looks *[]time.Time) fakeRedis {
	return fakeRedis{run: func(script *redis.Script, _ []any) (any, error) {
		*looks = append(*looks, time.Now())
		if script == acquireScript && time.Now().Before(free) {
			return []any{int64(0), pttl()}, nil
		}
		if script == acquireScript {
			return []any{int64(1), "7"}, nil
		}
		return int64(1), nil
	}}
}

// Waiting is neither a busy loop nor in step with other waiters.
func TestLooksAtAHeldLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks []time.Time
		start := time.Now()
		forever := func() int64 { return -1 }
		l, err := New(heldUntil(start.Add(20*time.Minute), forever, &looks)).Acquire(t.Context(), "key")
		if err != nil {
			t.Fatal(err) // not before 20 minutes: backoff stops at 15 by default
		}
		if late := time.Since(start.Add(20 * time.Minute)); late > 225*time.Millisecond {
			t.Errorf("it got in %v after the lock was free", late)
		}
		longest := time.Duration(0)
		gaps := map[time.Duration]bool{}
		for i, look := range looks[1:] {
			gap := look.Sub(looks[i])
			gaps[gap] = true
			longest = max(longest, gap)
			if least := 5 * time.Millisecond; gap < least || i > 10 && gap < 75*time.Millisecond {
				t.Fatalf("look %d came %v after the one before", i+1, gap)
			}
		}
		if longest > 225*time.Millisecond || len(gaps) < len(looks)/2 {
			t.Errorf("%d looks, %d different delays, the longest %v", len(looks), len(gaps), longest)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLooksWhenTheTTLIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ttl := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 10 * time.Second} {
			var looks []time.Time
			free := time.Now().Add(ttl)
			l, err := New(heldUntil(free, func() int64 { return time.Until(free).Milliseconds() }, &looks)).Acquire(t.Context(), "key")
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
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		_, err := New(fakeRedis{run: func(*redis.Script, []any) (any, error) {
			if tries++; tries < 3 {
				return []any{int64(0), int64(-1)}, nil
			}
			return nil, errMine
		}}).Acquire(t.Context(), "key")
		if !errors.Is(err, errMine) || errors.Is(err, ErrHeld) {
			t.Errorf("a failure after contention: %v", err)
		}
		synctest.Wait()
	})
}

// The end of the context is seen at once, while waiting and while asking.
func TestWaitingEndsAtOnce(t *testing.T) {
	for name, answers := range map[string]time.Duration{"while waiting": 0, "while asking": time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			first := true
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second+time.Nanosecond, errMine)
			defer cancel()
			start := time.Now()
			_, err := New(fakeRedis{run: func(script *redis.Script, _ []any) (any, error) {
				if script == acquireScript && !first {
					time.Sleep(answers)
				}
				first = false
				return []any{int64(0), int64(-1)}, nil
			}}).Acquire(ctx, "key")
			if took := time.Since(start); took != time.Second+time.Nanosecond {
				t.Errorf("%s: it ended after %v", name, took)
			}
			for _, want := range []error{ErrHeld, errMine, context.DeadlineExceeded} {
				if !errors.Is(err, want) {
					t.Errorf("%s: %v does not wrap: %v", name, err, want)
				}
			}
			time.Sleep(2 * time.Hour)
		})
	}
}
