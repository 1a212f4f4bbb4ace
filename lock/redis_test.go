package lock

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// fence is a key's token counter.
func fence(t *testing.T, key string) string {
	t.Helper()
	f, err := spec.FenceKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func acquire(t *testing.T, l Locker, key string) Lock {
	t.Helper()
	lock, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// patiently asks with contexts that end with this cause, each later than the one before, until one was long enough
// for an answer: that it ended is what the test is about, and a busy machine takes its time. It returns
// the last context, and what came of it.
func patiently(t *testing.T, cause error, answered func(error) bool, ask func(context.Context) error) (context.Context, error) {
	t.Helper()
	for d := 50 * time.Millisecond; ; d *= 2 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), d, cause)
		t.Cleanup(cancel)
		err := ask(ctx)
		if answered(err) || ctx.Err() == nil || d > 5*time.Second {
			return ctx, err
		}
	}
}

// saysHeld tells whether somebody has looked, and found the lock held.
func saysHeld(err error) bool { return errors.Is(err, ErrHeld) }

func release(t *testing.T, l Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	locker := newRedis(rdb, Config{TTL: 10 * time.Second})

	before := time.Now()
	l := acquire(t, locker, key)
	if l.Key() != key || l.Token() < before.Add(-time.Hour).UnixMicro() {
		t.Errorf("key %q, token %d", l.Key(), l.Token())
	}
	if left := time.Until(l.Until()); left <= 0 || l.Until().After(time.Now().Add(drifted(10*time.Second))) {
		t.Errorf("validity left: %v", left)
	}
	if _, err := locker.TryAcquire(t.Context(), key); !errors.Is(err, ErrHeld) {
		t.Errorf("a second holder: %v", err)
	}
	if _, ok := FromContext(l.Context()); ok {
		t.Error("the lock's own context carries a lease that nobody put there")
	}
	until := l.Until()
	if err := l.Extend(t.Context()); err != nil || !l.Until().After(until) {
		t.Errorf("Extend: %v, until %v, was %v", err, l.Until(), until)
	}
	if l.Context().Err() != nil {
		t.Error("the context ended")
	}
	release(t, l)
	if l.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), context.Canceled) {
		t.Errorf("after the release: %v, cause %v", l.Context().Err(), context.Cause(l.Context()))
	}
	release(t, l) // idempotent
	if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Extend after the release: %v", err)
	}
	again := acquire(t, locker, key)
	if again.Token() <= l.Token() {
		t.Errorf("token %d after %d", again.Token(), l.Token())
	}
	release(t, l) // of the old one: it must not touch the new one
	if n := rdb.Exists(t.Context(), key).Val(); n != 1 {
		t.Error("the release of an earlier lock deleted a later one")
	}
	release(t, again)
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for name, c := range map[string]struct {
		locker *Redis
		key    string
		want   []string
	}{
		"empty key":  {newRedis(rdb), "", []string{"empty"}},
		"counter":    {newRedis(rdb), "x:fence", []string{`"x:fence"`}},
		"brace":      {newRedis(rdb), "a}b", []string{"hash tag"}},
		"open brace": {newRedis(rdb), "a{b", []string{"hash tag"}},
		"twice":      {newRedis(rdb), "a{a}", []string{"twice"}},
	} {
		for _, acquire := range []func(context.Context, string) (Lock, error){c.locker.Acquire, c.locker.TryAcquire} {
			l, err := acquire(t.Context(), c.key)
			if l != nil || !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, %v", name, l, err)
				continue
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %q is not in: %v", name, want, err)
				}
			}
		}
	}
}

