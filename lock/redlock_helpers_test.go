package lock

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
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
func redlockOn[S addressed](t testing.TB, servers []S, c RedlockConfig) *Redlock {
	t.Helper()
	c.NoRestartDelay = true
	return delayedRedlockOn(t, servers, c)
}

func delayedRedlockOn[S addressed](t testing.TB, servers []S, c RedlockConfig) *Redlock {
	t.Helper()
	r, err := NewRedlock(optionsOf(servers), c)
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
var roomy = RedlockConfig{TTL: 10 * time.Second, NodeTimeout: time.Second}
