package redlock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// masters starts n servers that know nothing of each other.
func masters(t testing.TB, n int, args ...string) []*redistest.Server {
	t.Helper()
	servers := make([]*redistest.Server, n)
	for i := range servers {
		servers[i] = redistest.New(t, args...)
	}
	return servers
}

// addressed is what has an address: a server, or a proxy before it.
type addressed interface{ Addr() string }

func optionsOf[S addressed](servers []S) []*redis.Options {
	options := make([]*redis.Options, len(servers))
	for i, s := range servers {
		options[i] = &redis.Options{Addr: s.Addr()}
	}
	return options
}

// redlockOn makes a Redlock that is closed at the end of the test. The servers are fresh, so that
// there is nothing to wait for.
func redlockOn[S addressed](t testing.TB, servers []S, c Config) *Locker {
	t.Helper()
	c.NoRestartDelay = true
	return delayedRedlockOn(t, servers, c)
}

func delayedRedlockOn[S addressed](t testing.TB, servers []S, c Config) *Locker {
	t.Helper()
	r, err := New(optionsOf(servers), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// proxies stand before servers.
func proxies(t testing.TB, servers []*redistest.Server) []*redistest.Proxy {
	ps := make([]*redistest.Proxy, len(servers))
	for i, s := range servers {
		ps[i] = redistest.NewProxy(t, s.Addr())
	}
	return ps
}

// everywhere calls f with a client of each server at the same time.
func everywhere(t testing.TB, servers []*redistest.Server, f func(i int, rdb redis.UniversalClient)) {
	t.Helper()
	var all sync.WaitGroup
	for i, s := range servers {
		rdb := s.Client()
		all.Go(func() { f(i, rdb) })
	}
	all.Wait()
}

// nothingLeft waits until none of the servers has the key.
func nothingLeft(t testing.TB, servers []*redistest.Server, key string) {
	t.Helper()
	for i, s := range servers {
		rdb := s.Client()
		redistest.Eventually(t, func() bool {
			n, err := rdb.Exists(context.Background(), key).Result()
			return err == nil && n == 0
		}, "nothing is left of %q on server %d", key, i)
	}
}

// roomy is a config for tests that are not about time: a loaded machine is slow.
var roomy = Config{TTL: 10 * time.Second, NodeTimeout: time.Second}

func TestMain(m *testing.M) { redistest.Main(m) }

func acquire(t *testing.T, l lock.Locker, key string) lock.Lock {
	t.Helper()
	held, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func release(t *testing.T, l lock.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// fence returns the key of a lock's record.
func fence(t *testing.T, key string) string {
	t.Helper()
	f, err := spec.FenceKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// do is a command that must succeed.
func do(t *testing.T, rdb redis.UniversalClient, args ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// patiently asks with contexts that end with this cause, each later than the one before, until one was long enough
// to find the lock held: a busy machine takes its time. It returns the last context, and what came of it.
func patiently(t *testing.T, cause error, ask func(context.Context) error) (context.Context, error) {
	t.Helper()
	for d := 50 * time.Millisecond; ; d *= 2 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), d, cause)
		t.Cleanup(cancel)
		err := ask(ctx)
		if errors.Is(err, lock.ErrHeld) || ctx.Err() == nil || d > 5*time.Second {
			return ctx, err
		}
	}
}

// drifted is the validity that a TTL promises.
func drifted(ttl time.Duration) time.Duration { return ttl - ttl/100 - 2*time.Millisecond }
