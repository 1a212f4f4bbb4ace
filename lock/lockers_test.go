package lock_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// What holds for both lockers, beside TestConformance.

func TestMetrics(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	nodes := masters(t, 3)
	for name, c := range map[string]struct {
		locker  func(m *lock.Measures) lock.Locker
		servers []redis.UniversalClient
	}{
		"Redis": {func(m *lock.Measures) lock.Locker { return newRedis(rdb, lock.Config{MeterProvider: m}) }, []redis.UniversalClient{rdb}},
		"Redlock": {func(m *lock.Measures) lock.Locker {
			return redlockOn(t, nodes, redlock.Config{MeterProvider: m, NodeTimeout: time.Second})
		}, clients(nodes)},
	} {
		t.Run(name, func(t *testing.T) {
			key := redistest.Name(t)
			m := lock.Measuring(t, key)
			locker := c.locker(m)
			l, err := locker.Acquire(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			m.Want(map[string]int{"acquire.duration acquired": 1})
			if _, err := locker.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
				t.Error(err)
			}
			for range 2 {
				if err := l.Extend(t.Context()); err != nil {
					t.Error(err)
				}
			}
			for range 2 { // the second changes nothing
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := locker.Acquire(ended, key); err == nil {
				t.Error("acquired with a context that has ended")
			}
			want := map[string]int{
				"acquire.duration acquired": 1, "acquire.duration held": 1, "acquire.duration error": 1,
				"held.duration": 1, "renewals": 2,
			}
			m.Want(want)

			// Taken, and found at an extension or at the release.
			for _, find := range []func(lock.Lock) error{
				func(l lock.Lock) error { return l.Extend(t.Context()) },
				func(l lock.Lock) error { return l.Release(t.Context()) },
			} {
				l, err := locker.Acquire(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				everywhere(c.servers, func(rdb redis.UniversalClient) { // another takes it
					if err := rdb.Set(t.Context(), key, "another", time.Minute).Err(); err != nil {
						t.Error(err)
					}
				})
				if err := find(l); !errors.Is(err, lock.ErrTaken) {
					t.Errorf("%v, want an ErrTaken", err)
				}
				<-l.Context().Done()
				_ = l.Release(t.Context())
				want["acquire.duration acquired"]++
				want["held.duration"]++
				want["lost taken"]++
				redistest.Eventually(t, func() bool { return maps.Equal(m.Read(), want) }, "measured is %v", want)
				everywhere(c.servers, func(rdb redis.UniversalClient) { rdb.Del(t.Context(), key) })
			}
		})
	}
}

// MinHold doesn't count for a holder that says so, with either locker; a release before it does.
func TestReleaseNow(t *testing.T) {
	t.Parallel()
	c := redlock.Config{TTL: time.Hour, MinHold: time.Hour, NodeTimeout: time.Second}
	for name, locker := range map[string]lock.Locker{
		"Redis":   newRedis(redistest.Start(t).Client(), lock.Config{TTL: time.Hour, MinHold: time.Hour}),
		"Redlock": redlockOn(t, masters(t, 3), c),
	} {
		l, err := locker.Acquire(t.Context(), redistest.Name(t))
		if err != nil {
			t.Fatal(err)
		}
		early, ok := l.(interface{ ReleaseNow(context.Context) error })
		if !ok {
			t.Fatalf("%s: no ReleaseNow", name)
		}
		for range 2 { // idempotent
			if err := early.ReleaseNow(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if l.Context().Err() == nil {
			t.Errorf("%s: the holder's context goes on", name)
		}
		next, err := locker.TryAcquire(t.Context(), l.Key())
		if err != nil {
			t.Fatalf("%s: it is not free: %v", name, err)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := locker.TryAcquire(t.Context(), l.Key()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("%s: after a Release: %v, want ErrHeld", name, err)
		}
	}
}

// masters starts n servers that know nothing of each other.
func masters(t testing.TB, n int) []*redistest.Server {
	t.Helper()
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.New(t)
	}
	return servers
}

func clients(servers []*redistest.Server) []redis.UniversalClient {
	rdbs := make([]redis.UniversalClient, len(servers))
	for i, s := range servers {
		rdbs[i] = s.Client()
	}
	return rdbs
}

// redlockOn makes a Redlock that is closed at the end of the test. The servers are fresh: nothing was forgotten.
func redlockOn(t testing.TB, servers []*redistest.Server, c redlock.Config) *redlock.Locker {
	t.Helper()
	nodes := make([]*redis.Options, len(servers))
	for i, s := range servers {
		nodes[i] = &redis.Options{Addr: s.Addr()}
	}
	c.NoRestartDelay = true
	r, err := redlock.New(nodes, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

// everywhere calls f with a client of each server at the same time.
func everywhere(servers []redis.UniversalClient, f func(redis.UniversalClient)) {
	var all sync.WaitGroup
	for _, rdb := range servers {
		all.Go(func() { f(rdb) })
	}
	all.Wait()
}

// newRedis is lock.New with a Config that may be left out and must be right.
func newRedis(rdb lock.Client, c ...lock.Config) *lock.Redis {
	r, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return r
}
