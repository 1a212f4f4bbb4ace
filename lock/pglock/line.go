package pglock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

// Waiters of one process queue per key. Only the first of them asks PostgreSQL: when it becomes the first, when a
// notification says that the lock was released, and when the holder's time is over. So a release wakes one goroutine of
// each process.

const (
	// expiryJitter spreads the asks of processes that wait for the end of the same lease.
	expiryJitter = 10 * time.Millisecond
	// deafLook is the time between two asks while no notification can come; up to twice as long at random.
	deafLook = 250 * time.Millisecond
	// staleAnswer bounds the age of an answer. An older one doesn't show a new waiter that the lock is held.
	staleAnswer = 250 * time.Millisecond
	// silence bounds how long PostgreSQL may take to answer. After it nobody knows that the lock is still held.
	silence = 500 * time.Millisecond
)

// A line is the queue of this process's waiters for one key. The locker's mutex guards its fields.
type line struct {
	waiters  []*waiter
	answered time.Time // when PostgreSQL last said that the lock is held; zero: never
	asked    time.Time // when the call was sent that has no answer yet; zero: there is none
}

type waiter struct {
	since time.Time
	first chan struct{} // closed when it is the first in its line
	look  chan struct{} // has room for one: ask now
	down  chan error    // has room for one: how PostgreSQL failed the first waiter
}

// wait waits until the lock is granted, ctx ends or PostgreSQL fails.
func (p *Locker) wait(ctx context.Context, l *pgLock) error {
	w, alone := p.join(l.key)
	defer p.leave(l.key, w)
	if alone { // the lock is usually free: then nobody needs to listen
		if _, err := p.ask(ctx, l, false); err != lock.ErrHeld {
			return p.ended(ctx, l.key, w, err)
		}
	}
	select {
	case <-w.first:
	case err := <-w.down:
		return err
	case <-ctx.Done():
		return p.ended(ctx, l.key, w, lease.Ended(ctx))
	}
	p.ear.enter()
	defer p.ear.leave()
	for {
		left, err := p.ask(ctx, l, true)
		if err != lock.ErrHeld { // exactly that
			return p.ended(ctx, l.key, w, err)
		}
		left = max(left, 0) + time.Millisecond + rand.N(expiryJitter)
		if !p.ear.listens() {
			left = min(left, deafLook+rand.N(deafLook))
		}
		timer := time.NewTimer(left)
		select {
		case <-w.look:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return p.ended(ctx, l.key, w, lease.Ended(ctx))
		}
		timer.Stop()
	}
}

// join adds a waiter to the end of a line. It reports whether the line was empty.
func (p *Locker) join(key string) (w *waiter, alone bool) {
	w = &waiter{since: time.Now(), first: make(chan struct{}), look: make(chan struct{}, 1), down: make(chan error, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[key]
	if l == nil {
		l = &line{}
		p.lines[key] = l
		close(w.first)
	} else if w.since.Sub(l.answered) > staleAnswer {
		l.waiters[0].ask() // so the new waiter learns whether the lock is held, or PostgreSQL is down
	}
	l.waiters = append(l.waiters, w)
	return w, len(l.waiters) == 1
}

// leave removes a waiter from its line. The next one becomes the first.
func (p *Locker) leave(key string, w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[key]
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	switch {
	case len(l.waiters) == 0:
		delete(p.lines, key)
	case i == 0:
		l.asked = time.Time{}
		close(l.waiters[0].first)
	}
}

// ask is try by the first waiter of a line. A failure of PostgreSQL is reported to all that wait with it.
func (p *Locker) ask(ctx context.Context, l *pgLock, waits bool) (left time.Duration, err error) {
	p.mu.Lock()
	p.lines[l.key].asked = time.Now()
	p.mu.Unlock()
	left, err = p.try(ctx, l, waits)
	p.mu.Lock()
	defer p.mu.Unlock()
	line := p.lines[l.key]
	switch {
	case err == nil, err == lock.ErrHeld:
		line.answered, line.asked = time.Now(), time.Time{}
	case ctx.Err() != nil: // that shows nothing about PostgreSQL
	default:
		for _, w := range line.waiters[1:] {
			select {
			case w.down <- err:
			default:
			}
		}
	}
	return left, err
}

// ended returns the error of a waiter. If its ctx ended, and the lock was seen held since it came, it wraps ErrHeld.
func (p *Locker) ended(ctx context.Context, key string, w *waiter, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l, now := p.lines[key], time.Now()
	stale := l.answered.Before(w.since.Add(-staleAnswer))
	if quiet := now.Sub(l.asked); !l.asked.IsZero() && (quiet > silence || stale) {
		return fmt.Errorf("%w: PostgreSQL has not answered for %v", err, quiet.Round(time.Millisecond))
	}
	if l.answered.IsZero() {
		return err
	}
	return fmt.Errorf("%w: %w", lock.ErrHeld, err)
}

// lookAll makes the first waiter of every line ask.
func (p *Locker) lookAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		l.waiters[0].ask()
	}
}

// heard makes the first waiter for a key ask. name stands for the key in the notification.
func (p *Locker) heard(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, l := range p.lines {
		if digest(key) == name {
			l.waiters[0].ask()
		}
	}
}

func (w *waiter) ask() {
	select {
	case w.look <- struct{}{}:
	default:
	}
}
