package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// do is a command that must succeed.
func do(t *testing.T, rdb redis.UniversalClient, args ...any) {
	t.Helper()
	if err := rdb.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// A client repeats a call behind our back, and the repetition must not be
// told "taken" or "lost" because of the first.
func TestLostRepliesChangeNothing(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	proxy := redistest.NewProxy(t, s.Addr())
	rdb, locker := s.Client(), newRedis(proxy.ClientWith(unheeding))
	release(t, acquire(t, locker, key)) // the server knows the scripts

	cut := proxy.CutReply(redistest.Command("EVALSHA", acquireScript.Hash()), 1)
	l, err := locker.TryAcquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	<-cut
	if record := rdb.Get(t.Context(), fence(t, key)).Val(); !strings.HasPrefix(record, fmt.Sprint(l.Token(), " ")) {
		t.Errorf("the record is %q; the token is %d", record, l.Token())
	}
	cut = proxy.CutReply(redistest.Command("EVALSHA", extendScript.Hash()), 1)
	if err := l.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	<-cut
	for _, script := range []*redis.Script{freeScript, releaseScript} {
		cut = proxy.CutReply(redistest.Command("EVALSHA", script.Hash()), 1)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		<-cut
		if rdb.Exists(t.Context(), key).Val() != 0 {
			t.Error("the lock is left behind")
		}
		l = acquire(t, locker, key)
		l.(*redisLock).row.n = 1 // as if it had been waited for
	}
}

// A release whose reply is lost released the lock, whoever got in before it is sent again, and whether it has the lock
// still. Once the TTL is over nobody knows.
func TestReleaseReplyLostAndTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for name, c := range map[string]struct {
		ttl        time.Duration
		gone, late bool
		want       error
	}{
		"another has it":               {ttl: time.Minute},
		"another has had it":           {ttl: time.Minute, gone: true},
		"another has it after the TTL": {ttl: time.Second, late: true, want: ErrTaken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy, key := redistest.NewProxy(t, s.Addr()), redistest.Name(t)
			rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = -1, false })
			l := acquire(t, newRedis(rdb, Config{TTL: c.ttl}), key)
			release(t, acquire(t, newRedis(rdb), key+" of a warm-up")) // the server knows the scripts
			match := redistest.Command("EVALSHA", freeScript.Hash())
			cut := proxy.CutReply(match, 1)
			held, free := proxy.HoldRequests(redistest.Command("EVALSHA", releaseScript.Hash()))
			released := make(chan error, 1)
			go func() { released <- l.Release(t.Context()) }()
			<-cut
			if err := <-released; err == nil || errors.Is(err, ErrLost) {
				t.Errorf("without a reply: %v", err)
			}
			heir := acquire(t, newRedis(s.Client()), key)
			if c.gone {
				release(t, heir)
			}
			<-held // the release is sent again
			if c.late {
				<-time.After(time.Until(l.Until()))
			}
			free()
			if err := l.Release(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("the repetition: %v, want %v", err, c.want)
			}
			if !c.gone {
				if err := heir.Extend(t.Context()); err != nil {
					t.Errorf("the heir: %v", err)
				}
			}
		})
	}
}

// The reply to a release is late, not lost. So the release was sent again, and another had the lock by then: the first copy
// released it.
func TestReleaseReplyLateAndTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy, key := redistest.NewProxy(t, s.Addr()), redistest.Name(t)
	rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = -1, true })
	l := acquire(t, newRedis(rdb, Config{TTL: time.Minute}), key)
	release(t, acquire(t, newRedis(rdb), key+" of a warm-up")) // the server knows the scripts
	held, free := proxy.HoldReplies(redistest.Command("EVALSHA", freeScript.Hash()))
	released := make(chan error, 1)
	go func() { released <- l.Release(t.Context()) }()
	<-held
	<-held // its copy has run, too
	heir := acquire(t, newRedis(s.Client()), key)
	free()
	if err := <-released; err != nil {
		t.Errorf("it was in time: %v", err)
	}
	if err := heir.Extend(t.Context()); err != nil {
		t.Errorf("the heir: %v", err)
	}
}

