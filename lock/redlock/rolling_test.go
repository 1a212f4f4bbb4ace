package redlock

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

var rollingRounds = flag.Int("rolling.rounds", 0, "how often TestHolderOutlivesARollingRestart restarts each server, by the clock; 0: a few restarts, each when the one before is over")

// The servers are restarted one after the other, as docs/locks/redlock.md says, under a holder that extends and a contender:
// the lock is never lost, and nobody else gets it. The long form is make rolling.
func TestHolderOutlivesARollingRestart(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{3, 5} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			t.Parallel()
			servers, key := masters(t, nodes), redistest.Name(t)
			holder, contender := delayedRedlockOn(t, servers, shortDelay), delayedRedlockOn(t, servers, shortDelay)
			counts(t, holder)
			counts(t, contender)
			l := acquire(t, holder, key)
			everywhere(t, servers, func(i int, _ redis.UniversalClient) { hasIt(t, servers[i], l) })
			ctx, stop := context.WithCancel(t.Context())
			var work sync.WaitGroup
			defer work.Wait()
			defer stop()
			grants := 0
			work.Go(func() {
				for ctx.Err() == nil {
					if other, err := contender.TryAcquire(ctx, key); err == nil {
						grants++
						if l.Context().Err() == nil {
							t.Errorf("two holders: of token %d and of %d", l.Token(), other.Token())
						}
						_ = other.Release(context.WithoutCancel(ctx))
					}
					select {
					case <-time.After(20 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			})
			restarts := nodes/2 + 2 // one more than a majority
			if *rollingRounds > 0 {
				restarts = *rollingRounds * nodes
			}
			err := lock.Hold(t.Context(), l, func(held context.Context) error {
				defer work.Wait() // before the lock is released
				defer stop()
				for i := range restarts {
					s := servers[i%nodes]
					s.Restart()
					if *rollingRounds > 0 {
						select {
						case <-time.After(shortDelay.MaxTTL + shortDelay.TTL):
						case <-held.Done():
						}
					} else {
						redistest.Eventually(t, func() bool { return held.Err() != nil || has(t, s, l) }, "the lock is set again, or lost")
					}
					if held.Err() != nil {
						return fmt.Errorf("lost after %d restarts: %w", i+1, context.Cause(held))
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			if grants > 0 {
				t.Errorf("the contender had the lock %d times", grants)
			}
			nothingLeft(t, servers, key)
			redistest.Eventually(t, func() bool { return contender.Check(t.Context()) == nil }, "all nodes count")
			if next := acquire(t, contender, key); next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			}
			t.Logf("rolling: nodes=%d restarts=%d lost=%v", nodes, restarts, err != nil)
		})
	}
}

func has(t *testing.T, s *redistest.Server, l lock.Lock) bool {
	return s.Client().Get(t.Context(), l.Key()).Val() == l.(*heldLock).Holder()
}

func hasIt(t *testing.T, s *redistest.Server, l lock.Lock) {
	t.Helper()
	redistest.Eventually(t, func() bool { return has(t, s, l) }, "%s has the lock", s.Addr())
}

// restartedUnder returns a lock that three servers had, with the first of them restarted: the lock is gone there, and
// the server counts again.
func restartedUnder(t *testing.T) (r *Locker, servers []*redistest.Server, ps []*redistest.Proxy, l lock.Lock) {
	t.Helper()
	servers = masters(t, 3)
	ps = proxies(t, servers)
	long := Config{TTL: time.Minute, MaxTTL: time.Minute, NodeTimeout: time.Second}
	r = delayedRedlockOn(t, ps, long)
	counted := func() { // a minute is too long to wait for
		for i, n := range r.nodes {
			redistest.Eventually(t, func() bool {
				_ = r.Check(t.Context())
				n.mu.Lock()
				defer n.mu.Unlock()
				return n.known && n.memory.marker == servers[i].Client().Get(t.Context(), runMarker).Val()
			}, "the node's memory is known")
			do(t, servers[i].Client(), "DEL", freshMarker)
			n.mu.Lock()
			n.memory.rests = time.Time{}
			n.mu.Unlock()
		}
	}
	counted()
	l = acquire(t, r, redistest.Name(t))
	for _, s := range servers {
		hasIt(t, s, l)
	}
	for _, n := range r.nodes {
		n.wire.settle(t.Context()) // and we know it
	}
	servers[0].Restart()
	if err := l.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.nodes[0].wire.settle(t.Context())
	if has(t, servers[0], l) {
		t.Error("it was set again on a node that doesn't count yet")
	}
	counted()
	return r, servers, ps, l
}

// idle waits until a node has answered all, also what follows from an answer.
func idle(t *testing.T, n *node) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		n.wire.mu.Lock()
		defer n.wire.mu.Unlock()
		return !n.wire.busy
	}, "node %d has answered all", n.index)
}

