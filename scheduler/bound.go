package scheduler

import (
	"context"
	"fmt"
	"time"
)

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
