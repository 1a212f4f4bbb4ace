package lock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// New names every mistake, by its field, and returns no locker.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, c := range map[string]struct {
		rdb    Client
		config Config
		want   []string
	}{
		"no client":     {nil, Config{}, []string{"client", "nil"}},
		"typed nil":     {(*redis.Client)(nil), Config{}, []string{"client", "nil"}},
		"nil cluster":   {(*redis.ClusterClient)(nil), Config{}, []string{"client", "nil"}},
		"short TTL":     {rdb, Config{TTL: 9 * time.Millisecond}, []string{"TTL is 9ms", "10ms", "24h"}},
		"long TTL":      {rdb, Config{TTL: 25 * time.Hour}, []string{"TTL is 25h"}},
		"negative hold": {rdb, Config{MinHold: -1}, []string{"MinHold is -1ns"}},
		"long hold":     {rdb, Config{TTL: time.Second, MinHold: 2 * time.Second}, []string{"MinHold is 2s"}},
		"default TTL":   {rdb, Config{MinHold: time.Minute}, []string{"MinHold is 1m", "30s"}},
		"owner *":       {rdb, Config{Owner: "*"}, []string{"Owner"}},
		"two lines":     {rdb, Config{Owner: "a\nb"}, []string{"Owner"}},
		"long owner":    {rdb, Config{Owner: strings.Repeat("x", 129)}, []string{"Owner"}},
		"every mistake": {nil, Config{TTL: -1, MinHold: -2, Owner: "*"}, []string{"client", "TTL is -1ns", "MinHold is -2ns", "Owner"}},
	} {
		r, err := New(c.rdb, c.config)
		if r != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
	}
}
