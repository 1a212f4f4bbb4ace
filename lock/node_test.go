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
)

// refuses checks that no lock can be had, though four other masters would do, and what the
// error says.
func refuses(t *testing.T, r *Redlock, want ...string) {
	t.Helper()
	var q *QuorumError
	for _, err := range []error{
		func() error { _, err := r.TryAcquire(t.Context(), redistest.Name(t)); return err }(),
		func() error { _, err := r.Acquire(t.Context(), redistest.Name(t)); return err }(),
		r.Check(t.Context()),
	} {
		if !errors.Is(err, ErrInvalid) || errors.Is(err, ErrHeld) {
			t.Fatalf("not refused: %v", err)
		}
		if errors.As(err, &q) && (q.Op != "check" || len(q.Nodes) != 1) {
			t.Errorf("%v", err)
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q is not in: %v", text, err)
			}
		}
	}
}

func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	host, port, _ := strings.Cut(servers[0].Addr(), ":")
	replica := servers[4].Client()
	if err := replica.SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	r := redlockOn(t, servers, roomy)
	refuses(t, r, "nodes[4]", servers[4].Addr(), "is a replica of "+servers[0].Addr())

	// It recovers by itself, and is seen again when it becomes one while it is in use.
	if err := replica.SlaveOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool {
		l, err := r.TryAcquire(t.Context(), key)
		return err == nil && l.Release(t.Context()) == nil
	}, "it is a master again")
	if err := replica.SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool {
		l, err := r.TryAcquire(t.Context(), key)
		if err == nil {
			_ = l.Release(t.Context())
		}
		return errors.Is(err, ErrInvalid)
	}, "it is a replica again")
}

func TestClusterNodeIsRefused(t *testing.T) {
	t.Parallel()
	servers := append(masters(t, 4), redistest.Cluster(t).Masters()[0])
	refuses(t, redlockOn(t, servers, roomy), "nodes[4]", servers[4].Addr(), "Redis Cluster")
}

// Eviction deletes locks (RedLock.net #101).
func TestEvictingNodeIsRefused(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	set := func(name, value string) {
		t.Helper()
		if err := servers[1].Client().ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("maxmemory-policy", "allkeys-lru")
	r := redlockOn(t, servers, roomy)
	release(t, acquire(t, r, key)) // without a limit nothing is evicted
	set("maxmemory", "100mb")
	n := r.nodes[1]
	n.mu.Lock()
	n.looked = time.Time{} // as if it was long ago: it is in use, and on a connection that lives
	n.mu.Unlock()
	redistest.Eventually(t, func() bool {
		l, err := r.TryAcquire(t.Context(), key)
		if err == nil {
			_ = l.Release(t.Context())
		}
		return errors.Is(err, ErrInvalid)
	}, "it is seen")
	refuses(t, r, "nodes[1]", servers[1].Addr(), "allkeys-lru", "noeviction")
	set("maxmemory-policy", "noeviction")
	redistest.Eventually(t, func() bool {
		l, err := r.TryAcquire(t.Context(), key)
		return err == nil && l.Release(t.Context()) == nil
	}, "it is fit again")
	nothingLeft(t, servers, key)
}

func TestSameServerTwiceIsRefused(t *testing.T) {
	t.Parallel()
	servers := masters(t, 4)
	nodes := []addressed{servers[0], servers[1], servers[2], servers[3], redistest.NewProxy(t, servers[1].Addr())}
	refuses(t, redlockOn(t, nodes, roomy), "nodes[1]", "nodes[4]", "the same server")
}

// An unfit node that can't be reached is only one that is down.
func TestUnfitNodeGoesDown(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	host, port, _ := strings.Cut(servers[0].Addr(), ":")
	if err := servers[4].Client().SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	r := redlockOn(t, servers, roomy)
	refuses(t, r, "replica")
	servers[4].Kill()
	redistest.Eventually(t, func() bool {
		l, err := r.TryAcquire(t.Context(), key)
		return err == nil && l.Release(t.Context()) == nil
	}, "the four others do")
}

// The user's own settings of a connection are kept: password, database, OnConnect.
func TestNodeKeepsItsOptions(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3, "--requirepass", "secret"), redistest.Name(t)
	options := optionsOf(servers)
	connected := make(chan struct{}, 100)
	for _, o := range options {
		o.Password, o.DB, o.Protocol = "secret", 3, 2
		o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
			connected <- struct{}{}
			return conn.ClientSetName(ctx, "mine").Err()
		}
	}
	r, err := NewRedlock(options, RedlockConfig{NoRestartDelay: true, NodeTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l := acquire(t, r, key)
	rdb := servers[0].ClientWith(func(o *redis.UniversalOptions) { o.Password, o.DB = "secret", 3 })
	redistest.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 1 }, "it is in database 3")
	if list := rdb.ClientList(t.Context()).Val(); len(connected) < 3 || !strings.Contains(list, "name=mine") {
		t.Errorf("OnConnect ran %d times; clients: %s", len(connected), list)
	}
	release(t, l)
	options[0].Password = "a bad secret"
	bad, err := NewRedlock(options, RedlockConfig{NoRestartDelay: true, NodeTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	if err := bad.Check(t.Context()); err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("a wrong password: %v", err)
	}
}

