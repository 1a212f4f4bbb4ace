package redlock

import (
	"context"
	"flag"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

var restartCount = flag.Int("restarts.count", 12, "how many servers TestTokensRiseOverRestarts restarts, in all")

// A tokenLog is what was granted on one set of nodes, whoever it was granted to.
type tokenLog struct {
	mu                  sync.Mutex
	last                int64 // the largest token that was returned
	seen                map[int64]bool
	repeated, backwards int
	more                chan struct{} // closed at the next grant

	quiet sync.RWMutex // locked while nobody else asks
}

func (g *tokenLog) latest() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// granted notes a token that was asked for when the largest was begun.
func (g *tokenLog) granted(token, begun int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.seen[token]:
		g.repeated++
	case token <= begun:
		g.backwards++
	}
	g.seen[token] = true
	g.last = max(g.last, token)
	close(g.more)
	g.more = make(chan struct{})
}

// wait returns after n more grants.
func (g *tokenLog) wait(t *testing.T, n int) {
	t.Helper()
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	for range n {
		g.mu.Lock()
		more := g.more
		g.mu.Unlock()
		select {
		case <-more:
		case <-end.C:
			t.Fatal("no lock is granted for a minute")
		}
	}
}

// restarted is what came of the restarts.
type restarted struct {
	mu                                           sync.Mutex
	restarts, older, grants, repeated, backwards int
}

// Servers are killed and come back with an older memory, again and again, while some processes run and
// others begin: tokens only rise. The long form is make restarts.
func TestTokensRiseOverRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	redistest.New(t) // skips the test, not only its parts, where there is no real server
	var all restarted
	t.Run("sets", func(t *testing.T) {
		sets := map[string][]persistence{
			"snapshots": {persistences[0], persistences[0], persistences[0]},
			"mixed":     persistences[:3],
		}
		if *restartCount >= 100 {
			sets["append-only"] = []persistence{persistences[1], persistences[1], persistences[1]}
			sets["five"] = append(persistences[:3:3], persistences[:2]...)
		}
		for name, kinds := range sets {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				restart(t, kinds, *restartCount/len(sets), &all)
			})
		}
	})
	t.Logf("restarts: restarts=%d older=%d grants=%d repeated=%d backwards=%d", all.restarts, all.older, all.grants, all.repeated, all.backwards)
	if !t.Failed() && !t.Skipped() && (all.restarts < *restartCount || all.older == 0) {
		t.Errorf("%d servers were restarted, %d with an older register: nothing is shown", all.restarts, all.older)
	}
}

// restart kills at least so many servers of a set, and lets them come back with an older memory: by turns all one
// at a time, while nobody asks, and some at once, while locks are granted.
func restart(t *testing.T, kinds []persistence, restarts int, all *restarted) {
	config := Config{TTL: 300 * time.Millisecond, NodeTimeout: 100 * time.Millisecond}
	key := redistest.Name(t)
	servers := make([]*redistest.Server, len(kinds))
	for i, p := range kinds {
		servers[i] = redistest.New(t, p.args...)
	}
	grants := &tokenLog{seen: map[int64]bool{}, more: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var users sync.WaitGroup
	defer users.Wait()
	defer stop()
	for range 2 {
		r := delayedRedlockOn(t, servers, config)
		users.Go(func() { use(ctx, grants, r, key) })
	}
	newcomer := func() { // a process of one acquire
		r, err := New(optionsOf(servers), config)
		if err != nil {
			t.Error(err)
			return
		}
		grants.ask(ctx, r, key)
		_ = r.Close()
	}
	users.Go(func() {
		for ctx.Err() == nil {
			grants.quiet.RLock()
			newcomer()
			grants.quiet.RUnlock()
		}
	})
	watch := delayedRedlockOn(t, servers, config)
	counts(t, watch)
	older, done := 0, 0
	back := func(i int, restore func()) {
		before := grants.latest()
		restore()
		servers[i].Restart()
		record := servers[i].Client().Get(t.Context(), fence(t, key)).Val()
		if token, _, _ := strings.Cut(record, " "); token != "" {
			if n, err := strconv.ParseInt(token, 10, 64); err != nil || n < before {
				older++
			}
		}
		done++
	}
	for round := 0; done < restarts; round++ {
		grants.wait(t, 1+rand.N(3))
		quiet := round%2 == 0
		first, n := rand.N(len(servers)), 1+rand.N(len(servers))
		if quiet {
			n = len(servers)
		}
		restores := map[int]func(){}
		for i := range n {
			i = (first + i) % len(servers)
			restores[i] = kinds[i].age(t, servers[i])
		}
		grants.wait(t, 2)
		if !quiet { // at once, and the others go on meanwhile
			for i := range restores {
				servers[i].Kill()
			}
			for i, restore := range restores {
				back(i, restore)
			}
			counts(t, watch)
			continue
		}
		grants.quiet.Lock()
		for i, restore := range restores { // one at a time
			servers[i].Kill()
			back(i, restore)
			counts(t, watch)
		}
		newcomer() // is the first who asks after that
		grants.quiet.Unlock()
	}
	grants.wait(t, 2)
	grants.mu.Lock()
	defer grants.mu.Unlock()
	if grants.repeated+grants.backwards > 0 {
		t.Errorf("%d tokens were granted twice, and %d after larger ones", grants.repeated, grants.backwards)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	all.restarts += done
	all.older += older
	all.grants += len(grants.seen)
	all.repeated += grants.repeated
	all.backwards += grants.backwards
}

// use gets the lock again and again until ctx ends.
func use(ctx context.Context, grants *tokenLog, r *Locker, key string) {
	for ctx.Err() == nil {
		grants.quiet.RLock()
		grants.ask(ctx, r, key)
		grants.quiet.RUnlock()
	}
}

// ask gets the lock once, if it can be had: too few nodes may count, or another may have it.
func (g *tokenLog) ask(ctx context.Context, r *Locker, key string) {
	begun := g.latest()
	within, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l, err := r.Acquire(within, key)
	if err == nil {
		g.granted(l.Token(), begun)
		_ = l.Release(ctx)
	}
	select { // others want the machine
	case <-time.After(5 * time.Millisecond):
	case <-ctx.Done():
	}
}
