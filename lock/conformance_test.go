package lock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
	"github.com/signalbox-go/signalbox/lock/redlock"
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
		locktest.Run(t, majority(masters(t, 5)))
	})
}

// single makes lockers over clients that are closed when all subtests have ended.
func single(client func() redis.UniversalClient) locktest.Maker {
	return func(_ testing.TB, ttl time.Duration) lock.Locker { return newRedis(client(), lock.Config{TTL: ttl}) }
}

// majority makes lockers on these masters.
func majority(servers []*redistest.Server) locktest.Maker {
	return func(t testing.TB, ttl time.Duration) lock.Locker {
		t.Helper()
		return redlockOn(t, servers, redlock.Config{
			TTL:         ttl,
			NodeTimeout: min(ttl*2/5, 2*time.Second), // other tests keep this machine busy
		})
	}
}
