package server

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestWatch: a call without an answer is logged after 3 s, with the address and possible reasons. A call with an answer isn't logged.
func TestWatch(t *testing.T) {
	t.Parallel()
	address := func(o *redis.Options) *redis.Options {
		o.Addr, o.Username, o.Password = "db:6379", "hush", "hush"
		return o
	}
	plain, secure := redis.NewClient(address(&redis.Options{})), redis.NewClient(address(&redis.Options{TLSConfig: &tls.Config{}}))
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"db:6379"}, TLSConfig: &tls.Config{}})
	defer plain.Close()
	defer secure.Close()
	defer cluster.Close()
	for _, c := range []struct {
		rdb  redis.UniversalClient
		want string
	}{{plain, "without TLS (redis://)"}, {secure, "uses TLS (rediss://)"}, {cluster, "uses TLS (rediss://)"}} {
		synctest.Test(t, func(t *testing.T) {
			var said lines
			log := slog.New(slog.NewTextHandler(&said, nil))
			late, early := Watch(c.rdb, log), Watch(c.rdb, log)
			time.Sleep(patience - time.Nanosecond)
			if !early() || said.String() != "" {
				t.Errorf("too early: %s", said.String())
			}
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			text := said.String()
			if late() || strings.Count(text, "\n") != 1 || !strings.Contains(text, c.want) || !strings.Contains(text, "address=db:6379") || strings.Contains(text, "hush") {
				t.Errorf("got %s", text)
			}
		})
	}
}
