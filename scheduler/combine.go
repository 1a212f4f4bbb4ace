package scheduler

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

const (
	lanesPerQueue = 2 // calls in flight: one is on the way while Redis works on the other

	// A second call is started beside one in flight if this many jobs wait. With fewer, two calls cost more than
	// one. It is also started if the first one has taken so long that it may be stuck.
	secondCallFrom = 32
	slowCall       = 20 * time.Millisecond

	maxQueues = 4096 // queues whose lanes are kept
)

// A combiner sends the requests of many callers to one queue. Each lane has one call in flight. When a lane
// becomes free, all requests that wait go in its next call. A lane has a goroutine only while there is something
// to send. So an idle queue has none, and a lone request doesn't wait for others.
type combiner struct {
	queue   *store.Queue
	timeout time.Duration    // of requests without another bound
	durable store.Durability // what its calls wait for; nothing, but for callers that have asked for it
	fit     atomic.Bool      // the server can do that

	mu       sync.Mutex
	first    *request // waiting, in order
	last     *request
	idle     []*lane
	lanes    []*lane   // all that were opened, idle or not
	began    time.Time // of the latest call
	failed   error     // error of the latest try; nil if it had an outcome
	fails    lapse     // since when tries fail; zero: the latest had an outcome
	listed   time.Time // when the queue was last put into the registry
	asking   bool      // a goroutine asks whether Redis takes writes again
	askUntil time.Time
	timer    *time.Timer
	armed    bool // the timer runs

	waiting atomic.Int32 // jobs that no call has taken
}

// A request is what one caller sends: one job, or a chunk of many. When done has a value, the caller may read the
// result.
type request struct {
	items []store.Item // at most store.MaxBatch
	bytes int
	fates []store.Fate
	met   []met        // jobs that have the unique keys of items; nil if there are none
	full  store.Length // of the queue, if it had no room for an item
	err   error
	done  chan struct{} // takes one value

	// Guarded by the combiner's lock.
	bounded    bool      // by the combiner's timeout, since the caller's context has no deadline
	until      time.Time // when that timeout ends; zero while it isn't set
	lane       *lane     // the lane whose call took it; nil while it waits
	left       bool      // the caller has left, and the call owns the memory
	prev, next *request

	single     [1]store.Item // memory for the items and fates of one job
	singleFate [1]store.Fate
}

// A destination is a queue, and what calls to it wait for.
type destination struct {
	queue   string
	durable store.Durability
	waits   bool // for room. Both kinds of jobs share calls
}

// met is a job that has the unique key of an item.
type met struct {
	item int
	store.Met
}

// lanes returns the combiner of a queue.
func (s *Scheduler) lanes(queue string) *combiner { return s.to(destination{queue: queue}) }

// to returns the combiner of a destination. Calls that wait for replicas have lanes of their own, so that others don't wait with them.
func (s *Scheduler) to(d destination) *combiner {
	d.waits = false
	s.mu.RLock()
	c := s.queues[d]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.queues[d]; c != nil {
		return c
	}
	if len(s.queues) >= maxQueues {
		for other := range s.queues {
			delete(s.queues, other) // requests in it go on; the next enqueue opens new lanes
			break
		}
	}
	c = &combiner{queue: store.New(s.rdb, s.namespace, d.queue), timeout: s.timeout + d.durable.Timeout, durable: d.durable}
	s.queues[d] = c
	s.unseen.add(c.queue)
	return c
}

// submit adds a request to those that wait. It starts a call unless a lane in use will take the request soon.
func (c *combiner) submit(ctx context.Context, r *request) {
	_, deadline := ctx.Deadline()
	c.mu.Lock()
	r.bounded = !deadline
	c.push(r)
	var l *lane
	busy, crowd := len(c.lanes) > len(c.idle), c.waiting.Load() >= secondCallFrom
	var now time.Time
	if busy && (r.bounded || !crowd) {
		now = time.Now()
		c.bound(r, now)
	}
	switch n := len(c.idle); {
	case busy && !crowd && now.Sub(c.began) < slowCall:
		// Requests that come while a call is in flight go in the next one.
	case n > 0:
		l = c.idle[n-1]
		c.idle = c.idle[:n-1]
	case len(c.lanes) < lanesPerQueue:
		l = &lane{Lane: c.queue.NewLane()}
		c.lanes = append(c.lanes, l)
	}
	c.mu.Unlock()
	if l != nil {
		go c.drain(l)
	}
}

