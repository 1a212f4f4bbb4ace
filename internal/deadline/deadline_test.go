package deadline_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/deadline"
)

// Nothing listens at the addresses: Warn makes no call.
func TestWarn(t *testing.T) {
	t.Parallel()
	type wrapped struct{ redis.UniversalClient }
	clients := func(heeds bool) map[string]redis.UniversalClient {
		return map[string]redis.UniversalClient{
			"a server": redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Password: "secret", ContextTimeoutEnabled: heeds}),
			"Sentinel": redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds}),
			"Sentinel, with replicas": redis.NewFailoverClusterClient(&redis.FailoverOptions{
				MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, RouteByLatency: true, ContextTimeoutEnabled: heeds,
			}),
			"a Cluster":   redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Password: "secret", ContextTimeoutEnabled: heeds}),
			"a Ring":      redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": "127.0.0.1:1"}, ContextTimeoutEnabled: heeds}),
			"a universal": redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:1"}, ContextTimeoutEnabled: heeds}),
		}
	}
	for _, heeds := range []bool{false, true} {
		for name, rdb := range clients(heeds) {
			defer func() { _ = rdb.Close() }()
			var text bytes.Buffer
			log := slog.New(slog.NewTextHandler(&text, nil))
			deadline.Warn(rdb, log)
			deadline.Warn(rdb, log)
			want := 1
			if heeds {
				want = 0
			}
			if n := strings.Count(text.String(), "ContextTimeoutEnabled"); n != want || strings.Contains(text.String(), "secret") || n > 0 && !strings.Contains(text.String(), "level=WARN") {
				t.Errorf("%s, deadlines are heeded: %v: %d warnings, want %d:\n%s", name, heeds, n, want, text.String())
			}
			text.Reset()
			deadline.Warn(wrapped{rdb}, log)
			deadline.Warn(&wrapped{rdb}, log)
			if text.Len() > 0 {
				t.Errorf("%s, wrapped: %s", name, text.String())
			}
		}
	}
	for _, rdb := range []any{nil, (*redis.Client)(nil), (*redis.ClusterClient)(nil), (*redis.Ring)(nil), (*redis.AutoPipeliner)(nil), wrapped{}} {
		var text bytes.Buffer
		if deadline.Warn(rdb, slog.New(slog.NewTextHandler(&text, nil))); text.Len() > 0 {
			t.Errorf("%T: %s", rdb, text.String())
		}
	}
}
