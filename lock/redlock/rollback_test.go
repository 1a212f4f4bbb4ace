package redlock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

// A persistence is how a server keeps its memory, and how it comes back with an older one.
type persistence struct {
	name string
	args []string
	// age keeps what the server has on disk, with what it remembers now.
	age func(t testing.TB, s *redistest.Server) (restore func())
}

// persistences are those by which a server comes back with less than it knew.
var persistences = []persistence{
	{"a snapshot", []string{"--save", "3600 1"}, func(t testing.TB, s *redistest.Server) func() {
		if err := s.Client().Save(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		return func() {} // the last snapshot is what is there
	}},
	{"an append-only file that lacks its end", []string{"--save", "", "--appendonly", "yes", "--appendfsync", "everysec"}, oldFiles},
	{
		"appendfsync always until CONFIG SET appendonly no",
		[]string{"--save", "", "--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "no"},
		func(t testing.TB, s *redistest.Server) func() {
			if err := s.Client().ConfigSet(t.Context(), "appendonly", "no").Err(); err != nil {
				t.Fatal(err)
			}
			return func() {} // nothing more is written, and the configuration at the start reads what was
		},
	},
}

// oldFiles returns a function that puts the server's files back as they are now: what a power failure
// does to those that were not synced yet. The server must be gone by then.
func oldFiles(t testing.TB, s *redistest.Server) func() {
	dir := filepath.Dir(s.LogPath())
	old := map[string][]byte{}
	// What was written is in the file once the server has answered; it is only not on the disk.
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path, "appendonlydir") && !d.IsDir() {
			old[path], err = os.ReadFile(path)
		}
		return err
	}); err != nil || len(old) == 0 {
		t.Fatalf("%d files in %s, %v", len(old), dir, err)
	}
	return func() {
		for path, text := range old {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Nodes that come back one at a time with what they knew some time ago, each after the restart delay,
// let no token repeat or go back: not for a process on its first acquire, nor for one that
// knows nothing of the restarts.
func TestRolledBackNodes(t *testing.T) {
	t.Parallel()
	mixed := make([]persistence, 3)
	copy(mixed, persistences)
	tests := map[string][]persistence{"mixed": mixed}
	for _, p := range persistences {
		tests[p.name] = []persistence{p, p, p}
	}
	for name, kinds := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := redistest.Name(t)
			servers := make([]*redistest.Server, len(kinds))
			for i, p := range kinds {
				servers[i] = redistest.New(t, p.args...)
			}
			process := func() *Locker { return delayedRedlockOn(t, servers, shortDelay) }
			var last int64
			grant := func(what string, r *Locker) {
				t.Helper()
				l := acquire(t, r, key)
				if l.Token() <= last {
					t.Errorf("%s got token %d after %d", what, l.Token(), last)
				}
				last = max(last, l.Token())
				release(t, l)
			}
			watch := process()
			counts(t, watch)
			grant("the first", process())
			restores := make([]func(), len(servers))
			for i, s := range servers {
				restores[i] = kinds[i].age(t, s)
			}
			grant("one that runs for a while", watch)
			grant("a new process", process())
			asleep := process()
			grant("one that sleeps from now on", asleep)
			for i, s := range servers {
				s.Kill()
				restores[i]()
				s.Restart()
				if marker := s.Client().Get(t.Context(), runMarker).Val(); marker == "" {
					t.Errorf("server %d has lost everything, and should have come back with an older memory", i)
				}
				counts(t, watch)
				// Whatever a client proposes, the node itself votes for nothing that may be less than before.
				terms := watch.nodes[i].terms()
				reply, err := redis.NewScript(acquireScript.source.(string)).Run(t.Context(), s.Client(), []string{key, fence(t, key), runMarker},
					"probe", 60_000, last, "owner", 1, terms.marker, terms.floor, 0).Result()
				if v := parseVote(outcome{reply: reply, err: err}); !v.held || v.voted || v.last <= last {
					t.Errorf("server %d, asked for a vote for %d again: %+v", i, last, v)
				}
				s.Client().Del(t.Context(), key)
			}
			grant("a new process after the restarts", process())
			grant("another", process())
			if l, err := asleep.TryAcquire(t.Context(), key); err == nil {
				t.Errorf("what slept through all restarts has not seen that the nodes' memories are new: token %d", l.Token())
			}
			counts(t, asleep) // by its own clock each node is new
			grant("the one that slept", asleep)
			grant("the one that runs for a while", watch)
		})
	}
}

// Every restart waits MaxTTL, whatever the server says of its persistence, and whatever marker it
// comes back with: it may have forgotten the lock.
func TestEveryRestartWaits(t *testing.T) {
	t.Parallel()
	for _, p := range persistences {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			key := redistest.Name(t)
			servers := masters(t, 3, p.args...)
			r := delayedRedlockOn(t, servers, shortDelay)
			counts(t, r)
			var restores []func()
			for _, s := range servers {
				restores = append(restores, p.age(t, s))
			}
			late := delayedRedlockOn(t, servers, Config{TTL: time.Minute, NodeTimeout: time.Second})
			l := acquire(t, late, key) // no server knows of it after its restart
			for i, s := range servers[:2] {
				s.Kill()
				restores[i]()
				s.Restart()
			}
			for _, r := range []*Locker{late, delayedRedlockOn(t, servers, Config{TTL: time.Minute, NodeTimeout: time.Second})} {
				quarantined(t, r, 2)
			}
			if l.Context().Err() != nil {
				t.Error("the lock ended meanwhile: nothing was shown")
			}
		})
	}
}

