package zklock

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
)

// If the reply to a grant is lost, the holder finds its own lease.
func TestReplyOfGrantLost(t *testing.T) {
	t.Parallel()
	p, key := newProxy(t, server(t)), newKey()
	l, other := lockerOn(t, Config{}, p.addr()), locker(t, Config{})
	for _, queued := range []bool{false, true} {
		holder := acquire(t, other, key)
		if !queued {
			release(t, holder)
		}
		p.loseReply(opMulti, nil)
		r := acquiring(t.Context(), l, key)
		if queued {
			eventually(t, "a waiter stands in the queue", func() bool { return len(seen(t, other, key).queue) == 1 })
			release(t, holder)
		}
		got := <-r
		if got.err != nil || !p.lostIt() {
			t.Fatalf("a grant whose reply was lost (%v): %v", p.lostIt(), got.err)
		}
		v := seen(t, other, key)
		if v.holder != got.lock.id || v.last != got.lock.Token() || len(v.queue) != 0 || !v.marked {
			t.Errorf("the lock with token %d is seen as %+v", got.lock.Token(), v)
		}
		release(t, got.lock)
	}
}

// If the session has ended before the holder finds its lease, that lease is no lock: TryAcquire may take it over. It is deleted.
func TestSessionEndsBeforeTheGrantIsFound(t *testing.T) {
	t.Parallel()
	p, key := newProxy(t, server(t)), newKey()
	l, other := lockerOn(t, Config{}, p.addr()), locker(t, Config{})
	p.loseReply(opMulti, func() {
		path, _ := pathOf(other.root, key)
		raw(t, other, deletion(path+"/"+markPrefix+seen(t, other, key).holder))
	})
	if got := <-acquiring(t.Context(), l, key); !errors.Is(got.err, lock.ErrLost) || !p.lostIt() {
		t.Fatalf("a grant whose reply was lost (%v), and whose session has ended: %v, want %v", p.lostIt(), got.err, lock.ErrLost)
	}
	release(t, acquire(t, other, key))
}

// The mark of a holder went with its session. Its release frees the lock all the same.
func TestReleaseWithoutTheMark(t *testing.T) {
	t.Parallel()
	l := locker(t, Config{})
	k := acquire(t, l, newKey())
	raw(t, l, deletion(k.markPath()))
	release(t, k)
	if v := seen(t, l, k.Key()); v.lease != "" || v.guarded {
		t.Errorf("left of the lock: %+v", v)
	}
}

// A waiter whose node was created without a reply finds it, and leaves no second one behind.
func TestReplyOfQueueingLost(t *testing.T) {
	t.Parallel()
	p, key := newProxy(t, server(t)), newKey()
	l, other := lockerOn(t, Config{}, p.addr()), locker(t, Config{})
	holder := acquire(t, other, key)
	p.loseReply(opCreate, nil)
	r := acquiring(t.Context(), l, key)
	eventually(t, "the reply is lost", func() bool { return p.lostIt() && len(seen(t, other, key).queue) == 1 })
	release(t, holder)
	got := <-r
	if got.err != nil {
		t.Fatal(got.err)
	}
	if v := seen(t, other, key); len(v.queue) != 0 {
		t.Errorf("left in the queue: %v", v.queue)
	}
	release(t, got.lock)
}

// An extension without a reply is made again. Its validity counts from before the first.
func TestReplyOfExtensionLost(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server(t))
	l := lockerOn(t, Config{TTL: 10 * time.Second}, p.addr())
	k := acquire(t, l, newKey())
	p.loseReply(opMulti, nil)
	before := time.Now()
	if err := k.Extend(t.Context()); err != nil || !p.lostIt() {
		t.Fatalf("an extension whose reply was lost (%v): %v", p.lostIt(), err)
	}
	if late := k.Until().Sub(before.Add(l.ttl)); late > 0 {
		t.Errorf("the validity counts from %v after the first call", late)
	}
	release(t, k)
}

