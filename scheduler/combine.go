package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

const (
	lanesPerQueue = 2 // calls in flight: one is on the way while Redis works on the other

	// A second call joins one in flight when so many jobs wait, as two calls with half of the jobs
	// each cost more than one with all of them; or when the first takes so long that it may be stuck.
	secondCallFrom = 32
	slowCall       = 20 * time.Millisecond

	maxCallBytes = 1 << 20 // of jobs in one call, unless it is a single job
	maxQueues    = 4096    // whose lanes are kept
	patience     = 10 * time.Second
)

// A combiner sends the requests of many callers to one queue: whatever is waiting when a
// lane is free goes in one call. A goroutine lives as long as there is something to
// send, so that idle queues have none, and a lone request doesn't wait for others.
type combiner struct {
	queue *store.Queue

	mu     sync.Mutex
	first  *request // waiting, in order
	last   *request
	idle   []*lane
	opened int
	began  time.Time // of the latest call
	failed error     // why the latest call has no outcome yet, or got none

	waiting atomic.Int32 // jobs in the line
}

// A lane has one call in flight.
type lane struct {
	*store.Lane
	requests []*request   // of the call in flight
	items    []store.Item // theirs, unless it is one request's
}

// A request is what one caller sends: one job, or a chunk of many. Its result is the caller's
// to read after done.
type request struct {
	items []store.Item // at most store.MaxBatch
	bytes int
	fresh []bool
	err   error
	done  chan struct{} // takes one value

	taken      bool // by a call; guarded by the combiner's lock, as are the next two
	prev, next *request
	single     [1]store.Item // the room for items and fresh of one job
	singleNew  [1]bool
}

// lanes returns the combiner of a queue.
func (s *Scheduler) lanes(queue string) *combiner {
	s.mu.RLock()
	c := s.queues[queue]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.queues[queue]; c != nil {
		return c
	}
	if len(s.queues) >= maxQueues {
		for other := range s.queues {
			delete(s.queues, other) // who uses it goes on; the next one opens new lanes
			break
		}
	}
	c = &combiner{queue: store.New(s.rdb, queue)}
	s.queues[queue] = c
	return c
}

// submit puts a request in the line and makes sure that somebody sends it.
func (c *combiner) submit(r *request) {
	c.mu.Lock()
	c.push(r)
	var l *lane
	switch n := len(c.idle); {
	case c.opened > n && c.waiting.Load() < secondCallFrom && time.Since(c.began) < slowCall:
		// What comes while a call is in flight goes with the next.
	case n > 0:
		l = c.idle[n-1]
		c.idle = c.idle[:n-1]
	case c.opened < lanesPerQueue:
		l = &lane{Lane: c.queue.NewLane()}
		c.opened++
	}
	c.mu.Unlock()
	if l != nil {
		go c.drain(l)
	}
}

// wait waits for a request's end. When ctx ends first, a request that still stands in the line is
// withdrawn, and one that a call has taken is left to it: sent tells which.
func (c *combiner) wait(ctx context.Context, r *request) (done, sent bool) {
	select {
	case <-r.done:
		return true, true
	case <-ctx.Done():
	}
	c.mu.Lock()
	sent = r.taken
	if !sent {
		c.remove(r)
	}
	c.mu.Unlock()
	select {
	case <-r.done:
		return true, true
	default:
		return false, sent
	}
}

// drain makes calls until nobody waits.
func (c *combiner) drain(l *lane) {
	for {
		c.gather()
		items := c.take(l)
		if items == nil {
			return
		}
		fresh, err := c.call(l, items)
		for _, r := range l.requests {
			if n := len(r.items); err == nil {
				copy(r.fresh, fresh[:n])
				fresh = fresh[n:]
			}
			r.err = err
			r.done <- struct{}{} // from here on it is the caller's
		}
	}
}

// gather lets goroutines that are about to submit do so, as long as they come. A single call
// for all of them is quicker for each. There is no timer: alone, nobody waits.
func (c *combiner) gather() {
	for n := c.waiting.Load(); ; {
		runtime.Gosched()
		now := c.waiting.Load()
		if now <= n || now >= store.MaxBatch {
			return
		}
		n = now
	}
}

// take takes what waits into the lane's next call, as far as it fits. If nothing waits, the lane
// is idle from then on.
func (c *combiner) take(l *lane) []store.Item {
	clear(l.requests)
	clear(l.items)
	l.requests, l.items = l.requests[:0], l.items[:0]
	c.mu.Lock()
	defer c.mu.Unlock()
	count, size := 0, 0
	c.began = time.Now()
	for r := c.first; r != nil; r = c.first {
		count, size = count+len(r.items), size+r.bytes
		if len(l.requests) > 0 && (count > store.MaxBatch || size > maxCallBytes) {
			break
		}
		c.remove(r)
		r.taken = true
		l.requests = append(l.requests, r)
	}
	switch len(l.requests) {
	case 0:
		c.idle = append(c.idle, l)
		return nil
	case 1:
		return l.requests[0].items
	}
	for _, r := range l.requests {
		l.items = append(l.items, r.items...)
	}
	return l.items
}

// call makes one call. It is no one caller's, so no caller's context ends it. While its outcome is
// unknown it is made again, as the same call of the lane. If it stays unknown, the lane's
// next call keeps Redis from running this one later.
func (c *combiner) call(l *lane, items []store.Item) ([]bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l.Next()
	sent := false
	for n := 0; ; n++ {
		fresh, err := c.queue.Enqueue(ctx, l.Lane, items)
		c.note(err)
		if err == nil {
			return fresh, nil
		}
		if errors.Is(err, store.ErrStale) { // somebody wrote to the lane's key
			l.Lane = c.queue.NewLane()
			return nil, uncertain(err)
		}
		switch judge(err) {
		case refused:
			if sent {
				return nil, uncertain(explain(err))
			}
			return nil, explain(err)
		case hidden:
			return nil, uncertain(explain(err))
		case unknown:
			sent = true
		}
		if !pause(ctx, n) {
			return nil, uncertain(fmt.Errorf("no answer from Redis within %v: %w", patience, err))
		}
	}
}

func (c *combiner) note(err error) {
	c.mu.Lock()
	c.failed = err
	c.mu.Unlock()
}

// blame adds to the error of a caller who didn't wait any longer why there was so much to wait for.
func (c *combiner) blame(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		return err
	}
	return fmt.Errorf("%w; the call to Redis failed: %w", err, explain(c.failed))
}

func uncertain(err error) error { return fmt.Errorf("%w: %w", ErrUncertain, err) }

// pause waits before the call after n failed ones: 20 ms, doubling up to 1 s, less up to a
// half at random. It returns false if ctx ended.
func pause(ctx context.Context, n int) bool {
	t := time.NewTimer(backoff(n))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func backoff(n int) time.Duration {
	d := min(20*time.Millisecond<<min(n, 10), time.Second)
	return d - rand.N(d/2)
}

func (c *combiner) push(r *request) {
	c.waiting.Add(int32(len(r.items)))
	r.prev, r.next = c.last, nil
	if c.last == nil {
		c.first = r
	} else {
		c.last.next = r
	}
	c.last = r
}

func (c *combiner) remove(r *request) {
	c.waiting.Add(-int32(len(r.items)))
	if r.prev == nil {
		c.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		c.last = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}
