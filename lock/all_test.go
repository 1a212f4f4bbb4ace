package lock

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

func TestAcquireAll(t *testing.T) {
	t.Parallel()
	rdb, name, ctx := redistest.Start(t).Client(), redistest.Name(t), t.Context()
	locker := newRedis(rdb)
	a, b, c := name+"a", name+"b", name+"c"

	before := acquire(t, locker, b)
	release(t, before)
	l, err := locker.AcquireAll(ctx, c, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.Join([]string{a, b, c}, " "); l.Key() != want || l.Token() <= before.Token() {
		t.Errorf("key %q, want %q; token %d after %d", l.Key(), want, l.Token(), before.Token())
	}
	for _, key := range []string{a, b, c} {
		if _, err := locker.TryAcquire(ctx, key); !errors.Is(err, ErrHeld) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if err := l.Extend(ctx); err != nil {
		t.Error(err)
	}
	release(t, l)
	release(t, l)
	for _, key := range []string{a, b, c} {
		after := acquire(t, locker, key)
		if after.Token() <= l.Token() {
			t.Errorf("%s: token %d after %d", key, after.Token(), l.Token())
		}
		release(t, after)
	}
}

// One that is held keeps all the others untouched.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	rdb, name, ctx := redistest.Start(t).Client(), redistest.Name(t), t.Context()
	locker := newRedis(rdb)
	held := acquire(t, locker, name+"b")
	if l, err := locker.TryAcquireAll(ctx, name+"a", name+"b", name+"c"); l != nil || !errors.Is(err, ErrHeld) {
		t.Fatalf("%v, %v", l, err)
	}
	if n := rdb.Exists(ctx, name+"a", name+"c", fence(t, name+"a"), fence(t, name+"c")).Val(); n != 0 {
		t.Fatalf("%d keys were written", n)
	}
	release(t, held)

	// It is lost as soon as one is.
	l, err := locker.AcquireAll(ctx, name+"a", name+"b")
	if err != nil {
		t.Fatal(err)
	}
	rdb.Set(ctx, name+"b", "theirs", time.Minute)
	if err := l.Extend(ctx); !errors.Is(err, ErrTaken) || l.Context().Err() == nil {
		t.Errorf("Extend: %v, context %v", err, l.Context().Err())
	}
	if err := l.Release(ctx); !errors.Is(err, ErrTaken) {
		t.Errorf("Release: %v", err)
	}
	if rdb.Exists(ctx, name+"a").Val() != 0 || rdb.Get(ctx, name+"b").Val() != "theirs" {
		t.Error("the release left ours or took theirs")
	}
}

// Two that want the same locks in different orders don't wait for each other, nor do
// they keep those out who want one of them.
func TestOverlappingSets(t *testing.T) {
	t.Parallel()
	s, name := redistest.Start(t), redistest.Name(t)
	keys := []string{name + "a", name + "b", name + "c"}
	sets := [][]int{{0, 1}, {1, 0}, {1, 2}, {2, 0}, {0, 1, 2}, {2}, {0}}
	lockers := []*Redis{newRedis(s.Client()), newRedis(s.Client())}
	inside := make([]atomic.Int32, len(keys))
	var wg sync.WaitGroup
	for i := range 2 * len(sets) {
		set := sets[i%len(sets)]
		var want []string
		for _, k := range set {
			want = append(want, keys[k])
		}
		wg.Go(func() {
			for range 20 {
				l, err := lockers[i%2].AcquireAll(t.Context(), want...)
				if err != nil {
					t.Error(err)
					return
				}
				for _, k := range set {
					if inside[k].Add(1) != 1 {
						t.Errorf("two holders of %d", k)
					}
				}
				for _, k := range set {
					inside[k].Add(-1)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestAcquireAllOfBadKeys(t *testing.T) {
	t.Parallel()
	locker := newRedis(redistest.Start(t).Client())
	for want, keys := range map[string][]string{
		"0 keys":   nil,
		"101 keys": make([]string, 101),
		"empty":    {"a", ""},
		`"a" is`:   {"a", "b", "a"},
	} {
		if l, err := locker.AcquireAll(t.Context(), keys...); l != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", keys, err)
		}
	}
	cluster := newRedis(redistest.Cluster(t).Client())
	if _, err := cluster.TryAcquireAll(t.Context(), "a", "b"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "hash tag") {
		t.Errorf("keys of different slots: %v", err)
	}
	l, err := cluster.TryAcquireAll(t.Context(), "{x}a", "{x}b")
	if err != nil {
		t.Fatal(err)
	}
	release(t, l)
}

// A short task that several machines start at about the same time runs on one.
func TestMinHold(t *testing.T) {
	t.Parallel()
	rdb, key, ctx := redistest.Start(t).Client(), redistest.Name(t), t.Context()
	const hold = time.Second
	start := time.Now()
	l := acquire(t, newRedis(rdb, Config{MinHold: hold}), key)
	release(t, l)
	release(t, l) // idempotent: the lock isn't released the second time either
	if l.Context().Err() == nil {
		t.Error("the holder's context goes on")
	}
	switch early, err := newRedis(rdb).TryAcquire(ctx, key); {
	case err == nil && time.Since(start) >= hold: // we were too late
		release(t, early)
	case !errors.Is(err, ErrHeld):
		t.Fatalf("another in the minimum time: %v", err)
	}
	next := acquire(t, newRedis(rdb), key)
	if took := time.Since(start); took < hold {
		t.Errorf("another got in after %v", took)
	}
	if next.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.Token(), l.Token())
	}
	release(t, next)
}

func TestInspect(t *testing.T) {
	t.Parallel()
	rdb, key, ctx := redistest.Start(t).Client(), redistest.Name(t), t.Context()
	locker := newRedis(rdb, Config{Owner: "billing on host-7", TTL: 10 * time.Second})
	inspect := func() Info {
		t.Helper()
		info, err := locker.Inspect(ctx, key)
		if err != nil || info.Key != key {
			t.Fatalf("%+v, %v", info, err)
		}
		return info
	}
	if got := inspect(); got != (Info{Key: key}) {
		t.Errorf("a lock that never was: %+v", got)
	}
	before := rdb.Time(ctx).Val()
	l := acquire(t, locker, key)
	got := inspect()
	if !got.Held || got.Owner != "billing on host-7" || got.Token != l.Token() ||
		got.Since.Before(before) || got.Since.After(rdb.Time(ctx).Val()) || got.For <= 0 || got.For > 10*time.Second {
		t.Errorf("held: %+v", got)
	}
	release(t, l)
	if got := inspect(); got != (Info{Key: key, Token: l.Token()}) {
		t.Errorf("released: %+v", got)
	}
	rdb.Set(ctx, key, "theirs", 0)
	if got := inspect(); got != (Info{Key: key, Held: true, Token: l.Token(), For: -time.Millisecond}) {
		t.Errorf("held by another library's client: %+v", got)
	}
	rdb.Del(ctx, key)
	rdb.HSet(ctx, key, "a", "b")
	if _, err := locker.Inspect(ctx, key); !errors.Is(err, ErrInvalid) {
		t.Errorf("a hash: %v", err)
	}
	if _, err := locker.Inspect(ctx, ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("no key: %v", err)
	}
}

// Eviction deletes locks.
func TestEvictionIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
	locker := newRedis(s.Client())
	for range 2 {
		_, err := locker.Acquire(t.Context(), "key")
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "volatile-lru") || !strings.Contains(err.Error(), "noeviction") {
			t.Fatalf("a server that evicts: %v", err)
		}
	}
	do(t, s.Client(), "CONFIG", "SET", "maxmemory-policy", "noeviction")
	release(t, acquire(t, locker, "key")) // once it is mended
	for _, args := range [][]string{{"--maxmemory-policy", "allkeys-lru"}, {"--maxmemory", "100mb", "--maxmemory-policy", "noeviction"}} {
		release(t, acquire(t, newRedis(redistest.New(t, args...).Client()), "key"))
	}
}

// Settings change while a server runs: it is asked again, and one caller asks for all.
func TestEvictionIsSeenLater(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	proxy := redistest.NewProxy(t, s.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	locker := newRedis(rdb)
	asked := func() int { return proxy.Count(redistest.Command("EVALSHA", evictionScript.Hash())) }
	for range 3 {
		release(t, acquire(t, locker, "key"))
	}
	if n := asked(); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	do(t, s.Client(), "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	release(t, acquire(t, locker, "key")) // not each time
	if next := time.Until(*locker.preflight.next.Load()); next > lookAgain {
		t.Errorf("it is asked again in %v", next)
	}
	past := time.Now()
	locker.preflight.next.Store(&past)
	for range 2 {
		if _, err := locker.TryAcquire(t.Context(), "key"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "volatile-ttl") {
			t.Fatalf("a server that evicts by now: %v", err)
		}
	}
	do(t, s.Client(), "CONFIG", "SET", "maxmemory-policy", "noeviction")
	release(t, acquire(t, locker, "key"))
	if n := asked(); n != 4 {
		t.Errorf("it was asked %d times", n)
	}
}

// What a release finds.
func TestReleaseSaysWhatItFound(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	for name, c := range map[string]struct {
		lose func(key string)
		want error
	}{
		"expired": {func(key string) { rdb.Del(ctx, key, fence(t, key)) }, ErrExpired},
		"taken":   {func(key string) { rdb.Set(ctx, key, "theirs", time.Minute) }, ErrTaken},
	} {
		key := redistest.Name(t)
		l := acquire(t, newRedis(rdb), key)
		c.lose(key)
		for range 2 {
			if err := l.Release(ctx); !errors.Is(err, c.want) || !errors.Is(err, ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// Of several locks that are lost the worst is said: that another has one of them, whichever it is.
func TestReleaseOfSeveralSaysTheWorst(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	for taken := range 2 {
		name := redistest.Name(t)
		keys := []string{name + "a", name + "b"}
		l, err := newRedis(rdb).AcquireAll(ctx, keys...)
		if err != nil {
			t.Fatal(err)
		}
		rdb.Del(ctx, keys[1-taken], fence(t, keys[1-taken]))
		rdb.Set(ctx, keys[taken], "theirs", time.Minute)
		if err := l.Release(ctx); !errors.Is(err, ErrTaken) {
			t.Errorf("%s is taken, and the other has expired: %v", keys[taken], err)
		}
	}
}
