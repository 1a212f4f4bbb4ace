package lock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/locktest"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

func TestMain(m *testing.M) {
	locktest.Child(another)
	redistest.Main(m)
}

// another makes a locker in another process: arg is the kind of servers, and their addresses.
func another(arg string, ttl time.Duration) (lock.Locker, error) {
	kind, addrs, _ := strings.Cut(arg, " ")
	o := &redis.UniversalOptions{Addrs: strings.Split(addrs, " ")}
	switch kind {
	case "single":
		return lock.New(redis.NewClient(o.Simple()), lock.Config{TTL: ttl})
	case "cluster":
		return lock.New(redis.NewClusterClient(o.Cluster()), lock.Config{TTL: ttl})
	case "masters":
		var nodes []*redis.Options
		for _, addr := range o.Addrs {
			nodes = append(nodes, &redis.Options{Addr: addr})
		}
		return redlock.New(nodes, quick(ttl))
	}
	return nil, fmt.Errorf("unknown kind %q", kind)
}

// quick is the configuration of Redlocks whose servers are fresh, on a busy machine.
func quick(ttl time.Duration) redlock.Config {
	return redlock.Config{TTL: ttl, NodeTimeout: min(ttl*2/5, 2*time.Second), NoRestartDelay: true}
}

// Every locker keeps the same promises. Each that the suite asks for has clients of its own, as
// each process has.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		locktest.Run(t, single(s.Client), locktest.Processes("single "+s.Addr()))
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
		s := redistest.Cluster(t)
		locktest.Run(t, single(s.Client), locktest.Processes("cluster "+s.Masters()[0].Addr()))
	})
	t.Run("Redlock", func(t *testing.T) {
		t.Parallel()
		servers, arg := masters(t, 5), "masters"
		for _, s := range servers {
			arg += " " + s.Addr()
		}
		locktest.Run(t, majority(servers), locktest.Processes(arg))
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
		return redlockOn(t, servers, quick(ttl))
	}
}
