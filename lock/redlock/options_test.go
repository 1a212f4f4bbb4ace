package redlock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// go-redis sends a command up to three times more, with pauses of up to half a second, when whoever asked may
// have given up (go-redis #2215). A node is asked once.
func TestRedlockRepeatsNoCommand(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	ps := proxies(t, servers)
	r := redlockOn(t, ps, roomy)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	asks := redistest.Command("EVALSHA", acquireScript.hash.(string))
	ps[0].Reply(asks, "-LOADING Redis is loading the dataset in memory", -1)
	l := acquire(t, r, key) // by the others
	r.nodes[0].wire.settle(t.Context())
	if n := ps[0].Count(asks); n != 1 {
		t.Errorf("the node was asked %d times", n)
	}
	release(t, l)
}

// What the given options say of repeating and of time is not for a lock.
func TestNodeOptions(t *testing.T) {
	t.Parallel()
	nodes := []*redis.Options{{Addr: "a:1"}, {Addr: "b:1"}, {Addr: "c:1"}}
	for _, o := range nodes {
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = 5, 5, false
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = time.Hour, time.Hour, -1, time.Hour
	}
	given := *nodes[0]
	r, err := New(nodes, roomy) // does no I/O: there is no such host
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, n := range r.nodes {
		o := n.rdb.Options()
		if o.MaxRetries != 0 || o.DialerRetries != 1 {
			t.Errorf("%s: a command is tried %d times more, a connection %d times", n.name(), o.MaxRetries, o.DialerRetries)
		}
		if !o.ContextTimeoutEnabled {
			t.Errorf("%s: it ignores the deadlines of contexts", n.name())
		}
		for _, d := range []time.Duration{o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout} {
			if d != roomy.NodeTimeout+morePatience {
				t.Errorf("%s: a timeout of %v", n.name(), d)
			}
		}
	}
	if o := nodes[0]; o.MaxRetries != given.MaxRetries || o.ReadTimeout != given.ReadTimeout || o.Dialer != nil {
		t.Error("the given options were changed")
	}
}
