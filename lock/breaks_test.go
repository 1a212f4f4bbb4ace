package lock

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// The tests of this file show what a fault of the server does to a lock on one Redis, as docs/choosing-a-lock.md says it.

// twoHolders acquires a lock whose holder still believes in it. The second holder must get a larger token.
func twoHolders(t *testing.T, first Lock, other Locker) {
	t.Helper()
	second := acquire(t, other, first.Key())
	if err := first.Context().Err(); err != nil {
		t.Fatalf("the first holder's lease has ended: %v; is the machine too slow?", err)
	}
	if second.Token() <= first.Token() {
		t.Errorf("token %d after %d, and the clock didn't go back", second.Token(), first.Token())
	}
	release(t, second)
}

// acquireAhead acquires a lock whose last token is ahead of the server's clock, as if that had been ahead before.
func acquireAhead(t *testing.T, rdb redis.UniversalClient, locker Locker, key string) Lock {
	t.Helper()
	do(t, rdb, "SET", fence(t, key), time.Now().Add(time.Hour).UnixMicro())
	return acquire(t, locker, key)
}

// goesBack acquires a lock whose record was lost. Its token must be smaller than the first one.
func goesBack(t *testing.T, first Lock, other Locker) {
	t.Helper()
	second := acquire(t, other, first.Key())
	if second.Token() > first.Token() {
		t.Errorf("token %d is after %d: documentation says that it is not", second.Token(), first.Token())
	}
	release(t, second)
}

// A step of the server's clock beyond the TTL ends the lease of a holder that believes in it, and the tokens grow. After
// a step back the lock of a dead holder stays held for longer, and the tokens still grow.
func TestServersClockSteps(t *testing.T) {
	t.Parallel()
	s, shift := redistest.NewWithClock(t)
	a, b := newRedis(s.Client(), Config{TTL: time.Minute}), newRedis(s.Client(), Config{TTL: time.Minute})
	first := acquire(t, a, "key")
	shift(time.Hour)
	twoHolders(t, first, b)
	if err := first.Extend(t.Context()); !errors.Is(err, ErrLost) {
		t.Errorf("the first holder extends: %v; want ErrLost", err)
	}

	second := acquire(t, b, "key")
	shift(0)
	if _, err := a.TryAcquire(t.Context(), "key"); !errors.Is(err, ErrHeld) {
		t.Errorf("after a step back: %v; want ErrHeld", err)
	}
	if info, err := a.Inspect(t.Context(), "key"); err != nil || info.For < 59*time.Minute {
		t.Errorf("after a step back: %+v, %v; documentation says that it stays held for longer", info, err)
	}
	release(t, second)
	third := acquire(t, a, "key")
	if third.Token() <= second.Token() {
		t.Errorf("after a step back: token %d after %d", third.Token(), second.Token())
	}
	release(t, third)
}

// A server that comes back without its memory, or with an old one, grants a lock whose holder still believes in it. The
// order of the tokens then rests on its clock: it breaks if that was ahead before. One that has every write on its disk
// breaks nothing.
func TestServerRestarts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		save bool // before the lock is granted
		kept bool
	}{
		"WithoutADisk":   {},
		"WithAnOldDisk":  {args: []string{"--save", "3600 1"}, save: true},
		"WithItsOwnDisk": {args: []string{"--appendonly", "yes", "--appendfsync", "always"}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.New(t, c.args...)
			locker := newRedis(s.Client(), Config{TTL: time.Minute})
			for _, key := range []string{"key", "ahead"} {
				release(t, acquire(t, locker, key))
			}
			if c.save {
				do(t, s.Client(), "SAVE")
			}
			first, ahead := acquire(t, locker, "key"), acquireAhead(t, s.Client(), locker, "ahead")
			s.Kill()
			s.Restart()
			other := newRedis(s.Client(), Config{TTL: time.Minute})
			if !c.kept {
				twoHolders(t, first, other)
				if err := first.Extend(t.Context()); !errors.Is(err, ErrLost) {
					t.Errorf("the first holder extends: %v; want ErrLost", err)
				}
				goesBack(t, ahead, other)
				return
			}
			if _, err := other.TryAcquire(t.Context(), "key"); !errors.Is(err, ErrHeld) {
				t.Errorf("after the restart: %v; want ErrHeld", err)
			}
			if err := first.Extend(t.Context()); err != nil {
				t.Errorf("the holder extends: %v", err)
			}
			release(t, first)
			next := acquire(t, other, "key")
			if next.Token() <= first.Token() {
				t.Errorf("token %d after %d", next.Token(), first.Token())
			}
			release(t, next)
		})
	}
}

// A replica that is promoted before it has seen a grant grants the lock again. The order of the tokens then rests on the
// servers' clocks: it breaks if those of the old master were ahead.
func TestFailoverToALaggingReplica(t *testing.T) {
	t.Parallel()
	master, replica := redistest.New(t), redistest.New(t)
	before, after := newRedis(master.Client(), Config{TTL: time.Minute}), newRedis(replica.Client(), Config{TTL: time.Minute})
	for _, key := range []string{"unseen", "ahead"} {
		release(t, acquire(t, before, key))
	}
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	do(t, replica.Client(), "REPLICAOF", host, port)
	redistest.Eventually(t, func() bool {
		return replica.Client().Exists(t.Context(), fence(t, "unseen"), fence(t, "ahead")).Val() == 2
	}, "the replica has the records")
	do(t, replica.Client(), "REPLICAOF", "NO", "ONE") // it sees nothing of what follows
	unseen := acquire(t, before, "unseen")
	ahead := acquireAhead(t, master.Client(), before, "ahead")
	master.Kill()

	twoHolders(t, unseen, after)
	goesBack(t, ahead, after)
}

// A holder that is cut off from Redis stops believing before another gets the lock, whether its connections hang or
// break.
func TestHolderIsCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*redistest.Proxy){
		"Hangs":  (*redistest.Proxy).Pause,
		"Breaks": func(p *redistest.Proxy) { p.Refuse(true); p.Sever() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, key := redistest.Start(t), redistest.Name(t)
			proxy := redistest.NewProxy(t, s.Addr())
			far, near := newRedis(proxy.ClientWith(unheeding), Config{TTL: 2 * time.Second}), newRedis(s.Client(), Config{TTL: time.Minute})
			first := acquire(t, far, key)
			err := Hold(t.Context(), first, func(ctx context.Context) error {
				cut(proxy)
				second := acquire(t, near, key)
				if err := ctx.Err(); err == nil {
					t.Error("another got the lock while the holder believed in it")
				}
				if second.Token() <= first.Token() {
					t.Errorf("token %d after %d", second.Token(), first.Token())
				}
				release(t, second)
				proxy.Refuse(false)
				proxy.Resume()
				return context.Cause(ctx)
			})
			if !errors.Is(err, ErrLost) {
				t.Errorf("Hold: %v; want ErrLost", err)
			}
		})
	}
}