// A release that Redis has refused, as after a failover, released nothing. If another has the lock by the next one, it was lost.
func TestReleaseRefusedAndTaken(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy, key := redistest.NewProxy(t, s.Addr()), redistest.Name(t)
	rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = -1, false })
	l := acquire(t, newRedis(rdb, Config{TTL: time.Minute}), key)
	release(t, acquire(t, newRedis(rdb), key+" of a warm-up")) // the server knows the scripts
	proxy.Reply(redistest.Command("EVALSHA", freeScript.Hash()), "-READONLY You can't write against a read only replica.", 1)
	held, free := proxy.HoldRequests(redistest.Command("EVALSHA", freeScript.Hash())) // but the first
	if err := l.Release(t.Context()); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("refused: %v", err)
	}
	<-held // the release is sent again, and waits

	if err := s.Client().Del(t.Context(), key).Err(); err != nil { // the new master had not heard of it
		t.Fatal(err)
	}
	heir := acquire(t, newRedis(s.Client()), key)
	free()
	if err := l.Release(t.Context()); !errors.Is(err, ErrTaken) {
		t.Errorf("the repetition: %v, want %v", err, ErrTaken)
	}
	if err := heir.Extend(t.Context()); err != nil {
		t.Errorf("the heir: %v", err)
	}
}

// A repetition is answered as the first time, token and all.
func TestRepeatedAcquireGetsTheSameToken(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	var replies []granting
	for range 2 {
		reply, err := acquireScript.Run(t.Context(), rdb, []string{key, fence(t, key), spec.WaitKey(fence(t, key))}, "value", 60_000, "me", "", 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		g, err := parseGrant(reply, 1)
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, g)
	}
	if replies[0].token == 0 || replies[0].token != replies[1].token || replies[1].now < replies[0].now {
		t.Errorf("first %+v, then %+v", replies[0], replies[1])
	}
}

// With no repetition the caller gets an error, and what it can't know about is undone.
func TestAmbiguousAcquireIsUndone(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	proxy := redistest.NewProxy(t, s.Addr())
	rdb := s.Client()
	locker := newRedis(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = -1, false }), Config{TTL: time.Hour})
	release(t, acquire(t, locker, key+"-other")) // the server knows the scripts

	cut := proxy.CutReply(redistest.Command("EVALSHA", acquireScript.Hash()), 1)
	if _, err := locker.TryAcquire(t.Context(), key); err == nil || errors.Is(err, ErrHeld) {
		t.Fatalf("a cut reply: %v", err)
	}
	<-cut
	if rdb.Exists(t.Context(), fence(t, key)).Val() != 1 {
		t.Error("the script did not run: nothing was tested")
	}
	locker.caller.Wait()
	if rdb.Exists(t.Context(), key).Val() != 0 {
		t.Error("the lock is left behind")
	}
}

// A Redis that hangs, and a grant that comes after its caller left; with a client that heeds
// deadlines and with one that doesn't.
func TestHungRedis(t *testing.T) {
	t.Parallel()
	for name, heeds := range map[string]bool{"by default": false, "ContextTimeoutEnabled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hungRedis(t, heeds)
		})
	}
}

func hungRedis(t *testing.T, heeds bool) {
	s := redistest.New(t)
	rdb := s.ClientWith(func(o *redis.UniversalOptions) {
		o.ContextTimeoutEnabled, o.ReadTimeout = heeds, time.Minute // which nobody may wait for
	})
	locker, began := newRedis(rdb, Config{TTL: time.Hour}), time.Now()
	held := acquire(t, locker, "held")
	if err := held.Extend(t.Context()); err != nil { // the server knows all scripts but one
		t.Fatal(err)
	}
	release(t, acquire(t, locker, "other"))

	s.Stop()
	start := time.Now()
	mine := errors.New("mine")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, mine)
	defer cancel()
	_, err := locker.Acquire(ctx, "late")
	if !errors.Is(err, mine) || errors.Is(err, ErrHeld) {
		t.Errorf("Acquire: %v", err)
	}
	if err := held.Extend(ctx); !errors.Is(err, mine) || errors.Is(err, ErrLost) {
		t.Errorf("Extend: %v", err)
	}
	short := newRedis(rdb, Config{TTL: 100 * time.Millisecond}) // a call longer than the TTL is worth nothing
	if _, err := short.TryAcquire(t.Context(), "short"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("with no end of its context: %v", err)
	}
	if took := time.Since(start); took >= callTimeout {
		t.Errorf("it held us up for %v", took)
	}
	// The deadlines of the calls are by an estimate of the server's clock, which is ahead by a round trip at most.
	<-time.After(time.Until(start.Add(start.Sub(began) + 100*time.Millisecond)))
	s.Cont()
	do(t, rdb, "PING") // what was sent before has been run
	if rdb.Exists(t.Context(), "late", fence(t, "late")).Val() != 0 {
		t.Error("a command that came late took a lock that nobody waits for")
	}
	if err := held.Extend(t.Context()); err != nil {
		t.Errorf("the lock that was held all the time: %v", err)
	}
	release(t, held)
}

