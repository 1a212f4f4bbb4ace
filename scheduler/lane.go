package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

// maxCallBytes bounds the jobs in one call, in bytes, unless it is a single job.
const maxCallBytes = 1 << 20

// A lane has one call in flight.
type lane struct {
	*store.Lane
	requests []*request   // of the call in flight
	items    []store.Item // theirs, unless it is one request's

	// Guarded by the combiner's lock.
	busy    bool // a call is in flight, and its outcome isn't known
	trying  bool // the client has it; else there is a pause between two tries
	doubt   bool // an earlier try may have been run, or may be yet
	awaited int  // requests of the call whose callers wait
}

// drain makes calls until no request waits.
func (c *combiner) drain(l *lane) {
	for {
		c.gather()
		items := c.take(l)
		if items == nil {
			return
		}
		fates, err := c.call(l, items)
		next := 0
		for _, r := range l.requests {
			n := len(r.items)
			if !r.left {
				for i := range n {
					if err == nil {
						r.fates[i] = fates.Of(next + i)
					}
				}
				r.err = err
				r.done <- struct{}{} // from here on it is the caller's
			}
			next += n
		}
		if err == nil {
			c.list()
		}
	}
}

// The registry of queues is for people and their tools. It is written again from time to time, as Redis may have lost it.
const (
	listEvery   = 10 * time.Minute
	listTimeout = 2 * time.Second
)

// list puts the queue into the registry, if that was not done lately. It doesn't wait. If it fails, the next time will do: a user
// may lack the right to that key.
func (c *combiner) list() {
	c.mu.Lock()
	due := c.listed.IsZero() || c.began.Sub(c.listed) > listEvery
	if due {
		c.listed = c.began
	}
	c.mu.Unlock()
	if due {
		go func() { // it ends by its timeout
			ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
			defer cancel()
			_ = c.queue.Register(ctx)
		}()
	}
}

// gather yields the processor while goroutines go on submitting requests. One call for all of them is quicker for
// each. There is no timer, so a lone request doesn't wait.
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

// take moves the requests that wait into the lane's next call, as many as fit, and begins the call. If none waits, it
// returns nil and the lane is idle.
func (c *combiner) take(l *lane) []store.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(l.requests)
	l.requests = l.requests[:0]
	count, size := 0, 0
	c.began = time.Now()
	for r := c.first; r != nil; r = c.first {
		count, size = count+len(r.items), size+r.bytes
		if len(l.requests) > 0 && (count > store.MaxBatch || size > maxCallBytes) {
			break
		}
		c.remove(r)
		r.lane = l
		c.bound(r, c.began)
		l.requests = append(l.requests, r)
	}
	l.awaited = len(l.requests)
	if l.awaited == 0 {
		clear(l.items)
		c.idle = append(c.idle, l)
		return nil
	}
	l.Next()
	l.busy, l.trying, l.doubt = true, true, false
	return l.compose()
}

// compose returns the items of the lane's requests.
func (l *lane) compose() []store.Item {
	clear(l.items)
	l.items = l.items[:0]
	if len(l.requests) == 1 {
		return l.requests[0].items
	}
	for _, r := range l.requests {
		l.items = append(l.items, r.items...)
	}
	return l.items
}

// call makes one call. It is no one caller's, so no caller's context ends it, but it ends when all of them have
// left. While its outcome is unknown it is made again, as the same call of the lane. If it stays unknown, the
// lane's next call keeps Redis from running this one later.
func (c *combiner) call(l *lane, items []store.Item) (store.Fates, error) {
	for n := 0; ; n++ {
		fates, err := c.queue.Enqueue(context.Background(), l.Lane, items)
		final, err := c.tried(l, err)
		if final {
			return fates, err
		}
		time.Sleep(backoff(n))
		if items = c.again(l); items == nil {
			return store.Fates{}, err
		}
	}
}

// tried takes the outcome of a try, and reports whether it is final. Then the error is the callers'.
func (c *combiner) tried(l *lane, err error) (final bool, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, store.ErrStopped) {
		c.failed = err
	}
	l.trying = false
	if err == nil {
		l.busy = false
		return true, nil
	}
	verdict := judge(err)
	if maybeRun(err, l.Writes()) {
		l.doubt = true
	}
	if verdict == again && l.awaited > 0 {
		return false, err
	}
	l.busy = false
	if errors.Is(err, store.ErrStale) || is(err, "NOPERM") {
		// Somebody wrote to the lane's key; or a command is denied, which a lane's first call looks for.
		l.Lane = c.queue.NewLane()
	}
	if l.doubt {
		return true, uncertain(explain(err))
	}
	return true, fmt.Errorf(notEnqueued+"%w", explain(err))
}

// again begins another try of the call. It returns nil if nobody waits for it any more.
func (c *combiner) again(l *lane) []store.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.awaited == 0 {
		l.busy = false
		return nil
	}
	l.Rearm()
	l.trying = true
	if !l.doubt && l.awaited < len(l.requests) { // no try was sent, so the call can change
		stay := l.requests[:0]
		for _, r := range l.requests {
			if !r.left {
				stay = append(stay, r)
			}
		}
		clear(l.requests[len(stay):])
		l.requests = stay
		return l.compose()
	}
	if len(l.requests) == 1 {
		return l.requests[0].items
	}
	return l.items
}

// backoff returns how long to wait before the try after n failed ones: 20 ms, doubling up to 1 s, less up
// to a half at random.
func backoff(n int) time.Duration {
	d := min(20*time.Millisecond<<min(n, 10), time.Second)
	return d - rand.N(d/2)
}
