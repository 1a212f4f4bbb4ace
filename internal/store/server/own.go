package server

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Own returns a client with the settings of rdb and its own connections, up to conns to each server. It is for calls that block, and
// for calls that must not wait until other calls give a connection back. The caller closes it.
//
// It takes these settings from rdb: the addresses, the dialer, TLS, the credentials and their providers, the timeouts, the retries,
// OnConnect and, in a Cluster, NewClient. It doesn't have hooks that were added with AddHook: go-redis has no way to read them. Own
// returns nil unless rdb is a *redis.Client, with or without Sentinel, or a *redis.ClusterClient.
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

// ownBuffers is the size of the buffers of an own connection, in bytes. It is small because the calls are short.
const ownBuffers = 4 << 10

// sentinelLife is the longest time that an own client behind Sentinel uses a connection. go-redis reports a failover only to the
// caller's client. An old master that does not know of the failover still answers, and a lease that is renewed there is lost.
const sentinelLife = 3 * time.Second

// sentinelAddr is the address that go-redis gives to a client behind Sentinel.
const sentinelAddr = "FailoverClient"

// ownOptions returns options for a new client that is like the client with the options o. In o the defaults are filled in. A value
// that means "none" in o means "the default" to a new client, so it is translated.
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

	// The caller's values belong to the caller's connections.
	own.PushNotificationProcessor = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	own.ClientSideCache, own.ClientSideCacheConfig = nil, nil
	return &own
}

// ownClusterOptions does the same for a Cluster. There the nodes fill in most defaults.
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

	// All its calls have keys and are routed by them. To route other calls, go-redis would first read the table of all commands.
	own.DisableRoutingPolicies = true

	own.PushNotificationProcessor = nil
	own.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &own
}

// Reach checks that each server of a client answers; of a Cluster, each master. So it makes a connection to each.
func Reach(ctx context.Context, rdb redis.UniversalClient) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return rdb.Ping(ctx).Err()
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		return master.Ping(ctx).Err()
	})
}

// none turns 0, which means "none" in filled options, back into -1, which means "none" to a new client.
func none[T int | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// noTimeout does the same for a timeout of a *redis.Client. There it turns -1 back into -2 as well.
func noTimeout(d time.Duration) time.Duration {
	if d == 0 || d == -1 {
		return d - 1
	}
	return d
}

// Crowd returns how many of the keys are on the server that has the most of them. Unless rdb is a client of a Cluster, these are all
// keys. It returns 0 if the servers of the keys are not known.
func Crowd(ctx context.Context, rdb redis.UniversalClient, keys []string) int {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return len(keys)
	}
	most := 0
	servers := make(map[string]int)
	for _, key := range keys {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return 0
		}
		addr := master.Options().Addr
		servers[addr]++
		most = max(most, servers[addr])
	}
	return most
}
