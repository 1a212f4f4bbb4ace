package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// granted is what a goroutine got that waited for a lock.
type granted struct {
	lock Lock
	err  error
}

// waitFor waits for a lock in a goroutine, and not for ever: whoever is passed by finds out
// before a TTL is over.
func waitFor(t *testing.T, locker Locker, key string) <-chan granted {
	c := make(chan granted, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		l, err := locker.Acquire(ctx, key)
		c <- granted{l, err}
	}()
	return c
}

func (g granted) must(t *testing.T) *redisLock {
	t.Helper()
	if g.err != nil {
		t.Fatal(g.err)
	}
	return g.lock.(*redisLock)
}

// inLine waits until n processes stand in the key's line in Redis.
func inLine(t *testing.T, rdb redis.UniversalClient, key string, n int64) {
	t.Helper()
	redistest.Eventually(t, func() bool { return rdb.ZCard(t.Context(), spec.WaitKey(fence(t, key))).Val() == n }, "%d in line", n)
}

// inLocalLine waits until n goroutines stand in the line of their process.
func inLocalLine(t *testing.T, r *Redis, key string, n int) {
	t.Helper()
	redistest.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return n == 0 && r.lines[key] == nil || r.lines[key] != nil && len(r.lines[key].waiters) == n
	}, "%d in the process's line", n)
}

// Inside a process the release grants the lock to the next, in order: one call for both.
func TestRotation(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	proxy := redistest.NewProxy(t, s.Addr())
	locker := newRedis(proxy.ClientWith(unheeding))
	held := acquire(t, locker, key).(*redisLock)
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()} // no turn of others falls into this test
	const n = 10                                             // no more than go in a row
	var order []int
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range n {
		wg.Go(func() {
			l, err := locker.Acquire(t.Context(), key)
			if err != nil {
				t.Error(err)
				return
			}
			order = append(order, i)
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
		inLocalLine(t, locker, key, i+1)
	}
	inLine(t, s.Client(), key, 1) // the first has asked, and nobody else
	acquires := redistest.Command("EVALSHA", acquireScript.Hash())
	releases := redistest.Command("EVALSHA", releaseScript.Hash())
	asked, given := proxy.Count(acquires), proxy.Count(releases)
	release(t, held)
	wg.Wait()
	looks := int(time.Since(begin)/oursLook) * n // each may look when its time is over
	if !slices.IsSorted(order) || len(order) != n {
		t.Errorf("they got in in the order %v", order)
	}
	if slow := proxy.Count(acquires) - asked; slow > 2+looks {
		t.Errorf("%d acquires for %d waiters", slow, n)
	}
	// The last was given to the process's place in the line in Redis, where nobody stood any more.
	if calls := proxy.Count(releases) - given; calls < n+1 || calls > n+3+looks {
		t.Errorf("%d releases for %d grants", calls, n+1)
	}
	redistest.Eventually(t, func() bool { return s.Client().Exists(t.Context(), key).Val() == 0 }, "the lock is free")
}

// Across processes a release offers the lock to who has waited longest.
func TestHandOver(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	rdb := s.Client()
	held := acquire(t, newRedis(rdb), key).(*redisLock)
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()} // no turn of others falls into this test
	var waiting []<-chan granted
	var stood []time.Time
	const n = 3
	for i := range n {
		waiting = append(waiting, waitFor(t, newRedis(s.Client()), key))
		inLine(t, rdb, key, int64(i+1))
		stood = append(stood, time.Now())
	}
	last := held
	for i, w := range waiting {
		release(t, last)
		l := (<-w).must(t)
		if l.row.n != i+2 {
			t.Fatalf("waiter %d got in by a look, not by an offer: %+v", i, l.row)
		}
		if l.Token() <= last.Token() {
			t.Errorf("token %d after %d", l.Token(), last.Token())
		}
		if l.confirm != nil && l.confirm.timer.Stop() { // else it has been extended, or acquired again, on a slow machine
			if latest := stood[i].Add(drifted(maxOffer)); l.Until().After(latest) {
				t.Errorf("waiter %d counts the offer from %v after it stood in line", i, l.Until().Sub(latest))
			}
			l.confirm.timer.Reset(0)
		}
		redistest.Eventually(t, func() bool { return rdb.PTTL(t.Context(), key).Val() > maxOffer }, "the offer is confirmed")
		last = l
	}
	release(t, last)
	if rdb.Exists(t.Context(), key, spec.WaitKey(fence(t, key))).Val() != 0 {
		t.Error("something is left behind")
	}
}