// Contention and a failure must not look alike; errors hold no password.
func TestFailureIsNotContention(t *testing.T) {
	t.Parallel()
	const password = "hunter2"
	s := redistest.New(t, "--requirepass", password)
	with := func(password string) redis.UniversalClient {
		return s.ClientWith(func(o *redis.UniversalOptions) { o.Password = password; o.MaxRetries = -1 })
	}
	locker := newRedis(with(password))
	l := acquire(t, locker, "key")

	check := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, ErrHeld) || errors.Is(err, ErrLost) || errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("%s: the password is in the error: %v", what, err)
		}
	}
	_, err := newRedis(with("wrong-"+password)).TryAcquire(t.Context(), "key")
	check("wrong password", err)
	if _, err := locker.TryAcquire(t.Context(), "key"); !errors.Is(err, ErrHeld) {
		t.Errorf("held: %v", err)
	}
	s.Kill()
	_, err = locker.TryAcquire(t.Context(), "key")
	check("TryAcquire of a dead server", err)
	_, err = locker.Acquire(t.Context(), "key") // with no end of its own
	check("Acquire of a dead server", err)
	check("Extend on a dead server", l.Extend(t.Context()))
	if l.Context().Err() != nil {
		t.Error("a failed extension ended a lease that is still valid")
	}
	check("Release on a dead server", l.Release(t.Context()))

	s.Restart() // without its memory
	if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Release on a server without memory: %v", err)
	}
	again := acquire(t, locker, "key")
	if again.Token() <= l.Token() {
		t.Errorf("token %d after %d: the server lost its memory, not its clock", again.Token(), l.Token())
	}
	release(t, again)
}

// WRONGTYPE on each key: refused before anything is written.
func TestWrongType(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	ctx := t.Context()
	for name, spoil := range map[string]func(key string){
		"the lock":                    func(key string) { rdb.HSet(ctx, key, "field", "value") },
		"the counter":                 func(key string) { rdb.LPush(ctx, fence(t, key), "element") },
		"the counter is no number":    func(key string) { rdb.Set(ctx, fence(t, key), "1e15", 0) },
		"the counter is negative":     func(key string) { rdb.Set(ctx, fence(t, key), "-1", 0) },
		"the counter is empty":        func(key string) { rdb.Set(ctx, fence(t, key), "", 0) },
		"the counter is at its limit": func(key string) { rdb.Set(ctx, fence(t, key), 1<<53-1, 0) },
		"the counter is too long":     func(key string) { rdb.Set(ctx, fence(t, key), "12345678901234567", 0) },
	} {
		key := redistest.Name(t)
		spoil(key)
		keys := []string{key, fence(t, key)}
		before := rdb.Exists(ctx, keys...).Val()
		_, err := newRedis(rdb).Acquire(ctx, key)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
		if got := rdb.Exists(ctx, keys...).Val(); before != 1 || got != 1 {
			t.Errorf("%s: %d keys, %d after", name, before, got)
		}
	}
	// The counter is spoilt while the lock is held: the lock still works.
	key := redistest.Name(t)
	l := acquire(t, newRedis(rdb), key)
	rdb.Del(ctx, fence(t, key))
	rdb.LPush(ctx, fence(t, key), "element")
	if err := l.Extend(ctx); err != nil {
		t.Error(err)
	}
	release(t, l)
}

