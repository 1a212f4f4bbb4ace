package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
)

// Every locker keeps the same promises. Each that the suite asks for has clients of its own, as
// each process has.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, single(redistest.Start(t).Client))
	})
	t.Run("RedisThatHeedsDeadlines", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		locktest.Run(t, single(func() redis.UniversalClient {
			return s.ClientWith(func(o *redis.UniversalOptions) { o.ContextTimeoutEnabled = true })
		}))
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		locktest.Run(t, single(redistest.Cluster(t).Client))
	})
	t.Run("Redlock", func(t *testing.T) {
		t.Parallel()
		var addrs []string
		for range 5 {
			addrs = append(addrs, redistest.New(t).Addr())
		}
		locktest.Run(t, redlock(addrs))
	})
}

// single makes lockers over clients that are closed when all subtests have ended.
func single(client func() redis.UniversalClient) locktest.Maker {
	return func(_ testing.TB, ttl time.Duration) lock.Locker { return lock.New(client(), lock.TTL(ttl)) }
}

// redlock makes lockers on these masters.
func redlock(addrs []string) locktest.Maker {
	return func(t testing.TB, ttl time.Duration) lock.Locker {
		t.Helper()
		var nodes []*redis.Options
		for _, addr := range addrs {
			nodes = append(nodes, &redis.Options{Addr: addr})
		}
		r, err := lock.NewRedlock(nodes, lock.RedlockConfig{
			TTL:            ttl,
			NodeTimeout:    300 * time.Millisecond, // other tests keep this machine busy
			NoRestartDelay: true,                   // the servers are fresh: nothing was forgotten
		})
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
}
