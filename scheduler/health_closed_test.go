package scheduler

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A client that its owner has closed is not asked again whether Redis is back.
func TestAskingEndsWithTheClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		if err := rdb.Close(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c := &combiner{queue: store.New(rdb, "", "default"), asking: true, askUntil: began.Add(askFor)}
		c.fails.away = true
		c.asks()
		if asked := time.Since(began); asked > 0 || c.asking {
			t.Errorf("it is asked for %v after it was closed", asked)
		}
	})
}
