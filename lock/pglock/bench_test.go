package pglock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/signalbox-go/signalbox/lock/pglock"
)

// BenchmarkLock measures cycles of acquire and release: one goroutine, 64 on as many keys, and 16 on one key.
func BenchmarkLock(b *testing.B) {
	for _, c := range []struct{ goroutines, keys int }{{1, 1}, {64, 64}, {16, 1}} {
		b.Run(fmt.Sprintf("goroutines=%d/keys=%d", c.goroutines, c.keys), func(b *testing.B) {
			p := locker(b, dial(b, sharedURL(b), func(c *pgxpool.Config) { c.MaxConns = 16 }), pglock.Config{})
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var all sync.WaitGroup
			b.ResetTimer()
			for i := range c.goroutines {
				key := fmt.Sprintf("%s/%d", b.Name(), i%c.keys)
				all.Go(func() {
					for left.Add(-1) >= 0 {
						l, err := p.Acquire(b.Context(), key)
						if err == nil {
							err = l.Release(b.Context())
						}
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		})
	}
}
