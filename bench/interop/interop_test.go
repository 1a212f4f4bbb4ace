package interop

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/redlock"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	long  = 30 * time.Second
	short = 400 * time.Millisecond
	// patience bounds what must happen at once, and doesn't on a loaded machine.
	patience = 20 * time.Second
)

// A world is a kind of deployment: our locker on it and the addresses for the peers.
type world struct {
	addrs []string
	ours  func(t *testing.T, ttl time.Duration) lock.Locker
}

type start func(t *testing.T, addrs []string) peer

func TestSingleNode(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	w := world{[]string{s.Addr()}, func(t *testing.T, ttl time.Duration) lock.Locker {
		return newLocker(clientsOf(t, []string{s.Addr()})[0], lock.Config{TTL: ttl})
	}}
	for name, start := range map[string]start{
		"redsync": newRedsync, "redislock": newRedislock, "redlock4": nodePeers("redlock4"), "redlock5": nodePeers("redlock5"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.run(t, start(t, w.addrs))
		})
	}
}

func TestRedlock(t *testing.T) {
	t.Parallel()
	w := world{}
	var nodes []*redis.Options
	for range 3 {
		s := redistest.New(t)
		w.addrs = append(w.addrs, s.Addr())
		nodes = append(nodes, &redis.Options{Addr: s.Addr()})
	}
	w.ours = func(t *testing.T, ttl time.Duration) lock.Locker {
		r, err := redlock.New(nodes, redlock.Config{
			TTL: ttl, NodeTimeout: 150 * time.Millisecond,
			NoRestartDelay: true, // the servers are fresh
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		return r
	}
	for name, start := range map[string]start{
		"redsync": newRedsync, "redlock4": nodePeers("redlock4"), "redlock5": nodePeers("redlock5"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.run(t, start(t, w.addrs))
		})
	}
}

// run is all that must hold with any peer. The cases use keys of their own, at the same time.
func (w world) run(t *testing.T, p peer) {
	for name, test := range map[string]func(t *testing.T, w world, p peer, key string){
		"we hold":      weHold,
		"they hold":    theyHold,
		"their extend": theirExtend,
		"our extend":   ourExtend,
		"their expiry": theirExpiry,
		"our expiry":   ourExpiry,
		"contention":   contention,
		"both try":     triesLeaveNothing,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, w, p, redistest.Name(t))
		})
	}
}

// refused asserts that the peer can't have the lock.
func refused(t *testing.T, p peer, key string) {
	t.Helper()
	if _, err := p.acquire(t.Context(), key, long, 0); !errors.Is(err, errRefused) {
		t.Fatalf("they asked for a lock that we hold: %v", err)
	}
}

// granted returns the peer's lock.
func granted(t *testing.T, p peer, key string, ttl, wait time.Duration) held {
	t.Helper()
	h, err := p.acquire(t.Context(), key, ttl, wait)
	if err != nil {
		t.Fatalf("they asked for a free lock: %v", err)
	}
	return h
}

// must is for what has to work.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// tried returns our lock, which must be free.
func tried(t *testing.T, l lock.Locker, key string) lock.Lock {
	t.Helper()
	got, err := l.TryAcquire(t.Context(), key)
	must(t, "we asked for a free lock", err)
	return got
}

// keptOut asserts that we can't have the lock, since somebody holds it.
func keptOut(t *testing.T, l lock.Locker, key string) {
	t.Helper()
	if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("we asked for a lock that they hold: %v", err)
	}
}

func weHold(t *testing.T, w world, p peer, key string) {
	ours := tried(t, w.ours(t, long), key)
	refused(t, p, key)
	must(t, "our release", ours.Release(t.Context()))
	theirs := granted(t, p, key, long, 0)
	must(t, "their release", theirs.release(t.Context()))
}

func theyHold(t *testing.T, w world, p peer, key string) {
	theirs := granted(t, p, key, long, 0)
	locker := w.ours(t, long)
	keptOut(t, locker, key)
	must(t, "their release", theirs.release(t.Context()))
	ours := tried(t, locker, key)
	must(t, "our release", ours.Release(t.Context()))
}

func theirExtend(t *testing.T, w world, p peer, key string) {
	theirs := granted(t, p, key, short, 0)
	must(t, "their extend", theirs.extend(t.Context(), long))
	ctx, cancel := context.WithTimeout(t.Context(), 2*short)
	defer cancel()
	locker := w.ours(t, long)
	if _, err := locker.Acquire(ctx, key); !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("we waited for a lock that they extended: %v", err)
	}
	must(t, "their release", theirs.release(t.Context()))
	must(t, "our release", tried(t, locker, key).Release(t.Context()))
}