// A holder sets its lock again on a node that lost its memory, without a vote. The node counts from the next extension on. What
// somebody deletes isn't set again.
func TestSetAgain(t *testing.T) {
	t.Parallel()
	r, servers, _, l := restartedUnder(t)
	extend := func() {
		t.Helper()
		if err := l.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, n := range r.nodes {
			idle(t, n)
		}
	}
	extend()
	hasIt(t, servers[0], l)
	if ttl := servers[0].Client().PTTL(t.Context(), l.Key()).Val(); ttl <= 0 || ttl > time.Minute {
		t.Errorf("it ends in %v", ttl)
	}
	if n := servers[0].Client().Exists(t.Context(), fence(t, l.Key())).Val(); n != 0 {
		t.Error("the node has voted")
	}
	servers[1].Client().Del(t.Context(), l.Key())
	extend() // by the first and the third
	extend()
	if has(t, servers[1], l) {
		t.Error("a lock that was deleted was set again")
	}
	servers[2].Client().Del(t.Context(), l.Key())
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("one of three has it: %v", err)
	}
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("release: %v", err)
	}
	nothingLeft(t, servers, l.Key())
}

// A lock that a majority has no more is lost. It isn't set on the nodes that would make it a majority again.
func TestLostLockIsNotSetAgain(t *testing.T) {
	t.Parallel()
	r, servers, _, l := restartedUnder(t)
	servers[1].Client().Del(t.Context(), l.Key())
	if err := l.Extend(t.Context()); !errors.Is(err, lock.ErrExpired) {
		t.Errorf("one of three has it: %v", err)
	}
	r.nodes[0].wire.settle(t.Context())
	for _, s := range servers[:2] {
		if has(t, s, l) {
			t.Errorf("it was set again on %s", s.Addr())
		}
	}
}

// A lock that is granted while another try has a node is set there when that try has failed, and needs no extension for that: also if the node
// refused it after the others had granted it. A release undoes that.
func TestSetWhereAnotherTryWas(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	ps := proxies(t, servers)
	r := delayedRedlockOn(t, ps, shortDelay)
	counts(t, r)
	for _, late := range []bool{false, true} {
		do(t, servers[0].Client(), "SET", key, "another")
		answer := func() {}
		if late {
			_, answer = ps[0].HoldReplies(redistest.Command("EVALSHA", acquireScript.hash.(string)))
		}
		l := acquire(t, r, key)
		answer()
		do(t, servers[0].Client(), "DEL", key)
		hasIt(t, servers[0], l)
		idle(t, r.nodes[0])
		release(t, l)
		nothingLeft(t, servers, key)
	}
}

// A node that never had the lock, since another held it there or it didn't count yet, gets it by the next extension.
func TestSetOnANodeThatNeverHadIt(t *testing.T) {
	t.Parallel()
	servers, key := masters(t, 3), redistest.Name(t)
	r := delayedRedlockOn(t, servers, shortDelay)
	counts(t, r)
	servers[0].Client().Set(t.Context(), key, "another", 0)
	l := acquire(t, r, key)
	r.nodes[0].wire.settle(t.Context())
	servers[0].Client().Del(t.Context(), key)
	if err := l.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	hasIt(t, servers[0], l)
	release(t, l)
	nothingLeft(t, servers, key)
}

// Another try has the lock on the node when the holder asks: it asks again, and needs no other extension for that.
func TestSetAgainIsTriedAgain(t *testing.T) {
	t.Parallel()
	r, servers, ps, l := restartedUnder(t)
	asked := redistest.Command("EVALSHA", acquireScript.hash.(string))
	held, free := ps[0].HoldRequests(asked)
	if err := l.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-held
	do(t, servers[0].Client(), "SET", l.Key(), "another")
	before := ps[0].Count(asked)
	free()
	redistest.Eventually(t, func() bool { return ps[0].Count(asked) > before }, "it asks again")
	do(t, servers[0].Client(), "DEL", l.Key())
	hasIt(t, servers[0], l)
	idle(t, r.nodes[0])
	release(t, l)
	nothingLeft(t, servers, l.Key())
}

// A release undoes the setting, whenever the node runs it, and whatever becomes of the reply.
func TestReleaseAfterSetAgain(t *testing.T) {
	t.Parallel()
	set := redistest.Command("EVALSHA", acquireScript.hash.(string))
	for name, meanwhile := range map[string]func(t *testing.T, n *node, p *redistest.Proxy, l lock.Lock){
		"it is under way": func(t *testing.T, n *node, p *redistest.Proxy, l lock.Lock) {
			held, free := p.HoldRequests(set)
			if err := l.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-held
			release(t, l)
			free()
		},
		"its reply is lost": func(t *testing.T, n *node, p *redistest.Proxy, l lock.Lock) {
			cut := p.CutReply(set, 1)
			if err := l.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-cut
			release(t, l)
		},
		"the answer that it is gone comes later": func(t *testing.T, n *node, p *redistest.Proxy, l lock.Lock) {
			held, free := p.HoldReplies(redistest.Command("EVALSHA", extendScript.hash.(string)))
			if err := l.Extend(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-held
			release(t, l)
			before := p.Count(set)
			free()
			idle(t, n)
			if p.Count(set) > before {
				t.Error("a lock that was released was set again")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, servers, ps, l := restartedUnder(t)
			meanwhile(t, r.nodes[0], ps[0], l)
			idle(t, r.nodes[0])
			nothingLeft(t, servers, l.Key())
		})
	}
}