// Other libraries use SET NX PX, and delete after comparing, on the same key.
func TestExcludesAndIsExcludedByOthers(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	ctx := t.Context()
	locker := newRedis(rdb, Config{TTL: 10 * time.Second})

	if err := rdb.Do(ctx, "SET", key, "theirs", "NX", "PX", 60000).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := locker.TryAcquire(ctx, key); !errors.Is(err, ErrHeld) {
		t.Fatalf("while another holds it: %v", err)
	}
	if rdb.Get(ctx, key).Val() != "theirs" || rdb.Exists(ctx, fence(t, key)).Val() != 0 {
		t.Error("a refused acquire changed something")
	}
	rdb.Del(ctx, key)

	l := acquire(t, locker, key)
	if err := rdb.Do(ctx, "SET", key, "theirs", "NX", "PX", 60000).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("another got it while we hold it: %v", err)
	}
	value := rdb.Get(ctx, key).Val()
	if len(value) < 22 || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		t.Errorf("the value %q is not 128 bits of ASCII", value)
	}
	if ttl := rdb.PTTL(ctx, key).Val(); ttl <= 0 || ttl > 10*time.Second {
		t.Errorf("TTL %v", ttl)
	}
	if ttl := rdb.PTTL(ctx, fence(t, key)).Val(); ttl <= 6*24*time.Hour || ttl > 7*24*time.Hour {
		t.Errorf("the counter's TTL is %v", ttl)
	}
	release(t, l)
	if rdb.Exists(ctx, key).Val() != 0 {
		t.Error("the key is still there")
	}
}

// Counters that expire or are deleted.
func TestTokensNeverGoBack(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	ctx := t.Context()
	locker := newRedis(rdb)
	last := int64(0)
	grant := func(what string) {
		t.Helper()
		l := acquire(t, locker, key)
		if l.Token() <= last {
			t.Errorf("%s: token %d after %d", what, l.Token(), last)
		}
		last = l.Token()
		release(t, l)
	}
	grant("first")
	grant("again")
	redistest.Eventually(t, func() bool { return rdb.Time(ctx).Val().UnixMicro() > last }, "the clock is past the last token")
	rdb.Del(ctx, fence(t, key))
	grant("the counter is gone")

	// The server's clock is behind the counter: it was stepped back, or a failover.
	ahead := time.Now().Add(time.Hour).UnixMicro()
	rdb.Set(ctx, fence(t, key), ahead, 0)
	grant("the clock is behind")
	if last != ahead+1 {
		t.Errorf("token %d, want %d", last, ahead+1)
	}
	if ttl := rdb.PTTL(ctx, fence(t, key)).Val(); ttl <= 0 {
		t.Errorf("the counter has no TTL: %v", ttl)
	}

	l := acquire(t, locker, key)
	rdb.PExpire(ctx, fence(t, key), time.Minute)
	if err := l.Extend(ctx); err != nil {
		t.Fatal(err)
	}
	if ttl := rdb.PTTL(ctx, fence(t, key)).Val(); ttl < 24*time.Hour {
		t.Errorf("the counter of a lock in use expires in %v", ttl)
	}
	release(t, l)
}

