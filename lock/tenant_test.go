package lock

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A user of one prefix can lock, extend, release and inspect there, and is told what is missing elsewhere.
func TestUserOfAPrefix(t *testing.T) {
	t.Parallel()
	s := redistest.New(t)
	do(t, s.Client(), "ACL", "SETUSER", "tenant1", "on", ">pass", "resetkeys", "~tenant1:*", "resetchannels", "&signalbox:lock:*",
		"+@connection", "+eval", "+evalsha", "+get", "+set", "+del", "+pexpire", "+pttl", "+time", "+info",
		"+zadd", "+zcard", "+zpopmin", "+zrem", "+publish", "+subscribe", "+unsubscribe")
	client := func() redis.UniversalClient {
		return s.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "tenant1", "pass" })
	}
	locker := newRedis(client())
	held := acquire(t, locker, "tenant1:job")
	if info, err := locker.Inspect(t.Context(), "tenant1:job"); err != nil || !info.Held {
		t.Errorf("%+v, %v", info, err)
	}
	if err := held.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	waiter := waitFor(t, newRedis(client()), "tenant1:job")
	inLine(t, s.Client(), "tenant1:job", 1)
	release(t, held)
	release(t, (<-waiter).must(t))

	_, err := locker.TryAcquire(t.Context(), "tenant2:job")
	if err == nil || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), `"tenant2:job{tenant2:job}:fence"`) || !strings.Contains(err.Error(), "ACL SETUSER") {
		t.Errorf("another's key: %v", err)
	}
	do(t, s.Client(), "ACL", "SETUSER", "tenant1", "-set")
	_, err = locker.TryAcquire(t.Context(), "tenant1:job")
	if err == nil || errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), "+set") {
		t.Errorf("without a command: %v", err)
	}
}

// Keys that look alike share nothing.
func TestKeysThatLookAlike(t *testing.T) {
	t.Parallel()
	rdb, name := redistest.Start(t).Client(), redistest.Name(t)
	locker := newRedis(rdb)
	plain := acquire(t, locker, name)
	tagged := acquire(t, locker, "{"+name+"}")
	for _, l := range []Lock{plain, tagged} {
		info, err := locker.Inspect(t.Context(), l.Key())
		if err != nil || info.Token != l.Token() || info.Owner == "" {
			t.Errorf("%+v, %v", info, err)
		}
	}
	waiter := waitFor(t, newRedis(rdb), "{"+name+"}")
	inLine(t, rdb, "{"+name+"}", 1)
	inLine(t, rdb, name, 0)
	release(t, tagged)
	release(t, (<-waiter).must(t))
	release(t, plain)
}

// What the release found is not lost where the function says less.
func TestHoldKeepsThatItWasTaken(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	l := acquire(t, newRedis(rdb), key)
	rdb.Set(t.Context(), key, "theirs", 0)
	err := Hold(t.Context(), l, func(context.Context) error { return ErrLost })
	if !errors.Is(err, ErrTaken) {
		t.Errorf("%v", err)
	}
}
