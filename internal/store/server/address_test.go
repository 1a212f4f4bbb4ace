package server

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestAddress(t *testing.T) {
	t.Parallel()
	client := func(network, addr string) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Network: network, Addr: addr, Username: "ann", Password: "s3cret"})
	}
	cluster := func(addrs ...string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Username: "ann", Password: "s3cret"})
	}
	sentinel := &redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"10.0.0.1:26379"}, Password: "s3cret"}
	url, err := redis.ParseURL("redis://ann:s3cret@redis.example:6390/2")
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		rdb  redis.UniversalClient
		host string
		port int
	}{
		"host":                  {client("", "redis.example:6380"), "redis.example", 6380},
		"the default":           {client("", ""), "localhost", 6379},
		"IPv4":                  {client("tcp", "127.0.0.1:6379"), "127.0.0.1", 6379},
		"IPv6":                  {client("tcp6", "[::1]:6379"), "::1", 6379},
		"URL":                   {redis.NewClient(url), "redis.example", 6390},
		"socket":                {client("unix", "/run/redis.sock"), "/run/redis.sock", 0},
		"socket by its path":    {client("", "/run/redis.sock"), "/run/redis.sock", 0},
		"no port":               {client("", "redis.example"), "", 0},
		"a port's name":         {client("", "redis.example:redis"), "", 0},
		"a URL by mistake":      {client("", "redis://ann:s3cret@redis.example:6379"), "", 0},
		"a password by mistake": {client("", "s3cret@redis.example:6379"), "", 0},
		"Cluster":               {cluster("redis-1:7000", "redis-2:7001"), "redis-1", 7000},
		"Sentinel":              {redis.NewFailoverClient(sentinel), "", 0},
		"Sentinel, many":        {redis.NewFailoverClusterClient(sentinel), "", 0},
		"ring":                  {redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "redis-1:7000"}}), "", 0},
		"nil":                   {nil, "", 0},
		"nil client":            {(*redis.Client)(nil), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if !IsNil(tc.rdb) {
				t.Cleanup(func() { tc.rdb.Close() })
			}
			if host, port := Address(tc.rdb); host != tc.host || port != tc.port {
				t.Errorf("got %q, %d; want %q, %d", host, port, tc.host, tc.port)
			}
		})
	}
}
