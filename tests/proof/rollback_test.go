package main

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Each fault has the effect on a server's memory that its name says.
func TestServersGoBack(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := startServer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	set := func(value string) {
		t.Helper()
		if err := s.admin.Set(ctx, "k", value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	restart := func(from origin, want string) {
		t.Helper()
		s.process.kill()
		if err := s.run(ctx, from); err != nil {
			t.Fatal(err)
		}
		if got, err := s.admin.Get(ctx, "k").Result(); got != want || err != nil && err != redis.Nil {
			t.Errorf("the server has %q, %v; want %q", got, err, want)
		}
	}
	set("1")
	if err := s.admin.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	set("2")
	restart(fromSnapshot, "1")
	restart(fromNothing, "")

	if err := s.admin.ConfigSet(ctx, "appendonly", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.logBegun(ctx); err != nil {
		t.Fatal(err)
	}
	set("3")
	path, size, err := s.logEnd()
	if err != nil {
		t.Fatal(err)
	}
	set("4")
	s.process.kill()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	restart(fromLog, "3")
	restart(fromNothing, "")
}

// A history may end when a fault begins. Then the fault ends early, without an error.
func TestFaultsAfterTheEnd(t *testing.T) {
	t.Parallel()
	s, err := startServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	n, err := newNetwork(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, f := range serverFaults {
		if _, err := f.do(ended, &station{s, n}, rand.New(rand.NewPCG(1, 2))); err != nil {
			t.Errorf("%s: %v", f.name, err)
		}
	}
}

// If a reply is cut, the server has run the call.
func TestCutReplies(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, err := startServer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	n, err := newNetwork(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	rdb := redis.NewClient(&redis.Options{Addr: n.addr(), MaxRetries: -1, PoolSize: 1})
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	n.change(toxic{replies: cutToxic{}, share: 1})
	replies := 0
	for ; ; replies++ {
		if rdb.Incr(ctx, "n").Err() != nil {
			break
		}
	}
	if run, err := s.admin.Get(ctx, "n").Int(); err != nil || run != replies+1 {
		t.Errorf("the server has run %d calls, %v; %d had a reply", run, err, replies)
	}
}
