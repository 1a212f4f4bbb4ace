package redlock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// names checks that an error is a QuorumError of this operation that names these nodes.
func names(t *testing.T, err error, op string, nodes ...string) {
	t.Helper()
	var q *lock.QuorumError
	if !errors.As(err, &q) || q.Op != op || len(q.Nodes) != len(nodes) {
		t.Fatalf("want a QuorumError of %s that names %v: %v", op, nodes, err)
	}
	for i, n := range q.Nodes {
		if n.Node != nodes[i] || n.Err == nil {
			t.Errorf("%v is not of %s", n, nodes[i])
		}
	}
	if errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrLost) {
		t.Errorf("nobody else has it: %v", err)
	}
}

// Raising while holding the quorum (redlock-py): all nodes give the lock, but no two of them can
// agree on a token. The attempt fails, says who is the matter, and keeps nothing.
func TestRedlockGivesUpAQuorumWithoutToken(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, s := range servers {
		token := time.Now().AddDate(10*i, 0, 0).UnixMicro() // a node lets no token be an hour ahead of all that it has seen
		if err := s.Client().Set(t.Context(), fence(t, key), token, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := r.TryAcquire(t.Context(), key)
	names(t, err, "acquire", servers[1].Addr(), servers[2].Addr())
	everywhere(t, servers, func(i int, rdb redis.UniversalClient) {
		if n, err := rdb.Exists(t.Context(), key).Result(); n != 0 || err != nil {
			t.Errorf("node %d still has it, or %v", i, err)
		}
	})
}

// Swallowing unlock errors (redlock-py): a release that too few nodes confirm says so, each time,
// and is done when they can.
func TestRedlockReleaseTellsWhatFailed(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, roomy)
	l := acquire(t, r, key)
	everywhere(t, servers, func(i int, rdb redis.UniversalClient) {
		redistest.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 1 }, "node %d has it", i)
	})
	for _, p := range ps[2:] {
		p.Reply(redistest.Command("EVALSHA", releaseScript.hash.(string)), "-ERR not now", -1)
	}
	for range 2 {
		names(t, l.Release(t.Context()), "release", ps[2].Addr(), ps[3].Addr(), ps[4].Addr())
		if l.Context().Err() == nil {
			t.Error("something may still start under it")
		}
	}
	nothingLeft(t, servers[:2], key)
	for _, p := range ps {
		p.Reset()
	}
	release(t, l)
	nothingLeft(t, servers, key)
}

// A release whose replies are lost on a majority released the lock, whoever got in before it is sent again.
func TestRedlockReleaseRepliesLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl  time.Duration
		late bool
		want error
	}{
		"within the TTL": {time.Minute, false, nil},
		"after the TTL":  {3 * time.Second, true, lock.ErrLost},
	} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, taken is %v", name, taken), func(t *testing.T) {
				t.Parallel()
				servers, key := masters(t, 3), redistest.Name(t)
				ps := proxies(t, servers)
				config := roomy
				config.TTL = c.ttl
				l := acquire(t, redlockOn(t, ps, config), key)
				everywhere(t, servers, func(i int, rdb redis.UniversalClient) {
					redistest.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 1 }, "node %d has it", i)
				})
				for _, p := range ps[1:] {
					p.CutReply(redistest.Command("EVALSHA", releaseScript.hash.(string)), 1)
				}
				names(t, l.Release(t.Context()), "release", ps[1].Addr(), ps[2].Addr())
				var heir lock.Lock
				if taken {
					heir = acquire(t, redlockOn(t, servers, roomy), key)
				}
				if c.late {
					<-time.After(time.Until(l.Until()))
				}
				for range 2 {
					if err := l.Release(t.Context()); !errors.Is(err, c.want) {
						t.Errorf("the repetition: %v, want %v", err, c.want)
					}
				}
				if taken {
					if err := heir.Extend(t.Context()); err != nil {
						t.Errorf("the heir: %v", err)
					}
				}
			})
		}
	}
}

// A release that a majority has refused released nothing. If others have the lock by the next one, it was lost.
func TestRedlockReleaseRefusedAndTaken(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	ps := proxies(t, servers)
	l := acquire(t, redlockOn(t, ps, roomy), key)
	everywhere(t, servers, func(i int, rdb redis.UniversalClient) {
		redistest.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 1 }, "node %d has it", i)
	})
	refused := redistest.Command("EVALSHA", releaseScript.hash.(string))
	for _, p := range ps[1:] {
		p.Reply(refused, "-READONLY You can't write against a read only replica.", -1)
	}
	names(t, l.Release(t.Context()), "release", ps[1].Addr(), ps[2].Addr())
	for _, s := range servers[1:] {
		if err := s.Client().Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	heir := acquire(t, redlockOn(t, servers, roomy), key)
	for _, p := range ps {
		p.Reset()
	}
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the repetition: %v, want %v", err, lock.ErrLost)
	}
	if err := heir.Extend(t.Context()); err != nil {
		t.Errorf("the heir: %v", err)
	}
}