// wait waits for the outcome of a request. If ctx ends first, wait gives the request up. Then maybe reports
// whether Redis has the request, or may still get it.
func (c *combiner) wait(ctx context.Context, r *request) (done, maybe bool) {
	select {
	case <-r.done:
		return true, false
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-r.done: // the outcome came before the lock; the lane may have another call by now
		return true, false
	default:
	}
	switch {
	case r.lane == nil:
		c.remove(r)
	case r.lane.in:
		r.lane.quit(r)
		r.err = fmt.Errorf("%w: %w", r.err, ended(ctx))
		return true, false
	case !r.lane.busy: // the outcome is certain to come, without the lock
		<-r.done
		return true, false
	default:
		maybe = c.leave(r)
	}
	return false, maybe
}

// leave gives up a request that a call has taken. It reports whether Redis may have it. A call that was not sent
// yet is made without this request.
func (c *combiner) leave(r *request) bool {
	l := r.lane
	r.left = true
	l.awaited--
	sent := l.doubt
	if l.trying && (!sent || l.awaited == 0) {
		sent = l.Stop() || sent
	}
	return sent
}

// refused returns the error of the jobs of a request for which the queue had no room.
func (c *combiner) refused(r *request) error {
	return fmt.Errorf(notEnqueued+"%w", c.queue.FullError(r.full))
}

// push adds a request to the end of the queue of requests.
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

// remove takes a request out of the queue of requests.
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

// bound sets the end of the time for which a request waits, and the timer. It does nothing if the request has
// an end or the caller's context has a deadline.
func (c *combiner) bound(r *request, now time.Time) {
	if !r.bounded || !r.until.IsZero() {
		return
	}
	r.until = now.Add(c.timeout)
	if c.armed {
		return // it fires earlier, and is then set again
	}
	c.armed = true
	if c.timer == nil {
		c.timer = time.AfterFunc(c.timeout, c.expire)
	} else {
		c.timer.Reset(c.timeout)
	}
}

// expire fails the requests whose time is over.
func (c *combiner) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed = false
	now := time.Now()
	var next time.Time
	over := func(r *request) bool {
		switch {
		case r.until.IsZero() || r.left:
			return false
		case r.until.After(now):
			if next.IsZero() || r.until.Before(next) {
				next = r.until
			}
			return false
		}
		return true
	}
	for r := c.first; r != nil; {
		following := r.next
		if over(r) {
			c.remove(r)
			r.err = c.late(false)
			r.done <- struct{}{}
		}
		r = following
	}
	for _, l := range c.lanes {
		if !l.busy {
			continue
		}
		for _, r := range l.requests {
			if over(r) {
				if l.in {
					l.quit(r)
				} else {
					r.err = c.late(c.leave(r))
				}
				r.done <- struct{}{}
			}
		}
	}
	if !next.IsZero() {
		c.armed = true
		c.timer.Reset(next.Sub(now))
	}
}

// late returns the error of a request whose time is over. maybe means that Redis may have the request.
func (c *combiner) late(maybe bool) error {
	why := context.DeadlineExceeded
	if c.failed != nil {
		why = explain(c.failed)
	}
	if maybe {
		return uncertain(fmt.Errorf("no answer from Redis within %v: %w", c.timeout, why))
	}
	return unsentError{fmt.Errorf("it could not be sent to Redis within %v: %w", c.timeout, why)}
}

// blame adds the reason of a long call to the error of a caller whose context ended, if a call to Redis failed.
func (c *combiner) blame(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		return err
	}
	return fmt.Errorf("%w; the call to Redis failed: %w", err, explain(c.failed))
}
