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

// All who wait for a lock learn at the same moment that Redis hangs or is down, by that error and never by ErrHeld.
// So does one who comes meanwhile.
func TestWaitersLearnOfAnOutageTogether(t *testing.T) {
	for name, hangs := range map[string]time.Duration{"it hangs": 20 * time.Second, "it is down": 0} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				begin := time.Now()
				locker := newRedis(fakeRedis{run: func(*redis.Script, []any) (any, error) {
					if time.Since(begin) > time.Second {
						time.Sleep(hangs - time.Since(begin))
						return nil, errMine
					}
					return []any{int64(0), int64(1), int64(-1), int64(1), int64(0), int64(0)}, nil
				}})
				locker.bell.deaf, locker.bell.channel = true, "here" // it counts on being told, and looks seldom
				var (
					all sync.WaitGroup
					mu  sync.Mutex
					at  = map[time.Time]int{}
				)
				wait := func() {
					_, err := locker.Acquire(t.Context(), "key")
					if err == nil || errors.Is(err, ErrHeld) {
						t.Errorf("a waiter: %v", err)
					}
					mu.Lock()
					defer mu.Unlock()
					at[time.Now()]++
				}
				for range 40 {
					all.Go(wait)
				}
				time.Sleep(time.Second + time.Millisecond)
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if _, err := locker.Acquire(ctx, "key"); err == nil || errors.Is(err, ErrHeld) {
					t.Errorf("one who came meanwhile: %v", err)
				}
				all.Wait()
				if len(at) != 1 {
					t.Errorf("they learned of it at %d moments: %v", len(at), at)
				}
				if took := time.Since(begin); took > 3*time.Second+callTimeout {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A look that hangs is the first's, who leaves. The next doesn't begin to count anew.
func TestSilenceOutlivesTheOneWhoAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begin := time.Now()
		locker := newRedis(fakeRedis{run: func(*redis.Script, []any) (any, error) {
			if time.Since(begin) > time.Second {
				time.Sleep(20*time.Second - time.Since(begin))
			}
			return []any{int64(0), int64(1), int64(-1), int64(0), int64(0), int64(0)}, nil
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		first := make(chan error, 1)
		go func() {
			_, err := locker.Acquire(ctx, "key")
			first <- err
		}()
		synctest.Wait()
		_, err := locker.Acquire(t.Context(), "key")
		if err == nil || errors.Is(err, ErrHeld) {
			t.Errorf("the next: %v", err)
		}
		if took := time.Since(begin); took > 3*time.Second+callTimeout {
			t.Errorf("it learned of the silence after %v", took)
		}
		if err := <-first; errors.Is(err, ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who left: %v", err)
		}
	})
}

// One who comes after a long quiet time, and leaves soon, was told that the lock is held: the first in line has looked for it.
func TestNewcomerOfAQuietLine(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	held := acquire(t, newRedis(s.Client()), key)
	locker := newRedis(s.Client())
	waiter := waitFor(t, locker, key)
	inLine(t, s.Client(), key, 1)
	locker.mu.Lock()
	locker.lines[key].answered = time.Now().Add(-time.Hour)
	locker.mu.Unlock()
	_, err := patiently(t, nil, saysHeld, func(ctx context.Context) error {
		_, err := locker.Acquire(ctx, key)
		return err
	})
	if !errors.Is(err, ErrHeld) {
		t.Errorf("%v", err)
	}
	release(t, held)
	release(t, (<-waiter).must(t))
}

// A cancel is heeded while Redis hangs, with either kind of client: a call of 4 s that began before is not awaited.
func TestCancelIsHeededAtOnce(t *testing.T) {
	t.Parallel()
	for name, heeds := range map[string]bool{"by default": false, "ContextTimeoutEnabled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.New(t)
			rdb := s.ClientWith(func(o *redis.UniversalOptions) { o.ContextTimeoutEnabled = heeds })
			locker := newRedis(rdb)
			held := acquire(t, locker, "held")
			short := newRedis(rdb, Config{TTL: 4 * time.Second})
			release(t, acquire(t, short, "other"))
			s.Stop()
			bounded := make(chan error, 1)
			go func() {
				_, err := short.TryAcquire(t.Context(), "other")
				bounded <- err
			}()
			for what, f := range map[string]func(context.Context) error{
				"Acquire": func(ctx context.Context) error { _, err := locker.Acquire(ctx, "key"); return err },
				"Extend":  held.Extend,
			} {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- f(ctx) }()
				redistest.Eventually(t, func() bool { return locker.caller.UnderWay() > 0 }, "the call is under way")
				cancel()
				select {
				case err := <-done:
					if !errors.Is(err, context.Canceled) || errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) {
						t.Errorf("%s: %v", what, err)
					}
				case err := <-bounded:
					t.Fatalf("%s still waits for Redis when another call's time is over: %v", what, err)
				}
			}
			s.Cont()
			release(t, held)
		})
	}
}