// What a node answers to a proposal: the register's rules, in the script that keeps them.
func TestNodeVotes(t *testing.T) {
	t.Parallel()
	rdb, key := masters(t, 1)[0].Client(), redistest.Name(t)
	record := fence(t, key)
	ask := func(value string, token int64, set int) vote {
		t.Helper()
		reply, err := redis.NewScript(redlockAcquire.source.(string)).Run(t.Context(), rdb, []string{key, record, runMarker},
			value, 60_000, token, "owner", set, "").Result()
		v := parseVote(outcome{reply: reply, err: err})
		if v.err != nil {
			t.Fatal(v.err)
		}
		return v
	}
	if v := ask("a", 1, 0); !v.other || rdb.Exists(t.Context(), key).Val() != 0 {
		t.Errorf("it votes without the lock, or takes it: %+v", v)
	}
	v := ask("a", 1, 1)
	if !v.held || v.voted || v.last != v.now || v.last < clock0-10*aYear {
		t.Errorf("a token behind the clock, without a record: %+v", v)
	}
	now := v.now
	if v := ask("a", now+2*60*aMinute, 0); v.voted {
		t.Errorf("a token two hours ahead: %+v", v)
	}
	first := now + 30*aMinute
	if v := ask("a", first, 0); !v.voted {
		t.Errorf("a token half an hour ahead: %+v", v)
	}
	if v := ask("a", first, 0); !v.voted || v.last != first {
		t.Errorf("the same again, since the answer was lost: %+v", v)
	}
	if v := ask("a", first-1, 0); v.voted || v.last != first {
		t.Errorf("less than before: %+v", v)
	}
	if v := ask("b", first+1, 1); !v.other || v.for_ <= 0 || v.for_ > time.Minute {
		t.Errorf("another's: %+v", v)
	}
	rdb.Del(t.Context(), key)
	if v := ask("b", first, 1); !v.held || v.voted {
		t.Errorf("the same token for another attempt: %+v", v)
	}
	if v := ask("b", first+1, 0); !v.voted {
		t.Errorf("the next: %+v", v)
	}
	if text, want := rdb.Get(t.Context(), record).Val(), fmt.Sprintf("%d b owner", first+1); text != want {
		t.Errorf("the record is %q, want %q", text, want)
	}

	// A register that is far ahead goes on by one at a time, until the end of the numbers.
	rdb.Set(t.Context(), record, fmt.Sprint(int64(maxToken-1)), 0)
	if v := ask("b", maxToken, 0); !v.voted || v.last != maxToken-1 {
		t.Errorf("the last token: %+v", v)
	}
	if v := ask("b", maxToken+1, 0); v.voted || v.last != maxToken {
		t.Errorf("one more: %+v", v)
	}
}

// A node's clock that is 10 years ahead has no say, and its register is no hindrance.
func TestRedlockWithAFarRegister(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	ahead := time.Now().UnixMicro() + 10*aYear
	for i, token := range []int64{ahead, maxToken} {
		if err := servers[i].Client().Set(t.Context(), fence(t, key), token, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r := redlockOn(t, servers, roomy)
	var last int64
	for range 5 {
		l := acquire(t, r, key)
		if l.Token() <= last || l.Token() > ahead-aYear {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		release(t, l)
	}
	servers[2].Kill() // now the node that is 10 years ahead is needed, and they can't agree
	var q *QuorumError
	if _, err := r.Acquire(t.Context(), key); !errors.As(err, &q) || !strings.Contains(err.Error(), "too far from the others") {
		t.Errorf("%v", err)
	}
	nothingLeft(t, []*redistest.Server{servers[0], servers[1], servers[3], servers[4]}, key)
}