// A release without a reply was a release, if nobody else could have ended the lock.
func TestReplyOfReleaseLost(t *testing.T) {
	t.Parallel()
	p := newProxy(t, server(t))
	l, other := lockerOn(t, Config{}, p.addr()), locker(t, Config{})
	for round := 1; ; round++ {
		key := newKey()
		k := acquire(t, l, key)
		heir := make(chan *zkLock, 1)
		p.loseReply(opMulti, func() { heir <- acquire(t, other, key) })
		err := k.Release(t.Context())
		next := <-heir
		again := errors.Is(err, errAway) && round < 5 // on a slow machine the heir may take the whole time of the release
		if err != nil && !again || !p.lostIt() {
			t.Errorf("a release whose reply was lost (%v): %v", p.lostIt(), err)
		}
		if err := next.Extend(t.Context()); err != nil {
			t.Errorf("the heir's lock: %v", err)
		}
		release(t, next)
		if !again {
			return
		}
	}
}

// If the TTL is over when a repeated release is answered, nobody knows whether the first one freed the lock.
func TestReplyOfReleaseLostForATTL(t *testing.T) {
	t.Parallel()
	p, key := newProxy(t, server(t)), newKey()
	l, other := lockerOn(t, Config{TTL: 3 * time.Second}, p.addr()), locker(t, Config{})
	k := acquire(t, l, key)
	heir := make(chan *zkLock, 1)
	p.loseReply(opMulti, func() {
		heir <- acquire(t, other, key)
		<-time.After(time.Until(k.Until()))
	})
	if err := k.Release(t.Context()); !errors.Is(err, lock.ErrTaken) || !p.lostIt() {
		t.Errorf("a release whose reply was lost for a TTL (%v): %v; want ErrTaken", p.lostIt(), err)
	}
	next := <-heir
	if err := next.Extend(t.Context()); err != nil {
		t.Errorf("the heir's lock: %v", err)
	}
	release(t, next)
}

// A call that is given up is undone when it has happened after all.
func TestAbandonedAcquireLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, op := range []uint32{opCreate, opMulti} {
		p, key := newProxy(t, server(t)), newKey()
		l, other := lockerOn(t, Config{}, p.addr()), locker(t, Config{})
		holder := acquire(t, other, key)
		if op == opMulti {
			release(t, holder)
		}
		ctx, cancel := cancellable(t)
		p.loseReply(op, cancel) // it is done by now, and the caller leaves before the connection breaks
		if r := <-acquiring(ctx, l, key); r.err == nil {
			t.Fatalf("operation %d: a lock was granted though its reply was lost and the caller had left", op)
		}
		eventually(t, "what was left is deleted", func() bool {
			v := seen(t, other, key)
			return len(v.queue) == 0 && (v.lease == "" || op == opCreate)
		})
		if op == opCreate {
			release(t, holder)
		}
	}
}

// A grant that took longer than its TTL isn't one.
func TestGrantTooLate(t *testing.T) {
	t.Parallel()
	p, key := newProxy(t, server(t)), newKey()
	l, other := lockerOn(t, Config{TTL: 50 * time.Millisecond}, p.addr()), locker(t, Config{})
	p.loseReply(opMulti, func() { <-time.After(100 * time.Millisecond) })
	if r := <-acquiring(t.Context(), l, key); r.err == nil {
		t.Error("a lock was granted after its TTL")
	}
	release(t, acquire(t, other, key))
}

