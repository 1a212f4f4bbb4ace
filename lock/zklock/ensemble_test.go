package zklock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// Three servers are broken in one way after another.
func TestEnsemble(t *testing.T) {
	t.Parallel()
	// A follower and the leader notice only after 10 s that they are cut off from each other.
	e := &ensemble{t: t, servers: servertest.ZooKeeper(t, 3, "tickTime=500", "syncLimit=20", "initLimit=60")}
	for _, s := range e.servers {
		e.addrs = append(e.addrs, s.Addr())
	}
	t.Run("CutOffWithItsFollower", e.cutOffWithItsFollower)
	t.Run("ServerStopped", e.serverStopped)
	t.Run("LeaderKilled", e.leaderKilled)
	t.Run("QuorumLost", e.quorumLost)
}

type ensemble struct {
	t       *testing.T // of the whole
	servers []*servertest.Server
	addrs   []string
}

// roles returns the leader's number and those of the followers.
func (e *ensemble) roles(t *testing.T) (leader int, followers []int) {
	t.Helper()
	eventually(t, "there are a leader and two followers", func() bool {
		leader, followers = -1, nil
		for i, s := range e.servers {
			switch servertest.ZooKeeperMode(s) {
			case "leader":
				leader = i
			case "follower":
				followers = append(followers, i)
			}
		}
		return leader >= 0 && len(followers) == 2
	})
	return leader, followers
}