func ourExtend(t *testing.T, w world, p peer, key string) {
	ours := tried(t, w.ours(t, 2*short), key)
	err := lock.Hold(t.Context(), ours, func(ctx context.Context) error {
		if _, err := p.acquire(ctx, key, long, 3*short); !errors.Is(err, errRefused) {
			t.Errorf("they waited for a lock that we extended: %v", err)
		}
		return ctx.Err()
	})
	must(t, "our holding", err)
	must(t, "their release", granted(t, p, key, long, 0).release(t.Context()))
}

func theirExpiry(t *testing.T, w world, p peer, key string) {
	began := time.Now()
	theirs := granted(t, p, key, short, 0)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ours, err := w.ours(t, long).Acquire(ctx, key)
	must(t, "we waited for the end of their lock", err)
	if waited := time.Since(began); waited < short-10*time.Millisecond {
		t.Errorf("we had it %v after they had, within their TTL of %v", waited, short)
	}
	if err := theirs.release(t.Context()); err == nil {
		t.Error("their late release found the lock theirs")
	}
	must(t, "our extend after their late release", ours.Extend(t.Context()))
	refused(t, p, key)
	must(t, "our release", ours.Release(t.Context()))
}

func ourExpiry(t *testing.T, w world, p peer, key string) {
	ours := tried(t, w.ours(t, short), key)
	theirs := granted(t, p, key, long, patience)
	if ours.Context().Err() == nil {
		t.Error("they have the lock, and ours still holds")
	}
	if err := ours.Extend(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("our late extend: %v", err)
	}
	if err := ours.Release(t.Context()); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("our late release: %v, want ErrTaken", err)
	}
	must(t, "their extend after our late release", theirs.extend(t.Context(), long))
	keptOut(t, w.ours(t, long), key)
	must(t, "their release", theirs.release(t.Context()))
}

// triesLeaveNothing: who was refused leaves the holder's lock as it was, also when both try at
// the same time.
func triesLeaveNothing(t *testing.T, w world, p peer, key string) {
	locker := w.ours(t, long)
	for range 20 {
		var theirs held
		var asked sync.WaitGroup
		asked.Go(func() { theirs, _ = p.acquire(t.Context(), key, long, 0) })
		ours, err := locker.TryAcquire(t.Context(), key)
		asked.Wait()
		if err == nil && theirs != nil {
			t.Fatal("both have the lock")
		}
		if err == nil {
			refused(t, p, key)
			must(t, "our release", ours.Release(t.Context()))
		}
		if theirs != nil {
			keptOut(t, locker, key)
			must(t, "their release", theirs.release(t.Context()))
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ours, err := locker.Acquire(ctx, key)
	must(t, "we asked for the lock that nobody should have", err)
	must(t, "our release", ours.Release(t.Context()))
}

// contention: some of ours, by two lockers as in two processes, and some of theirs want one
// lock. No two have it at once, and all get it, again and again.
func contention(t *testing.T, w world, p peer, key string) {
	const each, enough = 3, 5
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	atLeast := time.Now().Add(1500 * time.Millisecond)
	var holders, satisfied atomic.Int32
	var all sync.WaitGroup
	var counts [2 * each]atomic.Int32
	use := func(i int) {
		if holders.Add(1) != 1 {
			t.Error("two have the lock at once")
		}
		<-time.After(rand.N(2 * time.Millisecond))
		holders.Add(-1)
		if counts[i].Add(1) == enough {
			satisfied.Add(1)
		}
	}
	// Everyone stops when all have had it often enough, for a while.
	again := func() bool {
		if t.Failed() || ctx.Err() != nil || satisfied.Load() == 2*each && time.Now().After(atLeast) {
			return false
		}
		<-time.After(rand.N(10 * time.Millisecond)) // they do other things too
		return true
	}
	lockers := []lock.Locker{w.ours(t, long), w.ours(t, long)}
	for i := range each {
		all.Go(func() {
			for again() {
				l, err := lockers[i%2].Acquire(ctx, key)
				if err != nil {
					t.Errorf("our acquire: %v", err)
					return
				}
				use(i)
				if err := l.Release(ctx); err != nil {
					t.Errorf("our release: %v", err)
				}
			}
		})
		all.Go(func() {
			for again() {
				h, err := p.acquire(ctx, key, long, patience)
				if err != nil {
					t.Errorf("their acquire: %v", err)
					return
				}
				use(each + i)
				if err := h.release(ctx); err != nil {
					t.Errorf("their release: %v", err)
				}
			}
		})
	}
	all.Wait()
	var had [2 * each]int32
	for i := range counts {
		had[i] = counts[i].Load()
		if had[i] < enough {
			t.Errorf("contender %d had the lock %d times, want %d", i, had[i], enough)
		}
	}
	t.Logf("ours had it %v times, theirs %v", had[:each], had[each:])
}

// newLocker is lock.New with a Config that may be left out and must be right.
func newLocker(rdb lock.Client, c ...lock.Config) *lock.Redis {
	l, err := lock.New(rdb, append(c, lock.Config{})[0])
	if err != nil {
		panic(err)
	}
	return l
}