// A new process knows no clocks. Where nothing else tells that registers are old (here the nodes count at
// once) it settles on no less than the clocks of the nodes all the same.
func TestFirstAcquireFollowsTheClocks(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 5), redistest.Name(t)
	old := time.Now().Add(-time.Hour).UnixMicro()
	for _, s := range servers {
		if err := s.Client().Set(t.Context(), fence(t, key), old, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	clocks := func() (latest int64) {
		for _, s := range servers {
			now, err := s.Client().Time(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			latest = max(latest, now.UnixMicro())
		}
		return latest
	}
	for _, ask := range []func(*Locker) (lock.Lock, error){
		func(r *Locker) (lock.Lock, error) { return r.TryAcquire(t.Context(), key) },
		func(r *Locker) (lock.Lock, error) { return r.Acquire(t.Context(), key+"2") },
	} {
		before := clocks()
		l, err := ask(redlockOn(t, servers, roomy))
		if err != nil {
			t.Fatal(err)
		}
		if l.Token() < before {
			t.Errorf("token %d, and the clocks showed %d", l.Token(), before)
		}
		release(t, l)
	}
}

// Check says what the next acquire will, and the restart delay begins with it.
func TestCheckSeesAFlush(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	r := delayedRedlockOn(t, servers, shortDelay)
	counts(t, r)
	everywhere(t, servers[:2], func(_ int, rdb redis.UniversalClient) { rdb.FlushAll(t.Context()) })
	names(t, r.Check(t.Context()), "check", servers[0].Addr(), servers[1].Addr())
	for _, s := range servers[:2] { // it left its markers there
		if n := s.Client().Exists(t.Context(), runMarker, freshMarker).Val(); n != 2 {
			t.Errorf("%s has %d markers", s.Addr(), n)
		}
	}
	quarantined(t, r, 2)
	if d := counts(t, r); d > 10*shortDelay.MaxTTL {
		t.Errorf("they count after %v", d)
	}
	l, err := r.TryAcquire(t.Context(), redistest.Name(t))
	if err != nil {
		t.Fatalf("all count, said Check: %v", err)
	}
	release(t, l)
}

// A node whose clock is about an hour ahead or more is unfit, and named; what a few seconds of our own
// lateness explain is never put down to a clock.
func TestClocksAhead(t *testing.T) {
	t.Parallel()
	servers := masters(t, 5)
	r := redlockOn(t, servers, roomy)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	n := r.nodes[2]
	ahead := func(by int64) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.clock, n.at, n.known = time.Now().UnixMicro()+by, time.Now(), true
	}
	ahead(58 * aMinute)
	if err := n.clockFault(); err != nil {
		t.Error(err)
	}
	ahead(61 * aMinute)
	err := n.clockFault()
	if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), "nodes[2]") || !strings.Contains(err.Error(), "clock") {
		t.Errorf("%v", err)
	}
	for i, other := range r.nodes {
		if err := other.clockFault(); i != 2 && err != nil {
			t.Error(err)
		}
	}
	// The next acquire looks again, and finds that it is well.
	release(t, acquire(t, r, redistest.Name(t)))
	n.wire.settle(t.Context())
	if err := n.clockFault(); err != nil {
		t.Error(err)
	}

	now := time.Now().UnixMicro()
	for name, c := range map[string]struct {
		register
		blames string
	}{
		"late":                  {register{last: now - 5*aMinute, now: now}, "in time"},
		"a bit ahead":           {register{last: now + 5*aMinute, now: now + 5*aMinute}, "in time"},
		"hours ahead":           {register{last: now + 120*aMinute, now: now + 120*aMinute}, "its clock"},
		"its register is ahead": {register{last: now + 120*aMinute, now: now}, "its last token"},
		"hours behind":          {register{last: now - 120*aMinute, now: now - 120*aMinute}, "behind"},
	} {
		if err := noVote(c.register, now); !strings.Contains(err.Error(), c.blames) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// After a suspend of the machine the clocks of the nodes are unknown: what they were reckoned by stood still.
func TestSuspendForgetsTheClocks(t *testing.T) {
	t.Parallel()
	servers := masters(t, 3)
	r := redlockOn(t, servers, roomy)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wake(0)
	if c := r.clocks(); c[0] == 0 || c[1] == 0 || c[2] == 0 {
		t.Errorf("forgotten without a suspend: %d", c)
	}
	r.wake(time.Hour)
	if c := r.clocks(); c[0] != 0 || c[1] != 0 || c[2] != 0 {
		t.Errorf("still known: %d", c)
	}
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.wake(time.Hour + time.Second/2)
	if c := r.clocks(); c[0] == 0 || c[1] == 0 || c[2] == 0 {
		t.Errorf("forgotten after the same suspend: %d", c)
	}
}

func TestPatience(t *testing.T) {
	t.Parallel()
	p := newPatience(time.Hour)
	defer p.stop()
	end := p.end
	if !p.overAt(end.Add(time.Millisecond)) {
		t.Error("the timer was in time")
	}
	if p.overAt(end.Add(time.Second)) {
		t.Error("we were late")
	}
	if !p.overAt(end.Add(time.Hour)) {
		t.Error("late twice")
	}
	p.begin()
	if p.overAt(p.end.Add(time.Second)) {
		t.Error("another round, and we were late")
	}
}