// linked puts a link between a follower and the leader. The follower's clients don't notice when it holds.
func (e *ensemble) linked(t *testing.T, follower, leader int) *servertest.Link {
	t.Helper()
	s := e.servers[follower]
	config := filepath.Join(s.Dir(), "zoo.cfg")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^(server\.%d=)(127\.0\.0\.1:\d+)(:.*)$`, leader+1))
	found := line.FindSubmatch(text)
	if found == nil {
		t.Fatalf("no line of server %d in\n%s", leader+1, text)
	}
	link := servertest.NewLink(e.t, string(found[2]))
	s.Kill()
	if err := os.WriteFile(config, line.ReplaceAll(text, []byte("${1}"+link.Addr()+"${3}")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return link
}

// A client that is cut off together with its follower still gets answers to its pings, while the leader ends its session.
// It stops believing in its lock before another client is granted it.
func (e *ensemble) cutOffWithItsFollower(t *testing.T) {
	leader, followers := e.roles(t)
	link := e.linked(t, followers[0], leader)
	if now, _ := e.roles(t); now != leader {
		t.Fatal("the leader changed while a follower was down")
	}
	c := Config{TTL: 5 * time.Second, SessionTimeout: time.Second}
	far, near, key := lockerOn(t, c, e.addrs[followers[0]]), lockerOn(t, c, e.addrs[leader]), newKey()
	k := acquire(t, far, key)
	working, stop := context.WithCancel(t.Context())
	renewing := make(chan error, 1)
	ended := make(chan time.Time, 1)
	go func() {
		renewing <- lock.Hold(working, k, func(ctx context.Context) error {
			<-ctx.Done()
			ended <- time.Now()
			return ctx.Err()
		})
	}()
	defer stop()
	rival := acquiring(t.Context(), near, key)
	eventually(t, "the rival stands in the queue", func() bool { return len(seen(t, near, key).queue) == 1 })
	link.Hold()
	eventually(t, "the leader has ended the session", func() bool { return !seen(t, near, key).marked })
	if state := far.session.conn.State(); state != zk.StateHasSession {
		t.Errorf("the client that is cut off knows it: %v; then this test shows nothing", state)
	}
	if err := k.Context().Err(); err != nil {
		t.Errorf("the lock was lost before anybody else could have it: %v", context.Cause(k.Context()))
	}
	r := <-rival
	if r.err != nil {
		t.Fatal(r.err)
	}
	if late := k.Until().Sub(r.at); late > 0 {
		t.Errorf("the first holder believed for %v after the second was granted", late)
	}
	lost(t, k)
	if late := (<-ended).Sub(r.at); late > 0 {
		t.Errorf("the work of the first holder was told %v after the second was granted", late)
	}
	link.Heal()
	if err := <-renewing; !errors.Is(err, lock.ErrLost) {
		t.Errorf("Hold of the lock that was cut off: %v", err)
	}
	if err := r.lock.Extend(t.Context()); err != nil {
		t.Errorf("Extend of the second holder: %v", err)
	}
	release(t, r.lock)
	k = acquire(t, far, key)
	if k.Token() <= r.lock.Token() {
		t.Errorf("token %d after %d", k.Token(), r.lock.Token())
	}
	release(t, k)
}

// A client whose server is stopped goes on with another one, and keeps its lock and its place in the queue.
func (e *ensemble) serverStopped(t *testing.T) {
	c := Config{TTL: 30 * time.Second, SessionTimeout: 5 * time.Second}
	a, b, key := lockerOn(t, c, e.addrs...), lockerOn(t, c, e.addrs...), newKey()
	leader, _ := e.roles(t)
	var k *zkLock
	for { // its server is a follower
		k = acquire(t, a, key)
		if !strings.HasSuffix(e.addrs[leader], a.session.conn.Server()) {
			break
		}
		a = lockerOn(t, c, e.addrs...)
		release(t, k)
	}
	r := acquiring(t.Context(), b, key)
	eventually(t, "a waiter stands in the queue", func() bool { return len(seen(t, b, key).queue) == 1 })
	var stopped *servertest.Server
	for i, addr := range e.addrs {
		if addr == a.session.conn.Server() {
			stopped = e.servers[i]
		}
	}
	if err := stopped.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := k.Extend(t.Context()); err != nil {
		t.Errorf("Extend after its server was stopped: %v", err)
	}
	release(t, k)
	got := <-r
	if got.err != nil {
		t.Fatal(got.err)
	}
	release(t, got.lock)
	if err := stopped.Cont(); err != nil {
		t.Fatal(err)
	}
}

// A lock and the order of tokens survive the loss of the leader.
func (e *ensemble) leaderKilled(t *testing.T) {
	c := Config{TTL: 30 * time.Second, SessionTimeout: 10 * time.Second}
	a, b, key := lockerOn(t, c, e.addrs...), lockerOn(t, c, e.addrs...), newKey()
	k := acquire(t, a, key)
	r := acquiring(t.Context(), b, key)
	eventually(t, "a waiter stands in the queue", func() bool { return len(seen(t, b, key).queue) == 1 })
	leader, _ := e.roles(t)
	e.servers[leader].Kill()
	if err := k.Extend(t.Context()); err != nil {
		t.Errorf("Extend after the leader was killed: %v", err)
	}
	release(t, k)
	got := <-r
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.lock.Token() <= k.Token() {
		t.Errorf("token %d after %d", got.lock.Token(), k.Token())
	}
	release(t, got.lock)
	if err := e.servers[leader].Start(); err != nil {
		t.Fatal(err)
	}
}

// Without a majority no lock is granted or extended. Afterwards all goes on, and tokens grow.
func (e *ensemble) quorumLost(t *testing.T) {
	c := Config{TTL: 3 * time.Second, SessionTimeout: 2 * time.Second}
	a, b, key := lockerOn(t, c, e.addrs...), lockerOn(t, c, e.addrs...), newKey()
	k := acquire(t, a, key)
	leader, followers := e.roles(t)
	e.servers[leader].Kill()
	e.servers[followers[0]].Kill()
	if err := k.Extend(t.Context()); err == nil {
		t.Error("a lock was extended without a majority")
	}
	lost(t, k)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := b.Acquire(ctx, key); !errors.Is(err, errAway) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("Acquire without a majority: %v", err)
	}
	for _, i := range []int{leader, followers[0]} {
		if err := e.servers[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	var next lock.Lock
	eventually(t, "the lock is granted again", func() bool {
		var err error
		next, err = b.Acquire(ctx, key)
		return err == nil
	})
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	if err := k.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release of the lock that was lost: %v", err)
	}
	release(t, next)
}
