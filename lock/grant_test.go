package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A release ends a row: it offers the lock to the first in line, which is its own process, and its reply is
// lost. The offer is one waiter's. No other may get the same from the lost reply.
func TestLostOfferToTheOwnProcess(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"no retries": -1, "default": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, key := redistest.Start(t), redistest.Name(t)
			proxy := redistest.NewProxy(t, s.Addr())
			locker := newRedis(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = retries, false }), Config{TTL: time.Hour})
			if err := releaseScript.Load(t.Context(), s.Client()).Err(); err != nil { // else the reply is that it is unknown
				t.Fatal(err)
			}
			held := acquire(t, locker, key).(*redisLock)
			held.row = row{15, time.Now().Add(time.Hour).UnixMicro()} // the next is the end of the row
			first, second := waitFor(t, locker, key), waitFor(t, locker, key)
			inLocalLine(t, locker, key, 2)
			inLine(t, s.Client(), key, 1)
			cut := proxy.CutReply(redistest.Command("EVALSHA", releaseScript.Hash()), 1)
			_ = held.Release(t.Context())
			<-cut
			var l *redisLock
			select {
			case g := <-first:
				l = g.must(t)
			case g := <-second:
				l, second = g.must(t), first
			}
			// Whatever comes of the lost reply has come when the release is settled, and the lock is still held.
			redistest.Eventually(t, func() bool { settled, _ := held.only.begin(); return settled }, "the release is answered")
			locker.caller.Wait()
			select {
			case g := <-second:
				t.Fatalf("two holders: tokens %d and %d", l.Token(), g.must(t).Token())
			case <-time.After(3 * expiryJitter):
			}
			release(t, l)
			next := (<-second).must(t)
			if next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			}
			release(t, next)
		})
	}
}

// A waiter that gave up had the client repeat its acquire, and the release that undoes it: both come once more when the lock
// has passed on. So the same offer is made twice, to two processes. A copy of the release of the first
// who had it doesn't end the lock of the second.
func TestValueGrantedTwice(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	rdb, p := s.Client(), placeOf(t, key)
	long := row{1, time.Now().Add(time.Hour).UnixMicro()} // no row ends within this test
	late := newRedis(s.Client())
	asks := func() {
		t.Helper()
		reply, err := acquireScript.Run(t.Context(), rdb, []string{p.lock, p.fence, p.line}, "late", 60_000, "late", "", 0).Result()
		if g, err := parseGrant(reply, 1); err != nil || g.token == 0 {
			t.Fatalf("the late call takes nothing: %+v, %v", g, err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	undo := &handover{place: p, value: "late", row: long, ttl: time.Minute}
	give := func(h *handover) error {
		t.Helper()
		h.settled, h.err = false, nil // it is a copy, as the client sends it again
		return late.give(t.Context(), h)
	}

	asks()
	first := waitFor(t, newRedis(s.Client()), key)
	inLine(t, rdb, key, 1)
	if err := give(undo); err != nil {
		t.Fatal(err)
	}
	l := (<-first).must(t)
	release(t, l)

	asks()
	second := waitFor(t, newRedis(s.Client()), key)
	inLine(t, rdb, key, 1)
	if err := give(undo); err != nil {
		t.Fatal(err)
	}
	other := (<-second).must(t)
	if other.value != l.value || other.Token() <= l.Token() {
		t.Fatalf("%q with token %d after %q with %d: nothing is tested", other.value, other.Token(), l.value, l.Token())
	}
	if err := give(&l.only); !errors.Is(err, ErrTaken) || rdb.Get(t.Context(), key).Val() != other.value {
		t.Errorf("the first release once more: %v; the second holder has lost its lock", err)
	}
	release(t, other)
}

// An offer that a process hears of twice is one: its waiter may use it already.
func TestOfferHeardTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var passedOn []string
		locker := newRedis(released(&passedOn))
		p := placeOf(t, "key")
		w := locker.join(p.lock, false)
		offer := func(value string) { locker.heard(value + " 0 0 0 5 0 1000 key") }
		offer("first")
		<-w.turns // it asks with it
		offer("first")
		offer("second")
		locker.caller.Wait()
		if len(passedOn) != 0 || len(w.turns) != 1 || (<-w.turns).value != "second" {
			t.Errorf("the first is told again, or passed on: %q", passedOn)
		}
		locker.leave(p, w, true)
	})
}

// A turn that is told twice is one: it isn't released as a turn that nobody uses.
func TestSameTurnTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var passedOn []string
		locker := newRedis(released(&passedOn))
		p := placeOf(t, "key")
		w := locker.join(p.lock, false)
		for range 2 {
			locker.tell(p, turn{value: "same", offered: 7})
		}
		locker.caller.Wait()
		if len(passedOn) != 0 || len(w.turns) != 1 {
			t.Errorf("it was passed on: %q; %d turns", passedOn, len(w.turns))
		}
		<-w.turns
		locker.leave(p, w, true)
	})
}

