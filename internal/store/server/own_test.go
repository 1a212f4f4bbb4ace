package server

import (
	"context"
	"crypto/tls"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// Checks which settings of an own client are its own. All others are the same as the caller's.
var ownFields = []string{
	"PoolSize", "PipelinePoolSize", "MinIdleConns", "MaxIdleConns", "MaxActiveConns", "MaxConcurrentDials",
	"ReadBufferSize", "WriteBufferSize", "PipelineReadBufferSize", "PipelineWriteBufferSize", "ContextTimeoutEnabled",
	"DisableRoutingPolicies",
	"PushNotificationProcessor", "MaintNotificationsConfig", "ClientSideCache", "ClientSideCacheConfig",
}

func TestOwnHasTheCallersSettings(t *testing.T) {
	t.Parallel()
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }
	connect := func(context.Context, *redis.Conn) error { return nil }
	credentials := func() (string, string) { return "u", "p" }
	current := func(context.Context) (string, string, error) { return "u", "p", nil }
	for name, o := range map[string]*redis.Options{
		"defaults": {Addr: "redis-1:1"},
		"none":     {Addr: "redis-1:1", MaxRetries: -1, MinRetryBackoff: -1, MaxRetryBackoff: -1, ReadTimeout: -1, WriteTimeout: -1, ConnMaxIdleTime: -1},
		"no deadlines": {
			Addr: "redis-1:1", ReadTimeout: -2, WriteTimeout: -2,
		},
		"all": {
			Addr: "redis-1:1", ClientName: "n", Dialer: dial, OnConnect: connect, Protocol: 2, Username: "u", Password: "p",
			CredentialsProvider: credentials, CredentialsProviderContext: current, DB: 3, MaxRetries: 7, MinRetryBackoff: time.Millisecond,
			MaxRetryBackoff: time.Hour, DialTimeout: time.Minute, ReadTimeout: 11 * time.Second, WriteTimeout: 12 * time.Second,
			PoolTimeout: time.Minute, PoolSize: 3, MinIdleConns: 2, ConnMaxIdleTime: time.Hour, ConnMaxLifetime: time.Hour,
			TLSConfig: &tls.Config{ServerName: "redis-1", MinVersion: tls.VersionTLS13}, DisableIdentity: true, IdentitySuffix: "s",
		},
	} {
		if name == "all" {
			o.MinIdleConns = 0 // otherwise it dials
		}
		rdb := redis.NewClient(o)
		own := Own(rdb, 5).(*redis.Client)
		sameFields(t, name, *own.Options(), *rdb.Options())
		if n := own.Options().PoolSize; n != 5 {
			t.Errorf("%s: the pool has %d connections, want 5", name, n)
		}
		_, _ = own.Close(), rdb.Close()
	}
	newClient := func(o *redis.Options) *redis.Client { return redis.NewClient(o) }
	for name, o := range map[string]*redis.ClusterOptions{
		"cluster, defaults": {Addrs: []string{"redis-1:1"}},
		"cluster, none":     {Addrs: []string{"redis-1:1"}, MaxRedirects: -1, MinRetryBackoff: -1, MaxRetryBackoff: -1, ReadTimeout: -1, WriteTimeout: -1},
		"cluster, all": {
			Addrs: []string{"redis-1:1", "redis-2:1"}, NewClient: newClient, Dialer: dial, OnConnect: connect, Username: "u", Password: "p",
			CredentialsProviderContext: current, MaxRedirects: 9, MaxRetries: 2, ReadTimeout: time.Minute, WriteTimeout: time.Second,
			TLSConfig: &tls.Config{ServerName: "redis-1", MinVersion: tls.VersionTLS13}, RouteRandomly: true,
		},
	} {
		rdb := redis.NewClusterClient(o)
		own := Own(rdb, 5).(*redis.ClusterClient)
		sameFields(t, name, *own.Options(), *rdb.Options())
		_, _ = own.Close(), rdb.Close()
	}
}

// sameFields compares two options. Two functions are equal if they are the same function.
func sameFields[T any](t *testing.T, name string, got, want T) {
	t.Helper()
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		f := g.Type().Field(i)
		if !f.IsExported() || slices.Contains(ownFields, f.Name) {
			continue
		}
		if f.Type.Kind() == reflect.Func {
			if g.Field(i).Pointer() != w.Field(i).Pointer() {
				t.Errorf("%s: %s is another function", name, f.Name)
			}
			continue
		}
		if !reflect.DeepEqual(g.Field(i).Interface(), w.Field(i).Interface()) {
			t.Errorf("%s: %s is %v, want %v", name, f.Name, g.Field(i).Interface(), w.Field(i).Interface())
		}
	}
}

// A client of another type has no settings that can be read.
func TestOwnOfAnUnknownClient(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	if own := Own(struct{ redis.UniversalClient }{rdb}, 1); own != nil {
		t.Errorf("a client of a type that wraps another: %v", own)
	}
}

// An own client finds the master that Sentinel names, also after a failover.
func TestOwnBehindSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.Sentinel(t)
	own := Own(sentinel.Client(), 2)
	defer own.Close()
	set := func() bool { return own.Set(context.Background(), redistest.Name(t), "1", time.Minute).Err() == nil }
	if !set() {
		t.Error("the master is not found")
	}
	sentinel.Failover(t)
	redistest.Eventually(t, set, "the new master is found")
}

func TestCrowd(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	var keys []string
	servers := make(map[string]int)
	for range 12 {
		of := layout.KeysOf("", redistest.Name(t))
		keys = append(keys, of.Jobs)
		m, err := cluster.Client().(*redis.ClusterClient).MasterForKey(bg, of.Idle)
		if err != nil {
			t.Fatal(err)
		}
		servers[m.Options().Addr]++
	}
	want := 0
	for _, n := range servers {
		want = max(want, n)
	}
	if got := Crowd(bg, cluster.Client(), keys); got != want {
		t.Errorf("%d queues on one server, want %d", got, want)
	}
	if got := Crowd(bg, cluster.Masters()[0].Client(), keys); got != len(keys) {
		t.Errorf("%d queues on the only server, want %d", got, len(keys))
	}
}

// TestOwnFollowsSentinel: an own client behind Sentinel gets no message when the master changes. So it replaces its connections after a
// short time. The caller's client does so at once.
func TestOwnFollowsSentinel(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ set, want time.Duration }{{0, sentinelLife}, {time.Hour, sentinelLife}, {time.Second, time.Second}} {
		rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ConnMaxLifetime: c.set})
		own := Own(rdb, 1).(*redis.Client)
		if got := own.Options().ConnMaxLifetime; got != c.want {
			t.Errorf("connections live for %v, want %v; the caller's for %v", got, c.want, c.set)
		}
		_, _ = own.Close(), rdb.Close()
	}
}
