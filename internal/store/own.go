package store

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Own returns a client with the settings of rdb and connections of its own, up to conns to each server.
// It is for calls that block, and for those that must not wait until others give a connection back. The
// caller closes it.
//
// It has the addresses, the dialer, TLS, the credentials and their providers, the timeouts, the
// retries, OnConnect and, in a Cluster, NewClient of rdb. It does not have hooks that were added
// with AddHook, since go-redis does not give them out. It returns nil unless rdb is a *redis.Client, with or
// without Sentinel, or a *redis.ClusterClient.
func Own(rdb redis.UniversalClient, conns int) redis.UniversalClient {
	switch c := rdb.(type) {
	case *redis.Client:
		return redis.NewClient(ownOptions(c.Options(), conns))
	case *redis.ClusterClient:
		return redis.NewClusterClient(ownClusterOptions(c.Options(), conns))
	}
	return nil
}

// ownBuffers is the size of the buffers of an own connection, in bytes: it carries short calls.
const ownBuffers = 4 << 10

// sentinelLife is how long a connection of an own client behind Sentinel is used, at most. go-redis tells only
// the caller's client of a failover. An old master that does not know of it yet goes on to answer: a lease that is
// renewed there is none.
const sentinelLife = 3 * time.Second

// sentinelAddr is what go-redis calls the address of a client behind Sentinel.
const sentinelAddr = "FailoverClient"

// ownOptions returns the options to make a client with that is as the one that has o. In o the defaults are
// filled in: what says "none" there would say "the default" to another client.
func ownOptions(o *redis.Options, conns int) *redis.Options {
	own := *o
	own.PoolSize, own.PipelinePoolSize = conns, -1
	own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns, own.MaxConcurrentDials = 0, 0, 0, 0
	own.ReadBufferSize, own.WriteBufferSize = ownBuffers, ownBuffers
	own.PipelineReadBufferSize, own.PipelineWriteBufferSize = 0, 0

	own.ContextTimeoutEnabled = true
	own.MaxRetries = none(own.MaxRetries)
	own.MinRetryBackoff, own.MaxRetryBackoff = none(own.MinRetryBackoff), none(own.MaxRetryBackoff)
	own.ReadTimeout, own.WriteTimeout = noTimeout(own.ReadTimeout), noTimeout(own.WriteTimeout)

	if o.Addr == sentinelAddr && (o.ConnMaxLifetime <= 0 || o.ConnMaxLifetime > sentinelLife) {
		own.ConnMaxLifetime, own.ConnMaxLifetimeJitter = sentinelLife, 0
	}

	// Those of the caller are tied to its own connections.
	own.PushNotificationProcessor = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	own.ClientSideCache, own.ClientSideCacheConfig = nil, nil
	return &own
}

// ownClusterOptions is ownOptions for a Cluster, whose nodes fill in most defaults.
func ownClusterOptions(o *redis.ClusterOptions, conns int) *redis.ClusterOptions {
	own := *o
	own.PoolSize, own.PipelinePoolSize = conns, -1
	own.MinIdleConns, own.MaxIdleConns, own.MaxActiveConns, own.MaxConcurrentDials = 0, 0, 0, 0
	own.ReadBufferSize, own.WriteBufferSize = ownBuffers, ownBuffers
	own.PipelineReadBufferSize, own.PipelineWriteBufferSize = 0, 0

	own.ContextTimeoutEnabled = true
	own.MaxRedirects = none(own.MaxRedirects)
	own.MinRetryBackoff, own.MaxRetryBackoff = none(own.MinRetryBackoff), none(own.MaxRetryBackoff)
	own.ReadTimeout, own.WriteTimeout = none(own.ReadTimeout), none(own.WriteTimeout)

	// Its calls go by their keys. To route others, go-redis would read the table of all commands first.
	own.DisableRoutingPolicies = true

	own.PushNotificationProcessor = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &own
}

// Reach asks each server of a client, of a Cluster each master, whether it answers. So a connection to each is made.
func Reach(ctx context.Context, rdb redis.UniversalClient) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return rdb.Ping(ctx).Err()
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return master.Ping(ctx).Err()
	})
}

// none turns the 0 of filled options back into the -1 that says so to a new client.
func none[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// noTimeout is none for a timeout of a *redis.Client, where -1 stands for -2, too.
func noTimeout(d time.Duration) time.Duration {
	if d == 0 || d == -1 {
		return d - 1
	}
	return d
}

// Crowd returns how many of the queues are on the server that has the most of them: all, unless rdb is a
// client of a Cluster. It returns 0 if that is not known.
func Crowd(ctx context.Context, rdb redis.UniversalClient, queues []*Queue) int {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return len(queues)
	}
	most := 0
	servers := make(map[string]int)
	for _, q := range queues {
		master, err := cluster.MasterForKey(ctx, q.keys.jobs)
		if err != nil {
			return 0
		}
		addr := master.Options().Addr
		servers[addr]++
		most = max(most, servers[addr])
	}
	return most
}
