package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

const (
	// failedTries bounds the tries of an Acquire while too few nodes answer.
	failedTries = 3
	firstPause  = 5 * time.Millisecond
	mostPause   = 150 * time.Millisecond // up to half of that is added at random
	// expiryJitter spreads the tries of waiters that wait for the end of the same TTL.
	expiryJitter = 10 * time.Millisecond
)

// try makes one attempt. It fills in l if the lock is granted.
func (r *Locker) try(ctx context.Context, l *heldLock) error {
	if ctx.Err() != nil {
		return lease.Ended(ctx)
	}
	if r.ctx.Err() != nil {
		return errClosed
	}
	all := !r.met.Load()
	c := r.claim(l.key, l.record)
	start := lease.Now()
	r.wake(start.SleptSince(r.made))
	token, err := newElection(c).run(ctx, all)
	if all && ctx.Err() == nil {
		r.met.Store(true)
	}
	if err == nil {
		l.claim = c
		l.Grant(token)
		if !l.Validity.Extend(start, r.ttl) {
			err = fmt.Errorf("%w: it was granted with no validity left: the nodes took %v of a TTL of %v", lock.ErrLost, time.Since(start.Time()), r.ttl)
		} else {
			c.complete(start.Time().Add(r.ttl))
		}
	}
	if err != nil {
		r.drop(ctx, c)
	}
	return err
}

// drop gives a failed attempt up at all nodes. It waits for those that said that they have the lock. So nothing
// stays on nodes that can be reached. The others release it in the background, when they
// can be reached.
func (r *Locker) drop(ctx context.Context, c *claim) {
	rulings := make(chan ruling, len(r.nodes))
	_, held, _ := c.giveUp(time.Time{}, rulings)
	if held == 0 || ctx.Err() != nil {
		return
	}
	timer := time.NewTimer(r.nodeTimeout)
	defer timer.Stop()
	for range held {
		select {
		case <-rulings:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// wait tries until the lock is granted, the tries are used up or ctx ends.
func (r *Locker) wait(ctx context.Context, l *heldLock) (err error) {
	s := &seek{locker: r, spot: r.lines.join(l.key)}
	defer func() { r.lines.leave(l.key, s.spot, err == nil) }()
	if err := s.line(ctx); err != nil {
		return err
	}
	for {
		err := r.try(ctx, l)
		if err == nil {
			return nil
		}
		if err := s.again(ctx, err); err != nil {
			return err
		}
	}
}

// A seek is one Acquire on its way to the lock.
type seek struct {
	locker *Locker
	spot   *spot
	tries  int
	failed int   // failed tries, since the lock was last seen held
	last   error // the outcome of the last try; nil: unknown
	pauses *backoff.ExponentialBackOff
}

// line returns when it is time for the first try.
func (s *seek) line(ctx context.Context) error {
	if s.spot.first == nil {
		return nil
	}
	select {
	case granted := <-s.spot.first:
		s.last = s.locker.lines.held(s.spot)
		if granted { // to a goroutine of this process, whose release wakes us
			return s.pause(ctx, mostPause/2+rand.N(mostPause))
		}
		return nil
	case <-ctx.Done():
		return after(s.locker.lines.held(s.spot), lease.Ended(ctx))
	case <-s.locker.ctx.Done():
		return errClosed
	}
}

// again handles a try that failed. It returns nil when it is time for another try. Else it returns the error to give
// up with.
func (s *seek) again(ctx context.Context, err error) error {
	r := s.locker
	held := errors.Is(err, lock.ErrHeld)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		if held {
			return err // it says everything
		}
		return after(s.last, err)
	}
	s.tries++
	s.last = err
	r.lines.saw(s.spot, held)
	var q *lock.QuorumError
	switch {
	case held:
		s.failed = 0
	case errors.As(err, &q), errors.Is(err, lock.ErrLost):
		if s.failed++; r.tries == 0 && s.failed == failedTries || final(q, len(r.nodes)) {
			return err
		}
	default:
		return err
	}
	if s.tries == r.tries {
		return err
	}
	return s.pause(ctx, s.backoff(err))
}

// backoff returns the pause before the next try. It is random, and longer each time, but no longer than the TTLs
// of the holder's locks.
func (s *seek) backoff(err error) time.Duration {
	if s.pauses == nil {
		s.pauses = backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstPause), backoff.WithMultiplier(2),
			backoff.WithMaxInterval(mostPause), backoff.WithRandomizationFactor(0.5), backoff.WithMaxElapsedTime(0))
	}
	d := s.pauses.NextBackOff()
	if h, ok := errors.AsType[heldByOther](err); ok && h.for_ >= 0 {
		d = min(d, h.for_+time.Millisecond+rand.N(expiryJitter))
	}
	return d
}

// pause returns nil after d, or when this process released the lock.
func (s *seek) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case others := <-s.spot.wake:
			if others == 0 {
				return nil
			}
			timer.Reset(others)
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return after(s.last, lease.Ended(ctx))
		case <-s.locker.ctx.Done():
			return errClosed
		}
	}
}

// after returns how the waiting ended. last is the error of the last try, and nil if there was none.
func after(last, end error) error {
	if last == nil {
		return end
	}
	return fmt.Errorf("%w: %w", last, end)
}