// Whose connection is gone is passed by, and who hangs costs a second, not a TTL.
func TestOffersToTheDead(t *testing.T) {
	t.Parallel()
	for name, hangs := range map[string]bool{"gone": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, key := redistest.Start(t), redistest.Name(t)
			rdb, ctx := s.Client(), t.Context()
			held := acquire(t, newRedis(rdb), key).(*redisLock)
			held.row = row{1, time.Now().Add(time.Hour).UnixMicro()} // no turn of others falls into this test
			channel := redistest.Name(t)
			if hangs { // it is subscribed and never answers
				sub := rdb.Subscribe(ctx, channel)
				defer sub.Close()
				if _, err := sub.Receive(ctx); err != nil {
					t.Fatal(err)
				}
			}
			do(t, rdb, "ZADD", spec.WaitKey(fence(t, key)), 1, channel+" somebody")
			second := waitFor(t, newRedis(s.Client()), key)
			inLine(t, rdb, key, 2)
			release(t, held)
			if hangs {
				if ttl := rdb.PTTL(ctx, key).Val(); ttl <= 0 || ttl > maxOffer {
					t.Fatalf("an unconfirmed offer lives %v", ttl)
				}
			}
			l := (<-second).must(t) // the TTL is 30 s, and it waits no longer than half of that
			if offered := l.row.n == 2; offered == hangs {
				t.Errorf("row %+v", l.row)
			}
			release(t, l)
		})
	}
}

// An offer lives as long as who made it said, whatever the TTL of who takes it.
func TestOfferOfAShorterTTL(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	const ttl = 600 * time.Millisecond
	held := acquire(t, newRedis(rdb), key).(*redisLock)
	held.redis = newRedis(rdb, Config{TTL: ttl}) // which counts from the release
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()}
	waiter := waitFor(t, newRedis(rdb), key)
	inLine(t, rdb, key, 1)
	stood := time.Now()
	release(t, held)
	l := (<-waiter).must(t)
	if l.confirm != nil && l.confirm.timer.Stop() { // else it has been extended on a slow machine
		if latest := stood.Add(drifted(ttl)); l.Until().After(latest) {
			t.Errorf("it promises %v more than the offer has", l.Until().Sub(latest))
		}
		l.confirm.timer.Reset(0)
	}
	release(t, l)
}

// The reply to a release that granted the lock to the next of the process is lost, and the
// client repeats nothing.
func TestLostRotation(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	proxy := redistest.NewProxy(t, s.Addr())
	locker := newRedis(proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries, o.ContextTimeoutEnabled = -1, false }), Config{TTL: time.Hour})
	if err := releaseScript.Load(t.Context(), s.Client()).Err(); err != nil { // else the reply is that it is unknown
		t.Fatal(err)
	}
	held := acquire(t, locker, key).(*redisLock)
	held.row = row{1, time.Now().Add(time.Hour).UnixMicro()}
	waiter := waitFor(t, locker, key)
	inLine(t, s.Client(), key, 1)
	cut := proxy.CutReply(redistest.Command("EVALSHA", releaseScript.Hash()), 1)
	if err := held.Release(t.Context()); err == nil {
		t.Error("the reply was not cut")
	}
	<-cut
	release(t, (<-waiter).must(t))
}

// The token counter is ahead of the server's clock, which was stepped back.
func TestTurnsWithACounterAhead(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	do(t, rdb, "SET", fence(t, key), time.Now().Add(10*time.Second).UnixMicro())
	held := acquire(t, newRedis(rdb), key).(*redisLock)
	waiter := waitFor(t, newRedis(rdb), key)
	inLine(t, rdb, key, 1)
	held.row = row{15, held.Token()}
	start, late := time.Now(), redistest.Lag(t, rdb)
	release(t, held)
	l := (<-waiter).must(t)
	if took := time.Since(start); took-late() >= oursLook {
		t.Errorf("it was not told, and found out by a look after %v", took)
	}
	release(t, l)
}