// refused checks that no lock is granted and nothing is written, with an error of this prefix.
func refused(t *testing.T, rdb redis.UniversalClient, prefix string) {
	t.Helper()
	_, err := newRedis(rdb).TryAcquire(t.Context(), "new")
	if !redis.HasErrorPrefix(err, prefix) || errors.Is(err, ErrHeld) {
		t.Errorf("want %s: %v", prefix, err)
	}
}

func TestOOM(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	l := acquire(t, newRedis(rdb), "held")
	do(t, rdb, "CONFIG", "SET", "maxmemory", "1")
	refused(t, rdb, "OOM")
	if rdb.Exists(t.Context(), "new", fence(t, "new")).Val() != 0 {
		t.Error("half of a lock was written")
	}
	// Those that are held go on.
	if err := l.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, l)
	do(t, rdb, "CONFIG", "SET", "maxmemory", "0")
	release(t, acquire(t, newRedis(rdb), "new"))
}

func TestReadOnlyAndMasterDown(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	l := acquire(t, newRedis(rdb), "held")
	do(t, rdb, "REPLICAOF", "127.0.0.1", "1")
	refused(t, rdb, "READONLY")
	do(t, rdb, "CONFIG", "SET", "replica-serve-stale-data", "no")
	refused(t, rdb, "MASTERDOWN")
	if err := l.Extend(t.Context()); !redis.HasErrorPrefix(err, "MASTERDOWN") || errors.Is(err, ErrLost) {
		t.Errorf("Extend: %v", err)
	}
	if err := l.Release(t.Context()); !redis.HasErrorPrefix(err, "MASTERDOWN") {
		t.Errorf("Release: %v", err)
	}
	do(t, rdb, "REPLICAOF", "NO", "ONE")
	release(t, l) // a release that failed can be repeated
	release(t, acquire(t, newRedis(rdb), "new"))
}

func TestLoading(t *testing.T) {
	t.Parallel()
	s := redistest.New(t, "--enable-debug-command", "yes", "--key-load-delay", "10000",
		"--loading-process-events-interval-bytes", "1024")
	rdb := s.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = -1, false })
	for i := range 200 {
		do(t, rdb, "SET", i, strings.Repeat("x", 100))
	}
	l := acquire(t, newRedis(rdb), "held")
	reloaded := make(chan error, 1)
	debug := s.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout = time.Minute })
	go func() { reloaded <- debug.Do(t.Context(), "DEBUG", "RELOAD").Err() }()
	redistest.Eventually(t, func() bool {
		return redis.HasErrorPrefix(rdb.Get(t.Context(), "0").Err(), "LOADING")
	}, "the server loads")
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := newRedis(rdb).TryAcquire(short, "new"); err == nil || errors.Is(err, ErrHeld) {
		t.Errorf("while it loads: %v", err)
	}
	release(t, acquire(t, newRedis(rdb), "new")) // which waits until it has
	if err := <-reloaded; err != nil {
		t.Fatal(err)
	}
	if err := l.Extend(t.Context()); err != nil {
		t.Errorf("the lock that was held: %v", err)
	}
	release(t, l)
	release(t, acquire(t, newRedis(rdb), "new"))
}

func TestNoScript(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	locker := newRedis(rdb)
	do(t, rdb, "SCRIPT", "FLUSH")
	l := acquire(t, locker, "key")
	do(t, rdb, "SCRIPT", "FLUSH")
	if err := l.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	do(t, rdb, "SCRIPT", "FLUSH")
	release(t, l)
}

func TestFlushAll(t *testing.T) {
	t.Parallel()
	rdb := redistest.New(t).Client()
	locker := newRedis(rdb)
	l := acquire(t, locker, "key")
	do(t, rdb, "FLUSHALL")
	if err := l.Extend(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Extend: %v", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("Release: %v", err)
	}
	again := acquire(t, locker, "key")
	if again.Token() <= l.Token() {
		t.Errorf("token %d after %d", again.Token(), l.Token())
	}
	release(t, again)
}