func TestMutualExclusionAndTokenOrder(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	var (
		wg     sync.WaitGroup
		inside sync.Mutex
		tokens []int64
	)
	for range 4 {
		locker := newRedis(s.Client())
		wg.Go(func() {
			for range 10 {
				err := Do(t.Context(), locker, key, func(ctx context.Context) error {
					if !inside.TryLock() {
						t.Error("two holders")
						return nil
					}
					defer inside.Unlock()
					lease, _ := FromContext(ctx)
					tokens = append(tokens, lease.Token())
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if len(tokens) != 40 || !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != 40 {
		t.Errorf("%d tokens in the order of the grants: %v", len(tokens), tokens)
	}
}

// A waiter gets in when the holder's TTL is over, though it would look later.
func TestWaiterGetsInAtExpiry(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	start := time.Now() // its TTL doesn't begin before
	if err := rdb.Set(t.Context(), key, "dead", 300*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	l := acquire(t, newRedis(rdb), key)
	if waited := time.Since(start); waited < 250*time.Millisecond {
		t.Errorf("it got in after %v", waited)
	}
	release(t, l)
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	holder := acquire(t, newRedis(rdb), key)
	mine := errors.New("mine")

	ctx, err := patiently(t, mine, saysHeld, func(ctx context.Context) error {
		_, err := newRedis(rdb).Acquire(ctx, key)
		return err
	})
	for _, want := range []error{ErrHeld, context.DeadlineExceeded, mine} {
		if !errors.Is(err, want) {
			t.Errorf("%v does not wrap: %v", err, want)
		}
	}
	// With a context that has ended nothing is asked, not even for a free lock.
	for _, key := range []string{key, key + "-free"} {
		if _, err := newRedis(rdb).TryAcquire(ctx, key); !errors.Is(err, mine) || errors.Is(err, ErrHeld) {
			t.Errorf("a context that had ended: %v", err)
		}
	}
	release(t, holder)
}

// A release derived from a cancelled context.
func TestReleaseAfterCancel(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	l := acquire(t, newRedis(rdb), key)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	if rdb.Exists(t.Context(), key).Val() != 0 {
		t.Error("the lock is still there")
	}
}

// An extend that resurrects a lost lock.
func TestExtendNeverResurrects(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	for name, lose := range map[string]func(key string){
		"gone":         func(key string) { rdb.Del(ctx, key) },
		"another's":    func(key string) { rdb.Set(ctx, key, "theirs", time.Minute) },
		"another type": func(key string) { rdb.Del(ctx, key); rdb.HSet(ctx, key, "field", "value") },
	} {
		key := redistest.Name(t)
		l := acquire(t, newRedis(rdb), key)
		lose(key)
		before := rdb.Exists(ctx, key).Val()
		if err := l.Extend(ctx); !errors.Is(err, ErrLost) {
			t.Errorf("%s: Extend: %v", name, err)
		}
		if l.Context().Err() == nil || !errors.Is(context.Cause(l.Context()), ErrLost) {
			t.Errorf("%s: the context has not ended with ErrLost", name)
		}
		for range 2 {
			if err := l.Release(ctx); !errors.Is(err, ErrLost) {
				t.Errorf("%s: Release: %v", name, err)
			}
		}
		if got := rdb.Exists(ctx, key).Val(); got != before {
			t.Errorf("%s: the key was changed", name)
		}
	}
}

// A release must say so if somebody else may have been in: it lost the lock before.
func TestReleaseTellsOfALoss(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	for name, lose := range map[string]func(key string){
		"expired, another has been in": func(key string) {
			rdb.Del(ctx, key)
			release(t, acquire(t, newRedis(rdb), key))
		},
		"memory lost": func(key string) { rdb.Del(ctx, key, fence(t, key)) },
	} {
		key := redistest.Name(t)
		l := acquire(t, newRedis(rdb), key)
		lose(key)
		if err := l.Release(ctx); !errors.Is(err, ErrLost) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The lease is over by our clock though Redis still has the lock.
	key := redistest.Name(t)
	l := acquire(t, newRedis(rdb, Config{TTL: time.Second}), key)
	rdb.Persist(ctx, key)
	<-l.Context().Done()
	if err := l.Release(ctx); !errors.Is(err, ErrLost) {
		t.Errorf("over by the clock: %v", err)
	}
	if rdb.Exists(ctx, key).Val() != 0 {
		t.Error("over by the clock: our lock was left behind")
	}
}

// The context of the acquire must not end the holding.
func TestAcquireContextBoundsTheWaitingOnly(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "value"))
	l, err := newRedis(rdb).Acquire(ctx, key)
	cancel()
	if err != nil || l.Context().Err() != nil || l.Context().Value(valueKey{}) != "value" {
		t.Fatalf("%v, %v", err, l)
	}
	release(t, l)
}

// TestClientThatIgnoresDeadlines: New warns of it, once for each client. The test isn't parallel, as it changes the default logger.
func TestClientThatIgnoresDeadlines(t *testing.T) {
	var text bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
	defer slog.SetDefault(before)
	for _, heeds := range []bool{false, true} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: heeds})
		defer func() { _ = rdb.Close() }()
		newRedis(rdb)
		newRedis(rdb)
	}
	if n := strings.Count(text.String(), "ignores the deadlines"); n != 1 || !strings.Contains(text.String(), "level=WARN") {
		t.Errorf("%d warnings, want 1:\n%s", n, text.String())
	}
}
