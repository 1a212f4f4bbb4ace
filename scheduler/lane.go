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

// maxCallBytes bounds the size of the jobs in one call, in bytes. A single larger job is still sent.
const maxCallBytes = 1 << 20

// A lane makes one call at a time.
type lane struct {
	*store.Lane
	requests []*request   // in the call in flight
	items    []store.Item // the items of all requests; unused if there is only one request
	deadline time.Time    // until when the call waits to be durable; zero before

	// Guarded by the combiner's lock.
	busy    bool // a call is in flight, and its outcome isn't known
	trying  bool // the client has the call; false in the pause between two tries
	doubt   bool // an earlier try may have been run, or may still be run
	awaited int  // requests of the call whose callers still wait
	in      bool // the outcome is known, and the call waits until it is durable
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
		ran := err == nil || errors.Is(err, ErrNotDurable)
		if ran {
			l.handOver(fates)
		}
		for _, r := range l.requests {
			if !r.left {
				r.err = err
				r.done <- struct{}{} // the caller owns it from here on
			}
		}
		if ran {
			c.list(fates.Anew())
		}
	}
}

// handOver gives the requests of the lane's call their outcomes, but for those whose callers have left.
func (l *lane) handOver(fates store.Fates) {
	next, others := 0, fates.Met()
	for _, r := range l.requests {
		if !r.left {
			r.met, r.full = nil, fates.Full()
		}
		for i := range r.items {
			fate := fates.Of(next)
			next++
			if !r.left {
				r.fates[i] = fate
			}
			if fate == store.MetKey || fate == store.Updated {
				if !r.left {
					r.met = append(r.met, met{i, others[0]})
				}
				others = others[1:]
			}
		}
	}
}

// The registry of queues is for people and their tools. It is written again from time to time, since Redis may lose it.
const (
	listEvery   = 10 * time.Minute
	listTimeout = 2 * time.Second
)

// list writes the queue into the registry, unless that was done lately. If the queue is new, it does so in any case: an operator may have removed
// the queue since. It doesn't wait. A failure has no effect: the user may lack the right to that key, and there is a next time.
func (c *combiner) list(anew bool) {
	c.mu.Lock()
	due := anew || c.listed.IsZero() || c.began.Sub(c.listed) > listEvery
	if due {
		c.listed = c.began
	}
	c.mu.Unlock()
	if due {
		go func() { // its timeout ends it
			ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
			defer cancel()
			_ = c.queue.Presence().Register(ctx)
		}()
	}
}

// gather yields the processor while goroutines still submit requests. One call for all of them is quicker for each.
// There is no timer, so a lone request doesn't wait.
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

// take moves waiting requests into the lane's next call, as many as fit, and begins the call. If no request waits, it
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

// call makes one call. It belongs to several callers. So it doesn't end with one caller's context, but only when all
// callers have left. While its outcome is unknown it is repeated, as the same call of the lane. If the outcome stays
// unknown, the lane's next call keeps Redis from running this one later.
func (c *combiner) call(l *lane, items []store.Item) (store.Fates, error) {
	l.deadline = time.Time{}
	if c.durable.AOF {
		if err := c.refusal(); err != nil {
			c.mu.Lock()
			l.busy, l.trying = false, false
			c.mu.Unlock()
			return store.Fates{}, err
		}
	}
	for n := 0; ; n++ {
		began := time.Now()
		fates, err := c.queue.Enqueue(context.Background(), l.Lane, items)
		final, err := c.tried(l, began, fates, err)
		if final && err == nil && c.durable != (store.Durability{}) {
			final, err = c.confirm(l)
		}
		if final {
			return fates, err
		}
		time.Sleep(backoff(n))
		if items = c.again(l); items == nil {
			return store.Fates{}, err
		}
	}
}

// tried records the outcome of a try. It reports whether the outcome is final. Then the error is for the callers.
func (c *combiner) tried(l *lane, began time.Time, fates store.Fates, err error) (final bool, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, store.ErrStopped) {
		c.failed = err
		c.fails.note(err, began)
	}
	l.trying = false
	if err == nil {
		if l.busy = c.durable != (store.Durability{}); l.busy {
			l.enter(fates, &undurable{asked: c.durable})
		}
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
		// ErrStale: another client wrote to the lane's key. NOPERM: a command is denied, and a lane's first call checks
		// for that.
		l.Lane = c.queue.NewLane()
	}
	if l.doubt {
		return true, uncertain(explain(err))
	}
	return true, fmt.Errorf(notEnqueued+"%w", explain(err))
}

// again begins another try of the call. It returns nil if all callers have left.
func (c *combiner) again(l *lane) []store.Item {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.awaited == 0 {
		l.busy = false
		return nil
	}
	l.Rearm()
	l.trying = true
	if !l.doubt && l.awaited < len(l.requests) { // no try was sent, so the call can still change
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

// backoff returns how long to wait after n failed tries: 20 ms, doubled up to 1 s, minus up to a half at random.
func backoff(n int) time.Duration {
	d := min(20*time.Millisecond<<min(n, 10), time.Second)
	return d - rand.N(d/2)
}

// A lapse says since when calls fail. The zero value says that none does.
type lapse struct {
	since, last time.Time
	why         string
	outdated    bool      // the queue's layout isn't one of this release: see misfit
	away        bool      // Redis didn't answer, or refuses all writes: see store.Queue.TakesWrites
	taken       time.Time // Redis took writes again when a question was sent then, and no call has succeeded since; zero: it isn't so
	again       bool      // the last call began after that, and Redis wasn't seen to refuse writes since: they are not what fails
}

// note takes the outcome of a try that began at a time.
func (f *lapse) note(err error, began time.Time) {
	if err == nil {
		*f = lapse{}
		return
	}
	if f.since.IsZero() || began.Sub(f.last) >= failureCounts { // the one before was forgotten
		f.since = time.Now()
	}
	f.last = time.Now()
	f.why, f.outdated, f.away = publicReason(err), false, unwritable(err)
	if layout := misfit(err); layout != nil {
		f.why, f.outdated = layout.Reason(), true
	}
	f.again = !f.taken.IsZero() && began.After(f.taken)
}

// answered takes the answer to a question whether Redis takes writes, which was sent at a time. If it does, the failures of calls before are those of an
// outage that is over. If a call fails after that, as one whose script takes too long, only a call that succeeds ends it, or an outage that is seen to end.
func (f *lapse) answered(err error, asked time.Time) {
	switch {
	case err != nil:
		f.again = false
	case f.away && !f.again && f.last.Before(asked):
		*f = lapse{taken: asked}
	}
}
