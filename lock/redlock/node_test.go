package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// refuses checks that one of five nodes has no vote, what the error says, and that the four others do.
func refuses(t *testing.T, r *Locker, want ...string) {
	t.Helper()
	key := redistest.Name(t)
	l := acquire(t, r, key)
	unfit := 0
	for i, n := range r.nodes {
		n.wire.settle(t.Context())
		n.mu.Lock()
		bad := n.unfit != nil
		n.mu.Unlock()
		if !bad {
			continue
		}
		unfit++
		if s := l.(*heldLock).claim.shares[i]; s.state != shareNone {
			t.Errorf("%s is unfit, and was asked for a lock: %v", n.name(), s.state)
		}
	}
	release(t, l)
	if unfit != 1 {
		t.Errorf("%d nodes are unfit", unfit)
	}
	saysUnfit(t, r.Check(t.Context()), want...)
}

// saysUnfit checks the error of a Check by which one node is unfit.
func saysUnfit(t *testing.T, err error, want ...string) {
	t.Helper()
	var q *lock.QuorumError
	if !errors.As(err, &q) || !errors.Is(err, lock.ErrInvalid) || q.Op != "check" || len(q.Nodes) != 1 {
		t.Fatalf("not refused: %v", err)
	}
	for _, text := range want {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
}

// unfit waits until a node is found unfit, or fit again, by what uses it. Acquire tries again where the votes of a try are split.
func unfit(t *testing.T, r *Locker, node int, want bool) {
	t.Helper()
	n := r.nodes[node]
	redistest.Eventually(t, func() bool {
		release(t, acquire(t, r, redistest.Name(t))) // the others do
		n.mu.Lock()
		defer n.mu.Unlock()
		return (n.unfit != nil) == want
	}, "node %d is unfit: %v", node, want)
}

func TestReplicaIsRefused(t *testing.T) {
	t.Parallel()
	servers := masters(t, 5)
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
	unfit(t, r, 4, false)
	if err := replica.SlaveOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	unfit(t, r, 4, true)
}

// Without a quorum of the others the error says who is the matter, at once: to try again is no use.
func TestUnfitNodesAreNamed(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	host, port, _ := strings.Cut(servers[0].Addr(), ":")
	for _, s := range servers[1:] {
		if err := s.Client().SlaveOf(t.Context(), host, port).Err(); err != nil {
			t.Fatal(err)
		}
	}
	r := redlockOn(t, servers, roomy)
	for _, acquire := range []func(context.Context, string) (lock.Lock, error){r.Acquire, r.TryAcquire} {
		_, err := acquire(t.Context(), key)
		names(t, err, "acquire", servers[1].Addr(), servers[2].Addr())
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "is a replica of") {
			t.Error(err)
		}
	}
	nothingLeft(t, servers[:1], key)
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
	unfit(t, r, 1, true)
	refuses(t, r, "nodes[1]", servers[1].Addr(), "allkeys-lru", "noeviction")
	set("maxmemory-policy", "volatile-lru") // locks have TTLs
	refuses(t, r, "nodes[1]", servers[1].Addr(), "volatile-lru", "noeviction")
	set("maxmemory-policy", "noeviction")
	unfit(t, r, 1, false)
	nothingLeft(t, servers, key)
}

func TestSameServerTwiceIsRefused(t *testing.T) {
	t.Parallel()
	servers := masters(t, 4)
	nodes := []addressed{servers[0], servers[1], servers[2], servers[3], redistest.NewProxy(t, servers[1].Addr())}
	r := redlockOn(t, nodes, roomy)
	refuses(t, r, "nodes[1]", "nodes[4]", "the same server")

	// It has one vote, not two: with two of the others it is a quorum of five, with one of them it isn't.
	servers[2].Kill()
	release(t, acquire(t, r, redistest.Name(t)))
	servers[3].Kill()
	if _, err := r.TryAcquire(t.Context(), redistest.Name(t)); !errors.As(err, new(*lock.QuorumError)) {
		t.Errorf("three of five are gone: %v", err)
	}
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
		err := r.Check(t.Context())
		return err != nil && !errors.Is(err, lock.ErrInvalid)
	}, "it is one that is down")
	release(t, acquire(t, r, key))
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
	r, err := New(options, Config{NoRestartDelay: true, NodeTimeout: time.Second})
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
	bad, err := New(options, Config{NoRestartDelay: true, NodeTimeout: time.Second})
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
	floor, deadline := int64(0), int64(0)
	ask := func(value string, token int64, set int) vote {
		t.Helper()
		reply, err := redis.NewScript(acquireScript.source.(string)).Run(t.Context(), rdb, []string{key, record, runMarker},
			value, 60_000, token, "owner", set, "", floor, deadline).Result()
		v := parseVote(outcome{reply: reply, err: err})
		if v.err != nil && v.err != errCameLate {
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

	// A register that a snapshot may have brought back counts for the floor of the present memory.
	floor = first + aMinute
	if v := ask("b", first+1, 0); v.voted || v.last != floor {
		t.Errorf("the same again, below the floor: %+v", v)
	}
	if v := ask("b", floor, 0); v.voted || v.last != floor {
		t.Errorf("the floor itself: %+v", v)
	}
	if v := ask("b", floor+1, 0); !v.voted || v.last != floor {
		t.Errorf("more than the floor: %+v", v)
	}
	if v := ask("b", floor+1, 0); !v.voted || v.last != floor+1 {
		t.Errorf("the same again: %+v", v)
	}
	rdb.Del(t.Context(), record)
	if v := ask("b", floor, 0); v.voted || v.last != floor {
		t.Errorf("no record, and a clock behind the floor: %+v", v)
	}
	floor = 0

	// What comes too late does nothing.
	deadline = now - 1
	rdb.Del(t.Context(), key, record)
	if v := ask("c", first, 1); v.err != errCameLate || v.now < now || rdb.Exists(t.Context(), key, record).Val() != 0 {
		t.Errorf("too late: %+v", v)
	}
	deadline = now + 60*aMinute
	if v := ask("b", first, 1); !v.voted {
		t.Errorf("in time: %+v", v)
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
	var q *lock.QuorumError
	if _, err := r.Acquire(t.Context(), key); !errors.As(err, &q) || !strings.Contains(err.Error(), "too far from the others") {
		t.Errorf("%v", err)
	}
	nothingLeft(t, []*redistest.Server{servers[0], servers[1], servers[3], servers[4]}, key)
}