// Those who wait make no calls, but for the session's pings. A release wakes one of them.
func TestWaitersAreIdle(t *testing.T) {
	t.Parallel()
	const waiters = 20
	p, key := newProxy(t, server(t)), newKey()
	l, other := lockerOn(t, Config{}, p.addr()), locker(t, Config{})
	holder := acquire(t, other, key)
	results := make(chan result, waiters)
	for range waiters {
		r := acquiring(t.Context(), l, key)
		go func() { results <- <-r }()
	}
	// settled waits until there were so many calls, and none for a second: a call that isn't made gives no signal.
	settled := func(least int) (calls int) {
		var since time.Time
		eventually(t, fmt.Sprintf("there are %d calls, and then none", least), func() bool {
			_, now := p.counts()
			if now != calls {
				calls, since = now, time.Now()
			}
			return calls >= least && time.Since(since) > time.Second
		})
		return calls
	}
	eventually(t, "all stand in the queue", func() bool { return len(seen(t, other, key).queue) == waiters })
	before := settled(4 * waiters) // each looks, joins the queue, looks again and watches
	for range 3 {                  // an extension wakes nobody
		if err := holder.Extend(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if calls := settled(before) - before; calls > 0 {
		t.Errorf("%d waiters made %d calls while the lock was held and extended", waiters, calls)
	}
	release(t, holder)
	first := <-results
	if first.err != nil {
		t.Fatal(first.err)
	}
	// The first looks and takes the lock. The second looks, and watches the lease.
	if calls := settled(before+4) - before; calls > 8 {
		t.Errorf("a release among %d waiters made %d calls", waiters, calls)
	}
	release(t, first.lock)
	for range waiters - 1 {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		release(t, r.lock)
	}
}

// A waiter that saw nothing of the last extension can't take the lock over.
func TestTakeoverLosesToExtension(t *testing.T) {
	t.Parallel()
	l, other, key := locker(t, Config{}), locker(t, Config{}), newKey()
	holder := acquire(t, other, key)
	v := seen(t, l, key)
	if err := holder.Extend(t.Context()); err != nil {
		t.Fatal(err)
	}
	rival := &zkLock{Lock: held.Lock{TTL: l.ttl}, locker: l, parent: t.Context(), key: key, path: holder.path, id: "RIVAL"}
	if err := l.grant(t.Context(), rival, v, "", &old{name: v.lease}); !errors.Is(err, errRaced) {
		t.Errorf("a lease that was extended is taken over: %v", err)
	}
	if err := holder.Extend(t.Context()); err != nil {
		t.Errorf("Extend of the holder: %v", err)
	}
	release(t, holder)
}

// A process that is stopped between its look and its grant doesn't get a lock that somebody else holds, even if the key's
// node was deleted, and created again, and has the same version.
func TestGrantAfterNodeWasMadeAgain(t *testing.T) {
	t.Parallel()
	l, other, key := locker(t, Config{}), locker(t, Config{}), newKey()
	k := acquire(t, other, key)
	release(t, k)
	free := seen(t, l, key)
	raw(t, other, deletion(k.path))
	holder := acquire(t, other, key)
	if now := seen(t, l, key); now.version != free.version {
		t.Fatalf("the versions are %d and %d, so this shows nothing", free.version, now.version)
	}
	rival := &zkLock{Lock: held.Lock{TTL: l.ttl}, locker: l, parent: t.Context(), key: key, path: k.path, id: "RIVAL"}
	if err := l.grant(t.Context(), rival, free, "", nil); !errors.Is(err, errRaced) {
		t.Fatalf("a lock that is held is granted: %v", err)
	}
	if err := holder.Extend(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, holder)
}

// If somebody deletes a lease by hand, and not the guard beside it, waiters get the lock all the same.
func TestGuardWithoutLease(t *testing.T) {
	t.Parallel()
	l, key := locker(t, Config{}), newKey()
	k := acquire(t, l, key)
	raw(t, l, deletion(k.leasePath()))
	if _, err := l.TryAcquire(t.Context(), key); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("TryAcquire: %v; want ErrHeld", err)
	}
	next := acquire(t, l, key)
	if err := k.Release(t.Context()); !errors.Is(err, lock.ErrTaken) {
		t.Errorf("Release of the lock whose lease was deleted: %v", err)
	}
	release(t, next)
	release(t, acquire(t, l, key))
}

// A release that failed is repeated, by the caller and in the background: whether the server did it and its reply was lost for
// as long as a release may take, or it was never sent. The repetition says that it freed the lock, though another has it.
func TestReleaseDuringAnOutage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*servertest.Link){"HoldReplies": (*servertest.Link).HoldReplies, "Cut": (*servertest.Link).Cut} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link, key := servertest.NewLink(t, server(t)), newKey()
			l, other := lockerOn(t, Config{TTL: time.Hour, SessionTimeout: 30 * time.Second}, link.Addr()), locker(t, Config{})
			k := acquire(t, l, key)
			fault(link)
			if err := k.Release(t.Context()); err == nil || errors.Is(err, lock.ErrLost) {
				t.Errorf("a release during the outage: %v", err)
			}
			if name == "Cut" {
				link.Heal()
			}
			next := acquire(t, other, key) // long before the TTL is over
			link.Heal()
			if err := k.Release(t.Context()); err != nil {
				t.Errorf("the repetition: %v", err)
			}
			if err := next.Extend(t.Context()); err != nil {
				t.Errorf("the heir's lock: %v", err)
			}
			release(t, next)
		})
	}
}