// Goroutines of two processes wait for one lock; replies of releases and acquires are cut all the time; their
// clients repeat nothing, or what they repeat by default. No two hold the lock at once, and no token is
// granted twice.
func TestCutRepliesAmongWaiters(t *testing.T) {
	t.Parallel()
	for name, retries := range map[string]int{"no retries": -1, "default": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, key := redistest.Start(t), redistest.Name(t)
			proxy := redistest.NewProxy(t, s.Addr())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var (
				wg     sync.WaitGroup
				inside atomic.Int32
				grants atomic.Int64
				mu     sync.Mutex
				tokens = map[int64]bool{}
			)
			use := func(l Lock) {
				if n := inside.Add(1); n != 1 && l.Context().Err() == nil {
					t.Errorf("%d holders", n)
				}
				mu.Lock()
				if tokens[l.Token()] {
					t.Errorf("token %d was granted twice", l.Token())
				}
				tokens[l.Token()] = true
				mu.Unlock()
				time.Sleep(rand.N(4 * time.Millisecond)) // some rows end by their time, others by their length
				inside.Add(-1)
				grants.Add(1)
				_ = l.Release(ctx) // its reply may be lost
			}
			for range 2 {
				locker := newRedis(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = retries, false }), Config{TTL: time.Hour})
				for range 4 {
					wg.Go(func() {
						for ctx.Err() == nil && !t.Failed() {
							if l, err := locker.Acquire(ctx, key); err == nil {
								use(l)
							} else if errors.Is(err, ErrLost) {
								t.Error(err)
							}
						}
					})
				}
			}
			wg.Go(func() {
				for ctx.Err() == nil {
					script := releaseScript
					if rand.N(4) == 0 {
						script = acquireScript
					}
					select {
					case <-proxy.CutReply(redistest.Command("EVALSHA", script.Hash()), 1+rand.N(12)):
					case <-ctx.Done():
					case <-time.After(time.Second): // nobody calls it any more
					}
				}
			})
			want := int64(400)
			if !s.Real() { // its scripts are slow
				want = 100
			}
			redistest.Eventually(t, func() bool { return grants.Load() >= want || t.Failed() }, "%d grants", want)
			cancel()
			proxy.Reset()
			wg.Wait()
			redistest.Eventually(t, func() bool { return s.Client().Exists(t.Context(), key).Val() == 0 || t.Failed() }, "nobody has it, and it is free")
		})
	}
}

// A message is heard once, also when a process has just subscribed again: each subscription has a channel of
// its own.
func TestSubscriptionsHaveTheirOwnChannels(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := redistest.NewProxy(t, s.Addr())
	locker := newRedis(proxy.ClientWith(unheeding))
	first := listening(t, locker)
	proxy.Sever()
	redistest.Eventually(t, func() bool { c := locker.bell.listening(); return c != "" && c != first }, "another channel")
	if n := s.Client().Publish(t.Context(), locker.bell.listening(), "x").Val(); n != 1 {
		t.Errorf("%d hear the new channel", n)
	}
	redistest.Eventually(t, func() bool { return s.Client().Publish(t.Context(), first, "x").Val() == 0 }, "the old channel has no subscriber")
}

// Two calls of one release are both answered with the grant that it brought: it is one waiter's.
func TestTwoAnswersToOneRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var both sync.WaitGroup
		both.Add(2)
		answers := make(chan struct{}) // one for each
		locker := newRedis(fakeRedis{run: func(_ *redis.Script, args []any) (any, error) {
			if args[0] != "value" {
				t.Errorf("the grant was told twice, and the second time %q was passed on", args[0])
				return []any{int64(1), int64(0)}, nil
			}
			both.Done()
			both.Wait()
			<-answers
			return []any{int64(2), "7"}, nil
		}})
		p := placeOf(t, "key")
		first, second := locker.join(p.lock, true), locker.join(p.lock, true)
		h := &handover{place: p, value: "value", ttl: time.Minute}
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if err := locker.give(t.Context(), h); err != nil {
					t.Error(err)
				}
			})
		}
		answers <- struct{}{}
		if got := <-first.turns; got.value != h.next || got.token != 7 {
			t.Errorf("the first in line got %+v", got)
		}
		locker.leave(p, first, true)
		answers <- struct{}{}
		calls.Wait()
		if len(second.turns) != 0 {
			t.Errorf("the second in line got the same turn: %+v", <-second.turns)
		}
		locker.leave(p, second, true)
		locker.caller.Wait()
	})
}

// A message is known again after others have come, up to 63 of them.
func TestMessagesThatWereHeard(t *testing.T) {
	t.Parallel()
	b := &bell{}
	last := len(b.heard)
	for i := range 2 * last {
		if b.again(strconv.Itoa(i)) {
			t.Errorf("message %d was heard before", i)
		}
	}
	for i := last; i < 2*last; i++ {
		if !b.again(strconv.Itoa(i)) {
			t.Errorf("message %d was not heard before", i)
		}
	}
}
