package redlock

import (
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/signalbox-go/signalbox/lock/internal/batch"
)

const (
	// maxLeftovers bounds what is kept for one node.
	maxLeftovers = 1024
	// leftoverTTL is for how long beyond a lock's TTL it is tried: a server that was stopped
	// does what it was told before when it goes on.
	leftoverTTL = time.Minute
)

// lookTwice is how much later a release that found nothing is tried again, if an acquire may still
// be under way: it refuses itself by then, if the node's clock is what it was taken for.
func lookTwice(r *Locker) time.Duration { return r.nodeTimeout + 2*morePatience }

// A leftover is a lock that a node may have, now or later, and that nobody wants any more.
type leftover struct {
	claim *claim
	node  int
	keep  time.Time // it must be held until then
	after time.Time // it isn't tried before
	drop  time.Time // it isn't tried any more
	// again: the node lost the connection over which it was asked for the lock, and may
	// yet take it. Then one answer that there is no such lock doesn't settle it.
	again bool
}

// leftovers are released when the node can be reached, in the background, which
// ends when there are none.
type leftovers struct {
	node *node

	mu       sync.Mutex
	list     []*leftover
	sweeping bool
}

// add takes a leftover over. The oldest is given up if there are too many.
func (l *leftovers) add(o *leftover) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.list) >= maxLeftovers {
		l.list = slices.Delete(l.list, 0, 1)
	}
	l.list = append(l.list, o)
	if !l.sweeping {
		l.sweeping = l.node.locker.goes(l.sweep)
	}
}

// sweep tries to release what there is, again and again.
func (l *leftovers) sweep() {
	pauses := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	timer := time.NewTimer(pauses.NextBackOff())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.node.locker.ctx.Done():
			return
		}
		batch, ended := l.due()
		if ended {
			return
		}
		if l.try(batch) {
			pauses.Reset()
		}
		timer.Reset(pauses.NextBackOff())
	}
}

// due is what to try now. If nothing is left, the sweep has ended.
func (l *leftovers) due() (next []*leftover, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.list = slices.DeleteFunc(l.list, func(o *leftover) bool { return now.After(o.drop) })
	for _, o := range l.list {
		if len(next) < batch.Max && now.After(o.after) {
			next = append(next, o)
		}
	}
	if len(l.list) == 0 {
		l.list, l.sweeping = nil, false
	}
	return next, !l.sweeping
}

// try sends releases, waits for the answers, and reports whether one of them was settled.
func (l *leftovers) try(batch []*leftover) bool {
	results := make(chan *leftover, len(batch)) // nil: not settled
	for _, o := range batch {
		l.node.wire.send(o.claim.releaseRequest(o.keep, func(out outcome) {
			status, err := parseStatus(out)
			o.claim.settle(o.node, status, err)
			switch {
			case err != nil:
				o = nil
			case o.again && status != statusDone:
				o.again, o.after = false, time.Now().Add(lookTwice(l.node.locker))
				o = nil
			}
			results <- o
		}))
	}
	settled := map[*leftover]bool{}
	for range batch {
		settled[<-results] = true
	}
	delete(settled, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(o *leftover) bool { return settled[o] })
	return len(settled) > 0
}
