package lock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

// cycles runs b.N cycles of acquire and release in n goroutines.
func cycles(b *testing.B, locker lock.Locker, n int, key func(i int) string) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var mu sync.Mutex
	var worst time.Duration
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			slowest := time.Duration(0)
			for left.Add(-1) >= 0 {
				start := time.Now()
				l, err := locker.Acquire(b.Context(), key(i))
				if err != nil {
					b.Error(err)
					return
				}
				slowest = max(slowest, time.Since(start))
				if err := l.Release(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			worst = max(worst, slowest)
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
}

func BenchmarkCycle(b *testing.B) {
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			name := redistest.Name(b)
			cycles(b, newRedis(redistest.Start(b).Client()), n, func(i int) string { return fmt.Sprint(name, i) })
		})
	}
	b.Run("contended=16", func(b *testing.B) {
		name := redistest.Name(b)
		cycles(b, newRedis(redistest.Start(b).Client()), 16, func(int) string { return name })
	})
	b.Run("lockers=16", func(b *testing.B) { // as if in different processes
		name, s := redistest.Name(b), redistest.Start(b)
		b.ReportAllocs()
		var left atomic.Int64
		left.Store(int64(b.N))
		var wg sync.WaitGroup
		counts := make([]float64, 16)
		for i := range 16 {
			locker := newRedis(s.Client())
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					l, err := locker.Acquire(b.Context(), name)
					if err != nil {
						b.Error(err)
						return
					}
					counts[i]++
					if err := l.Release(b.Context()); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		var sum, squares float64
		for _, c := range counts {
			sum += c
			squares += c * c
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
		b.ReportMetric(sum*sum/16/squares, "jain")
	})
}

func BenchmarkRedlockCycle(b *testing.B) {
	servers := masters(b, 5)
	for _, n := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			name := redistest.Name(b)
			cycles(b, redlockOn(b, servers, redlock.Config{TTL: 10 * time.Second, NodeTimeout: time.Second}), n, func(i int) string { return fmt.Sprint(name, i) })
		})
	}
	b.Run("contended=16", func(b *testing.B) {
		name := redistest.Name(b)
		cycles(b, redlockOn(b, servers, redlock.Config{TTL: 10 * time.Second, NodeTimeout: time.Second}), 16, func(int) string { return name })
	})
}
