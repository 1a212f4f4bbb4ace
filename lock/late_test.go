package lock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A value is granted once: a copy of the call that comes when its grant has ended takes nothing.
func TestLateCopyTakesNothing(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, keys := range map[string][]string{"one": {redistest.Name(t)}, "two": {"{" + redistest.Name(t) + "}a", "{" + redistest.Name(t) + "}b"}} {
		var args []string
		for _, key := range keys {
			p := placeOf(t, key)
			args = append(args, p.lock, p.fence, p.line)
		}
		ask := func(until any) granting {
			t.Helper()
			reply, err := acquireScript.Run(t.Context(), rdb, args, "value", 60_000, "me", "", until).Result()
			if err != nil {
				t.Fatal(err)
			}
			g, err := parseGrant(reply, len(keys))
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		now := rdb.Time(t.Context()).Val()
		if g := ask(now.Add(-time.Millisecond).UnixMicro()); !g.late || g.token != 0 || rdb.Exists(t.Context(), args...).Val() != 0 {
			t.Errorf("%s, after the deadline: %+v", name, g)
		}
		first := ask(now.Add(time.Minute).UnixMicro())
		if first.token == 0 || ask(0).token != first.token {
			t.Errorf("%s: %+v, and another when it was repeated", name, first)
		}
		rdb.Del(t.Context(), keys...) // it was released
		if g := ask(0); !g.late || rdb.Exists(t.Context(), keys...).Val() != 0 {
			t.Errorf("%s, after the end of the grant: %+v", name, g)
		}
	}
}

// The server's clock was stepped ahead, or this machine slept: the deadlines that the locker reckons are over when they
// come. It learns that by one refusal, and is granted the lock.
func TestDeadlinesFollowASteppedClock(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	proxy := redistest.NewProxy(t, s.Addr())
	locker := newRedis(proxy.ClientWith(unheeding))
	release(t, acquire(t, locker, key)) // the server knows the scripts
	asks := redistest.Command("EVALSHA", acquireScript.Hash())
	locker.caller.Clock.Ahead.Add(-time.Hour.Microseconds())
	before := proxy.Count(asks)
	for _, want := range []int{2, 3} {
		l, err := locker.TryAcquire(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if got := proxy.Count(asks) - before; got != want {
			t.Errorf("%d calls, want %d", got, want)
		}
		release(t, l)
	}
	locker.caller.Wait()
}

// A clock that jumps with each call refuses nobody for long: the last try has no deadline.
func TestDeadlinesUnderAWildClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var until []any
		locker := newRedis(fakeRedis{run: func(script *redis.Script, args []any) (any, error) {
			if script != acquireScript {
				return []any{int64(1), int64(0)}, nil
			}
			until = append(until, args[4])
			if args[4] == 0 {
				return []any{int64(1), "7"}, nil
			}
			return []any{int64(-1), int64(1e15) * int64(len(until))}, nil
		}})
		locker.caller.Clock.Saw(1, time.Now())
		release(t, acquire(t, locker, "key"))
		if len(until) != lateTries {
			t.Errorf("%d tries: %v", len(until), until)
		}
	})
}

// What an acquire without a reply may have taken is released at once, and looked at again when it can't come any more.
func TestUndoLooksAgain(t *testing.T) {
	for name, now := range map[string]int64{"the clock is known": 1e15, "it is not": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var (
					mu    sync.Mutex
					value any
					looks []time.Duration
				)
				begin := time.Now()
				locker := newRedis(fakeRedis{run: func(script *redis.Script, args []any) (any, error) {
					mu.Lock()
					defer mu.Unlock()
					if script == acquireScript {
						value = args[0]
						return nil, errMine
					}
					if args[0] != value {
						t.Errorf("it releases %v, not %v", args[0], value)
					}
					looks = append(looks, time.Since(begin))
					return []any{int64(0)}, nil
				}})
				locker.caller.Clock.Saw(now, time.Now())
				if _, err := locker.TryAcquire(t.Context(), "key"); !errors.Is(err, errMine) {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				want := 2
				if now == 0 {
					want = 3
				}
				if len(looks) != want || looks[0] != 0 || looks[1] < callTimeout {
					t.Errorf("it looked after %v", looks)
				}
			})
		})
	}
}

// A reply that nobody waits for any more says that the call came too late. An earlier copy of the call, which the
// client sent and whose reply was lost, may have been in time: what it took is released.
func TestLateReplyToNobodyIsUndone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var (
			mu       sync.Mutex
			value    any
			released bool
		)
		reply := make(chan struct{})
		locker := newRedis(fakeRedis{run: func(script *redis.Script, args []any) (any, error) {
			if script == acquireScript {
				mu.Lock()
				value = args[0]
				mu.Unlock()
				<-reply
				return []any{int64(-1), int64(1e15)}, nil
			}
			mu.Lock()
			defer mu.Unlock()
			released = released || script == releaseScript && args[0] == value
			return []any{int64(1), int64(0)}, nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := locker.TryAcquire(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		close(reply)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if !released {
			t.Error("what an earlier copy may have taken is not released")
		}
	})
}

// An extension that was given up, and lands after the release, doesn't make MinHold last for the TTL.
func TestMinHoldOutlivesNoLateExtension(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	locker := newRedis(rdb, Config{TTL: time.Hour, MinHold: time.Minute})
	l := acquire(t, locker, key).(*redisLock)
	release(t, l)
	status, err := extendScript.Run(t.Context(), rdb, []string{key, fence(t, key)}, l.value, time.Hour.Milliseconds()).Int()
	if err != nil || status == 1 {
		t.Errorf("it was extended: %d, %v", status, err)
	}
	if ttl := rdb.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("it is held for %v", ttl)
	}
	info, err := locker.Inspect(t.Context(), key)
	if err != nil || !info.Held || info.Token != l.Token() || info.Owner == "" {
		t.Errorf("%+v, %v", info, err)
	}
	l.only.settled = false // the reply was lost: the release is sent again
	if err := l.giveBack(t.Context(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if rdb.Exists(t.Context(), key).Val() != 1 {
		t.Error("a repeated release ended it")
	}
}
