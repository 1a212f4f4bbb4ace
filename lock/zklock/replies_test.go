package zklock

import (
	"testing"
	"time"
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
	p, key := newProxy(t, server(t)), newKey()
	l, other := lockerOn(t, Config{}, p.addr()), locker(t, Config{})
	k := acquire(t, l, key)
	heir := make(chan *zkLock, 1)
	p.loseReply(opMulti, func() { heir <- acquire(t, other, key) })
	if err := k.Release(t.Context()); err != nil || !p.lostIt() {
		t.Errorf("a release whose reply was lost (%v): %v", p.lostIt(), err)
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
	l, other := lockerOn(t, Config{SessionTimeout: time.Second}, p.addr()), locker(t, Config{})
	holder := acquire(t, other, key)
	results := make(chan result, waiters)
	for range waiters {
		r := acquiring(t.Context(), l, key)
		go func() { results <- <-r }()
	}
	settled := func() (calls int) {
		// Several pings without a call between them: all have done what they do.
		eventually(t, "the waiters are quiet", func() bool {
			pings, before := p.counts()
			for {
				now, after := p.counts()
				if after != before {
					return false
				}
				if now >= pings+3 {
					calls = after
					return true
				}
				<-time.After(10 * time.Millisecond)
			}
		})
		return calls
	}
	eventually(t, "all stand in the queue", func() bool { return len(seen(t, other, key).queue) == waiters })
	before := settled()
	release(t, holder)
	first := <-results
	after := settled()
	// The first looks and takes the lock. The second looks, and looks at the lease.
	if calls := after - before; calls > 8 {
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
