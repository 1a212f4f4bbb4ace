package redistest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// lagTurn is the pause between two measurements. lagSlop is the longest lag of one measurement on an idle
// machine.
const (
	lagTurn = 10 * time.Millisecond
	lagSlop = 2 * time.Millisecond
)

// Lag measures, until the test ends, how late this machine is: by how much timers and round trips to the server
// take longer than they should. late returns the sum since Lag was called. On an idle machine it is next to
// nothing. On a busy one it grows nearly as fast as the time.
//
// A test with an upper limit for a time subtracts the lag from the time that it measured. Then a busy machine
// doesn't fail the test, and on an idle one the limit is exact. rdb is nil if the server will not answer.
func Lag(t testing.TB, rdb redis.UniversalClient) (late func() time.Duration) {
	var (
		mu    sync.Mutex
		sum   time.Duration
		begin = time.Now() // of the current measurement
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
				_ = rdb.Ping(ctx).Err() // a test whose server doesn't answer passes nil
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
