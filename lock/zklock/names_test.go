package zklock

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/lock"
)

func TestPathOf(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"digest": "digest", "a/b": "a%2Fb", "a": "a", ".": "%2E", "..": "%2E%2E", "...": "%2E%2E%2E", "a..b": "a..b",
		"%2F": "%252F", "Zürich": "Z%C3%BCrich", "\x00\xff": "%00%FF", "zookeeper": "zookeeper", " ": "%20",
	} {
		if got, err := pathOf("/r", key); err != nil || got != "/r/"+want {
			t.Errorf("%q: %q, %v; want %q", key, got, err, want)
		}
	}
	for _, key := range []string{"", strings.Repeat("a", maxKey+1)} {
		if got, err := pathOf("/r", key); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a key of %d bytes: %q, %v", len(key), got, err)
		}
	}
}

func FuzzPathOf(f *testing.F) {
	for _, key := range []string{"a", "a/b", "..", "%", "\xff", "a%2Fb"} {
		f.Add(key, "a")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		x, err := pathOf("/r", a)
		y, err2 := pathOf("/r", b)
		if err != nil || err2 != nil {
			return
		}
		if (x == y) != (a == b) {
			t.Errorf("%q and %q have the nodes %q and %q", a, b, x, y)
		}
		if name := strings.TrimPrefix(x, "/r/"); strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
			t.Errorf("%q: the name %q", a, name)
		}
	})
}

// The longest key, encoded three times as long, can be locked, and what ZooKeeper reserves too.
func TestKeysOnZooKeeper(t *testing.T) {
	t.Parallel()
	l := locker(t, Config{Root: "/keys-" + newKey()[5:]})
	var locks []lock.Lock
	for _, key := range []string{"a", "a/b", "/a", "a/", ".", "..", "zookeeper", "\x00\x01\x7f", "\ue000\uffff", strings.Repeat("\xff", maxKey)} {
		k, err := l.TryAcquire(t.Context(), key)
		if err != nil {
			t.Fatalf("%.20q: %v", key, err)
		}
		locks = append(locks, k)
	}
	for _, k := range locks {
		release(t, k)
	}
}

// The queue's order is that of ZooKeeper's counter, and not of the random IDs before it. The counter may overflow.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	v, err := parseView([]string{
		"queue-A--2147483647", "queue-Z-2147483646", "queue-B-2147483647", "queue-C--2147483648",
		"lease-L-1500", "mark-L", "mark-old",
	}, &zk.Stat{Version: 3, Mzxid: 77})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"Z": "", "B": "Z", "C": "B", "A": "C"} {
		own, previous, joined := v.ahead(id)
		if own.id != id || previous.id != want || !joined {
			t.Errorf("ahead of %s: %q, %v; want %q", id, previous.id, joined, want)
		}
	}
	if _, _, joined := v.ahead("L"); joined {
		t.Error("the holder is in the queue")
	}
	if v.holder != "L" || !v.marked || v.ttl != 1500*time.Millisecond || v.last != 77 {
		t.Errorf("%+v", v)
	}
}

// A version of -1 means any version in a request. So none is ever current.
func TestGrantSkipsVersion(t *testing.T) {
	t.Parallel()
	k := &zkLock{locker: &Locker{}, path: "/k"}
	for version, steps := range map[int32]int{0: 1, -3: 1, -2: 2, math.MaxInt32: 1, math.MinInt32: 1} {
		sets := 0
		for i, op := range grantOps(k, view{version: version}, "", nil) {
			set, ok := op.(*zk.SetDataRequest)
			if ok {
				sets++
			}
			if i == 0 && (!ok || set.Version != version) {
				t.Errorf("version %d is not checked first", version)
			}
		}
		if sets != steps {
			t.Errorf("at version %d a grant makes %d steps; want %d", version, sets, steps)
		}
	}
}

// Tokens grow when the key's node, with all its counters, was deleted in between.
func TestTokensOutliveTheNode(t *testing.T) {
	t.Parallel()
	l, key := locker(t, Config{}), newKey()
	path, _ := pathOf(l.root, key)
	var last int64
	for range 3 {
		k := acquire(t, l, key)
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		release(t, k)
		raw(t, l, deletion(path))
	}
}

// The token is the czxid of the lease, which is the number of the transaction that granted it.
func TestTokenIsCzxid(t *testing.T) {
	t.Parallel()
	l, key := locker(t, Config{}), newKey()
	for range 2 {
		k := acquire(t, l, key)
		stat := raw(t, l, func(c *zk.Conn) (*zk.Stat, error) {
			_, stat, err := c.Exists(k.leasePath())
			return stat, err
		})
		if stat.Czxid != k.Token() {
			t.Errorf("token %d; the lease's czxid is %d", k.Token(), stat.Czxid)
		}
		release(t, k)
	}
}