// After 16 grants in a row the key is free for all, but reserved among ours for the first
// in line; others' clients get their turn.
func TestKeyIsFreeNowAndThen(t *testing.T) {
	t.Parallel()
	rdb, ctx := redistest.Start(t).Client(), t.Context()
	for name, c := range map[string]struct {
		row  row
		free bool
	}{
		"the 15th":    {row{14, time.Now().Add(time.Hour).UnixMicro()}, false},
		"the 16th":    {row{15, time.Now().Add(time.Hour).UnixMicro()}, true},
		"after 20 ms": {row{3, time.Now().Add(-25 * time.Millisecond).UnixMicro()}, true},
	} {
		whileReserved(t, func(inTime func() bool) {
			key := redistest.Name(t)
			locker, others := newRedis(rdb), newRedis(rdb)
			l := acquire(t, locker, key).(*redisLock)
			waiter := waitFor(t, newRedis(rdb), key)
			inLine(t, rdb, key, 1)
			channel := redistest.Name(t)
			sub := rdb.Subscribe(ctx, channel) // stands before it, and never answers
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			do(t, rdb, "ZADD", spec.WaitKey(fence(t, key)), 1, channel+" somebody")
			l.row = c.row
			_ = inTime()
			release(t, l)
			free := rdb.Exists(ctx, key).Val() == 0
			late, err := others.TryAcquire(ctx, key)
			theirs := c.free && rdb.SetNX(ctx, key, "theirs", 10*time.Millisecond).Val()
			if inTime() {
				if free != c.free {
					t.Errorf("%s: free: %v", name, free)
				}
				if !errors.Is(err, ErrHeld) {
					t.Fatalf("%s: it was passed over the line: %v", name, err)
				}
				if c.free && !theirs {
					t.Errorf("%s: another library's client does not get it", name)
				}
			}
			if err == nil {
				_ = late.Release(ctx)
			}
			release(t, (<-waiter).must(t))
			sub.Close()
		})
	}
}

// whileReserved calls f until one call was quick enough to see what is so while a freed lock is reserved, at most 20
// times. inTime reports whether a reservation that was made after its first call still lasts.
func whileReserved(t *testing.T, f func(inTime func() bool)) {
	t.Helper()
	for range 20 {
		var begin time.Time
		seen := false
		f(func() bool {
			if begin.IsZero() {
				begin = time.Now()
			}
			seen = time.Since(begin) < reserved
			return seen
		})
		if seen {
			return
		}
	}
	t.Log("the machine is too busy to see a reservation")
}

// reserved is RESERVED of lib.lua.
const reserved = 60 * time.Millisecond

// A client of another library that looks now and then gets in among eager ones of ours.
func TestOthersGetTheirTurn(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	rdb := s.Client()
	ctx, cancel := context.WithCancel(t.Context())
	var ours atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		locker := newRedis(s.Client())
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := locker.Acquire(ctx, key)
					if err != nil {
						continue // the test is over
					}
					ours.Add(1)
					if err := l.Release(ctx); err != nil && !errors.Is(err, ErrLost) {
						t.Error(err)
					}
				}
			})
		}
	}
	redistest.Eventually(t, func() bool { return ours.Load() > 0 }, "one of ours gets in")
	for theirs := 0; theirs < 3; {
		if rdb.SetNX(ctx, key, "theirs", time.Minute).Val() {
			theirs++
			rdb.Del(ctx, key)
		}
		select {
		case <-time.After(time.Millisecond + rand.N(4*time.Millisecond)):
		case <-t.Context().Done():
			t.Fatalf("another's client got in %d times, ours %d", theirs, ours.Load())
		}
	}
	cancel()
	wg.Wait()
}

// Lost wake-ups: what is given to one who leaves goes to the next, at any moment.
func TestWaitersThatLeave(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	lockers := []*Redis{newRedis(s.Client()), newRedis(s.Client()), newRedis(s.Client())}
	var (
		wg     sync.WaitGroup
		inside atomic.Int32
	)
	tries := 30
	if !s.Real() { // its scripts are slow
		tries = 10
	}
	for i := range 24 {
		wg.Go(func() {
			// Where a call takes longer than that patience, nobody gets in: so it grows until each has.
			in := false
			for n := 0; n < tries || !in && n < 8*tries; n++ {
				patience := 10 * time.Millisecond << min(n/tries, 10)
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond+rand.N(patience))
				l, err := lockers[i%3].Acquire(ctx, key)
				cancel()
				if err != nil { // it may be, too, that a busy Redis answers nobody in time
					if !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "no answer from Redis") {
						t.Error(err)
					}
					continue
				}
				in = true
				if inside.Add(1) != 1 {
					t.Error("two holders")
				}
				inside.Add(-1)
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if !in {
				t.Errorf("waiter %d never got in", i)
			}
		})
	}
	wg.Wait()
	rdb := s.Client()
	start, late := time.Now(), redistest.Lag(t, rdb)
	redistest.Eventually(t, func() bool { return rdb.Exists(t.Context(), key).Val() == 0 }, "the lock is free")
	if took := time.Since(start); took-late() > 3*maxOffer {
		t.Errorf("it was held for %v by nobody", took)
	}
	for _, l := range lockers {
		inLocalLine(t, l, key, 0)
	}
	release(t, acquire(t, lockers[0], key))
}

