package zklock

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/lock"
)

// BenchmarkCycle is an acquire and a release, of a key that nobody else wants.
func BenchmarkCycle(b *testing.B) {
	l, key := locker(b, Config{}), newKey()
	cycle(b, l, key)
	for b.Loop() {
		cycle(b, l, key)
	}
}

// BenchmarkCycleOfGoZookeeper is BenchmarkCycle with the Lock of go-zookeeper: without a lease, a context or a token.
func BenchmarkCycleOfGoZookeeper(b *testing.B) {
	conn := dialed(b)
	run := func() {
		l := zk.NewLock(conn, "/bench", zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
	run()
	for b.Loop() {
		run()
	}
}

// BenchmarkCycles16 is 16 goroutines of one locker, with a key each.
func BenchmarkCycles16(b *testing.B) {
	l := locker(b, Config{})
	parallel(b, func() func() {
		key := newKey()
		return func() { cycle(b, l, key) }
	})
}

// BenchmarkHandover16 is 16 goroutines of one locker that want the same key.
func BenchmarkHandover16(b *testing.B) {
	l, key := locker(b, Config{}), newKey()
	parallel(b, func() func() { return func() { cycle(b, l, key) } })
}

// BenchmarkHandover16OfGoZookeeper is BenchmarkHandover16 with the Lock of go-zookeeper.
func BenchmarkHandover16OfGoZookeeper(b *testing.B) {
	conn := dialed(b)
	parallel(b, func() func() {
		return func() {
			l := zk.NewLock(conn, "/bench16", zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				b.Error(err)
			} else if err := l.Unlock(); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkExtend is what a holder pays each third of a TTL.
func BenchmarkExtend(b *testing.B) {
	l := locker(b, Config{})
	k, err := l.Acquire(b.Context(), newKey())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := k.Extend(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	release(b, k)
}

func cycle(b *testing.B, l lock.Locker, key string) {
	k, err := l.Acquire(context.Background(), key)
	if err != nil {
		b.Error(err)
		return
	}
	if err := k.Release(context.Background()); err != nil {
		b.Error(err)
	}
}

// parallel runs b.N cycles in 16 goroutines.
func parallel(b *testing.B, worker func() func()) {
	var left atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	for range 16 {
		run := worker()
		go func() {
			for left.Add(-1) >= 0 {
				run()
			}
			done <- struct{}{}
		}()
	}
	for range 16 {
		<-done
	}
}

func dialed(b *testing.B) *zk.Conn {
	conn, events, err := zk.Connect([]string{server(b)}, 10*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { end(conn, events) })
	return conn
}
