package zklock

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// A quota that is used up is named in the error.
func TestQuotaIsUsedUp(t *testing.T) {
	t.Parallel()
	s := servertest.ZooKeeper(t, 1, "enforceQuota=true")[0]
	l := lockerOn(t, Config{}, s.Addr())
	release(t, acquire(t, l, "first")) // makes the root
	_, err := ask(t.Context(), l.session, func(c *zk.Conn) (struct{}, error) {
		for path, data := range map[string]string{"/zookeeper_limits": "count=1,bytes=-1=;byteHardLimit=-1;countHardLimit=1", "/zookeeper_stats": "count=1,bytes=0"} {
			if err := makeAll(c, "/zookeeper/quota"+l.root+path, data); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota counts", func() bool {
		k, err := l.TryAcquire(t.Context(), newKey())
		if err == nil {
			release(t, k.(*zkLock))
			return false
		}
		if !strings.Contains(err.Error(), "quota") || errors.Is(err, lock.ErrHeld) {
			t.Errorf("TryAcquire: %v", err)
		}
		return true
	})
}

// makeAll creates a node and those above it.
func makeAll(c *zk.Conn, path, data string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		value := ""
		if i == len(path) {
			value = data
		}
		if _, err := c.Create(path[:i], []byte(value), 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// ZooKeeper may give many waiters the largest number. They have an order all the same, and each but the first has one before it.
func TestOrderOfEqualNumbers(t *testing.T) {
	t.Parallel()
	queue := []waiter{{"queue-b-2147483647", "b", 2147483647}, {"queue-a-2147483647", "a", 2147483647}, {"queue-c-2147483646", "c", 2147483646}, {"queue-d--2147483648", "d", -2147483648}}
	v := view{queue: queue}
	for id, want := range map[string]string{"c": "", "a": "c", "b": "a", "d": "b"} {
		if _, previous, joined := v.ahead(id); !joined || previous.id != want {
			t.Errorf("before %s: %q, %v; want %q", id, previous.id, joined, want)
		}
	}
}