// Who leaves at the moment when it is its turn passes the lock on.
func TestTurnOfOneWhoLeaves(t *testing.T) {
	t.Parallel()
	rdb, key := redistest.Start(t).Client(), redistest.Name(t)
	locker := newRedis(rdb)
	places, err := placesOf([]string{key})
	if err != nil {
		t.Fatal(err)
	}
	held := acquire(t, locker, key).(*redisLock)
	held.Grant(held.Token() + time.Hour.Microseconds()) // which its row counts from: it is not over, however slow this machine is
	do(t, rdb, "SET", fence(t, key), fmt.Sprint(held.Token(), " ", held.value, " me"))
	w := locker.join(key, false)
	release(t, held)
	if len(w.turns) != 1 || rdb.Exists(t.Context(), key).Val() != 1 {
		t.Fatal("the lock was not given to the first in line")
	}
	locker.leave(places[0], w, false)
	locker.caller.Wait()
	if rdb.Exists(t.Context(), key).Val() != 0 {
		t.Error("nobody has the lock, and it is not free")
	}
}

// What nobody tells is found by looking: memory lost, messages not permitted, connections cut.
func TestWaitersThatAreNotTold(t *testing.T) {
	t.Parallel()
	t.Run("memory lost", func(t *testing.T) {
		t.Parallel()
		s := redistest.New(t)
		acquire(t, newRedis(s.Client()), "key") // never released
		w := waitFor(t, newRedis(s.Client()), "key")
		inLine(t, s.Client(), "key", 1)
		do(t, s.Client(), "FLUSHALL")
		release(t, (<-w).must(t))
	})
	t.Run("no permission to subscribe", func(t *testing.T) {
		t.Parallel()
		s := redistest.New(t)
		do(t, s.Client(), "ACL", "SETUSER", "mute", "on", "nopass", "~*", "+@all", "resetchannels")
		client := func() redis.UniversalClient {
			return s.ClientWith(func(o *redis.UniversalOptions) { o.Username, o.Password = "mute", "x" })
		}
		held := acquire(t, newRedis(client()), "key")
		locker := newRedis(client())
		w := waitFor(t, locker, "key")
		inLocalLine(t, locker, "key", 1)
		release(t, held)
		release(t, (<-w).must(t))
	})
	t.Run("its connections are cut", func(t *testing.T) {
		t.Parallel()
		s, key := redistest.Start(t), redistest.Name(t)
		proxy := redistest.NewProxy(t, s.Addr())
		held := acquire(t, newRedis(s.Client()), key)
		w := waitFor(t, newRedis(proxy.ClientWith(unheeding)), key)
		inLine(t, s.Client(), key, 1)
		proxy.Refuse(true)
		proxy.Sever()
		release(t, held)
		proxy.Refuse(false)
		release(t, (<-w).must(t))
	})
}

// Thundering herds: of all who wait in a process one looks.
func TestOneAsksForAll(t *testing.T) {
	t.Parallel()
	s, key := redistest.Start(t), redistest.Name(t)
	do(t, s.Client(), "SET", key, "theirs")
	proxy := redistest.NewProxy(t, s.Addr())
	locker := newRedis(proxy.ClientWith(unheeding))
	var waiting []<-chan granted
	for i := range 20 {
		waiting = append(waiting, waitFor(t, locker, key))
		inLocalLine(t, locker, key, i+1)
	}
	looks := redistest.Command("EVALSHA", acquireScript.Hash())
	redistest.Eventually(t, func() bool { return proxy.Count(looks) >= 5 }, "some looks")
	begin, before := time.Now(), proxy.Count(looks)
	redistest.Eventually(t, func() bool { return proxy.Count(looks) >= before+5 }, "some more")
	if took := time.Since(begin); took < 3*othersLook {
		t.Errorf("5 looks in %v", took)
	}
	s.Client().Del(t.Context(), key)
	var wg sync.WaitGroup
	for _, w := range waiting {
		wg.Go(func() {
			g := <-w
			if g.err != nil {
				t.Error(g.err)
			} else if err := g.lock.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
