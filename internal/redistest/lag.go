package redistest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// lagTurn is the pause between two measurements of a lag, and lagSlop what an idle machine adds to one.
const (
	lagTurn = 10 * time.Millisecond
	lagSlop = 2 * time.Millisecond
)

// Lag measures, until the test ends, how late this machine is: by how much timers and round trips to the server
// take longer than they should. late is the sum since Lag was called. It is next to nothing on an idle machine,
// and on a busy one it grows nearly as fast as the time.
//
// A test that says how long something takes at most takes it off what it has measured: then a busy machine does
// not fail the test, and on an idle one it is as strict as it looks. rdb is nil where the server is not to
// answer.
func Lag(t testing.TB, rdb redis.UniversalClient) (late func() time.Duration) {
	var (
		mu    sync.Mutex
		sum   time.Duration
		begin = time.Now() // of the measurement that is under way
	)
	over := func() time.Duration { return max(0, time.Since(begin)-lagTurn-lagSlop) }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(lagTurn):
			}
			if rdb != nil {
				_ = rdb.Ping(ctx).Err() // whoever has a server that doesn't answer gives none
			}
			mu.Lock()
			sum += over()
			begin = time.Now()
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return sum + over()
	}
}
