package redlock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

func TestRedlockBadConfig(t *testing.T) {
	t.Parallel()
	nodes := []*redis.Options{{Addr: "a:1"}, {Addr: "b:1"}, {Addr: "c:1"}}
	for name, c := range map[string]struct {
		nodes  []*redis.Options
		config Config
		want   []string
	}{
		"too few":       {nodes[:2], Config{}, []string{"nodes: there are 2", "at least 3"}},
		"nil":           {[]*redis.Options{{Addr: "a:1"}, nil, {Addr: "b:1"}}, Config{}, []string{"nodes[1] is nil"}},
		"twice":         {[]*redis.Options{{Addr: "a:1"}, {Addr: "b:1"}, {Addr: "a:1", DB: 1}}, Config{}, []string{"nodes[2]", "nodes[0]", "a:1"}},
		"short TTL":     {nodes, Config{TTL: 9 * time.Millisecond}, []string{"TTL is 9ms"}},
		"long TTL":      {nodes, Config{TTL: 25 * time.Hour}, []string{"TTL is 25h"}},
		"node timeout":  {nodes, Config{TTL: time.Second, NodeTimeout: 500 * time.Millisecond}, []string{"NodeTimeout is 500ms", "less than half"}},
		"tries":         {nodes, Config{Tries: -1}, []string{"Tries is -1"}},
		"max TTL":       {nodes, Config{MaxTTL: time.Second}, []string{"MaxTTL is 1s", "30s"}},
		"minimum hold":  {nodes, Config{MinHold: time.Minute}, []string{"MinHold is 1m"}},
		"owner":         {nodes, Config{Owner: "a\nb"}, []string{"Owner"}},
		"every mistake": {nodes[:1], Config{TTL: -1 * time.Second, Tries: -2}, []string{"nodes", "TTL", "Tries"}},
	} {
		r, err := New(c.nodes, c.config)
		if r != nil || !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v, %v", name, r, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in: %v", name, want, err)
			}
		}
	}
	r, err := New(nodes, Config{TTL: spec.MinTTL}) // does no I/O: there is no such host
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Acquire(t.Context(), "x:fence"); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a bad key: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Close ends what waits, and leaves nothing running (goleak is in TestMain).
func TestRedlockClose(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := redlockOn(t, servers, roomy)
	l := acquire(t, r, key)
	servers[2].Stop()
	defer servers[2].Cont()
	failed := make(chan error)
	for range 2 { // the first in line, and one behind
		go func() {
			_, err := r.Acquire(context.Background(), key)
			failed <- err
		}()
	}
	redistest.Eventually(t, func() bool {
		r.lines.mu.Lock()
		defer r.lines.mu.Unlock()
		return r.lines.lines[key] != nil && len(r.lines.lines[key].waiting) == 2
	}, "both wait")
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, errClosed) {
			t.Errorf("Acquire after Close: %v", err)
		}
	}
	if _, err := r.TryAcquire(t.Context(), key); !errors.Is(err, errClosed) {
		t.Errorf("TryAcquire after Close: %v", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("Release after Close: %v", err)
	}
	if err := r.Check(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("Check after Close: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// Nor does it wait for a server that accepts connections and then says nothing.
func TestRedlockCloseWhileConnecting(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	servers[0].Stop()
	defer servers[0].Cont()
	r := redlockOn(t, servers, Config{TTL: time.Minute, NodeTimeout: 20 * time.Second})
	checked := make(chan error)
	go func() { checked <- r.Check(context.Background()) }()
	redistest.Eventually(t, func() bool { return r.nodes[1].clockNow() != 0 }, "the others are looked at")
	r.nodeTimeout = time.Millisecond // what Close lets pass
	start := time.Now()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 10*time.Second { // else it would be 21 s
		t.Errorf("it took %v", took)
	}
	if err := <-checked; !errors.As(err, new(*lock.QuorumError)) {
		t.Errorf("Check while it is closed: %v", err)
	}
}
