package etcdlock

import (
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/signalbox-go/signalbox/lock"
)

// BenchmarkCycle is an acquire and a release, alone and by 16 goroutines with keys of their own.
func BenchmarkCycle(b *testing.B) {
	addr := sharedEtcd(b).Addr()
	for name, goroutines := range map[string]int{"alone": 1, "16keys": 16} {
		b.Run(name, func(b *testing.B) {
			r := lockerOn(b, time.Minute, addr)
			perGoroutine(b, goroutines, func() func() error {
				key := newKey()
				return func() error { return cycle(b, r, key) }
			})
		})
		b.Run(name+"/concurrency", func(b *testing.B) { // etcd's own, with one session for each goroutine
			client := dial(b, nil, addr)
			perGoroutine(b, goroutines, func() func() error { return mutexCycle(b, concurrencySession(b, client), newKey()) })
		})
	}
}

// BenchmarkContention is the same with one key for 16 goroutines.
func BenchmarkContention(b *testing.B) {
	addr := sharedEtcd(b).Addr()
	b.Run("ours", func(b *testing.B) {
		r, key := lockerOn(b, time.Minute, addr), newKey()
		perGoroutine(b, 16, func() func() error { return func() error { return cycle(b, r, key) } })
	})
	b.Run("concurrency", func(b *testing.B) {
		client, key := dial(b, nil, addr), newKey()
		perGoroutine(b, 16, func() func() error { return mutexCycle(b, concurrencySession(b, client), key) })
	})
}

// BenchmarkHeld is a TryAcquire of a lock that another holds.
func BenchmarkHeld(b *testing.B) {
	r, key := lockerOn(b, time.Minute, sharedEtcd(b).Addr()), newKey()
	l := acquire(b, r, key)
	for b.Loop() {
		if _, err := r.TryAcquire(b.Context(), key); err == nil {
			b.Fatal("two hold it")
		}
	}
	release(b, l)
}

// BenchmarkExtend is an extension.
func BenchmarkExtend(b *testing.B) {
	l := acquire(b, lockerOn(b, time.Minute, sharedEtcd(b).Addr()), newKey())
	for b.Loop() {
		if err := l.Extend(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	release(b, l)
}

func cycle(b *testing.B, r lock.Locker, key string) error {
	l, err := r.Acquire(b.Context(), key)
	if err != nil {
		return err
	}
	return l.Release(b.Context())
}

func mutexCycle(b *testing.B, s *concurrency.Session, key string) func() error {
	return func() error {
		m := concurrency.NewMutex(s, key)
		if err := m.Lock(b.Context()); err != nil {
			return err
		}
		return m.Unlock(b.Context())
	}
}

// perGoroutine shares b.N runs among goroutines, each with a function of its own.
func perGoroutine(b *testing.B, goroutines int, fresh func() func() error) {
	b.Helper()
	var all sync.WaitGroup
	var runs []func() error
	for range goroutines {
		run := fresh()
		if err := run(); err != nil { // connects
			b.Fatal(err)
		}
		runs = append(runs, run)
	}
	b.ResetTimer()
	for i, run := range runs {
		all.Go(func() {
			for range (b.N + i) / goroutines {
				if err := run(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func concurrencySession(b *testing.B, client *clientv3.Client) *concurrency.Session {
	b.Helper()
	s, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s
}
