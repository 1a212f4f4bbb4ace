package scheduler

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// TestNoPassword: to a client that gave no password Redis says NOAUTH to a small command, but to
// one as large as ours that it breaks the protocol.
func TestNoPassword(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	if err := srv.Client().ConfigSet(context.Background(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	_, err := newScheduler(t, rdb).Enqueue(context.Background(), note{})
	if err == nil || !strings.Contains(err.Error(), "needs a password") {
		t.Errorf("got %v", err)
	}
}
