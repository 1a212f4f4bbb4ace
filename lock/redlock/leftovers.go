package redlock

import (
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/signalbox-go/signalbox/lock/internal/batch"
)

const (
	// maxLeftovers bounds how many leftovers are kept for one node.
	maxLeftovers = 1024
	// leftoverTTL is how long after a lock's TTL its release is still tried. A server that was stopped
	// runs its earlier requests when it goes on.
	leftoverTTL = time.Minute
)

// lookTwice returns how much later a release that found nothing is tried again, if an acquire may still
// be under way. By then that acquire refuses itself, if the node's clock is what we take it for.
func lookTwice(r *Locker) time.Duration { return r.nodeTimeout + 2*morePatience }

// A leftover is a lock that nobody wants any more, and that a node may have now or later.
type leftover struct {
	claim *claim
	node  int
	keep  time.Time // the lock must stay held until then
	after time.Time // the release isn't tried before
	drop  time.Time // the release isn't tried after
	// again says that the node was asked for the lock over a connection that broke. It may still take the
	// lock. Then one answer that there is no such lock settles nothing.
	again bool
}

// leftovers releases them in the background, when the node can be reached. The goroutine ends when none
// is left.
type leftovers struct {
	node *node

	mu       sync.Mutex
	list     []*leftover
	sweeping bool
}

// add keeps a leftover. If there are too many, it drops the oldest.
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

// sweep tries to release the leftovers until none is left.
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

// due returns what to try now. If nothing is left, ended says that the sweep has ended.
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

// try sends releases and waits for the answers. It reports whether one of them settled its leftover.
func (l *leftovers) try(batch []*leftover) bool {
	results := make(chan *leftover, len(batch)) // receives nil for one that isn't settled
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
