package zklock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// steppable starts a ZooKeeper whose wall clock can be moved. It sets the environment, so the test can't be parallel.
func steppable(t *testing.T) (s *servertest.Server, shift func(time.Duration)) {
	t.Helper()
	env, shift := servertest.Clock(t)
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	return servertest.ZooKeeper(t, 1)[0], shift
}

// A step of the server's clock, in either direction, changes nothing for a live holder: no lease is taken over, none
// is lost, and tokens grow. They are no times.
func TestServersClockSteps(t *testing.T) {
	s, shift := steppable(t)
	c := Config{TTL: time.Minute, SessionTimeout: 30 * time.Second}
	a, b, key := lockerOn(t, c, s.Addr()), lockerOn(t, c, s.Addr()), newKey()
	last := int64(0)
	for _, by := range []time.Duration{0, 10 * time.Hour, -10 * time.Hour} {
		k := acquire(t, a, key)
		if k.Token() <= last {
			t.Errorf("%v: token %d after %d", by, k.Token(), last)
		}
		last = k.Token()
		shift(by)
		if ahead := time.Until(written(t, b, key+" at "+by.String())); (ahead - by).Abs() > time.Hour {
			t.Fatalf("the server's clock is %v ahead, want %v; nothing was shown", ahead, by)
		}
		if _, err := b.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("%v: another: %v; want ErrHeld", by, err)
		}
		if err := k.Extend(t.Context()); err != nil {
			t.Errorf("%v: the holder extends: %v", by, err)
		}
		release(t, k)
	}
}

// written returns when a new node was made, by the server's clock.
func written(t *testing.T, l *Locker, key string) time.Time {
	t.Helper()
	path, err := pathOf("", key)
	if err != nil {
		t.Fatal(err)
	}
	raw(t, l, func(c *zk.Conn) (string, error) { return c.Create(path, nil, 0, zk.WorldACL(zk.PermAll)) })
	stat := raw(t, l, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, err := c.Exists(path)
		return stat, err
	})
	return time.UnixMilli(stat.Ctime)
}
