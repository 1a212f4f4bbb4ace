package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/batch"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// Waiters queue twice. Inside the process each key has a line, and only the first in it asks Redis (stand.go).
// In Redis each key has a line of processes (scripts/acquire.lua). A release grants the lock to the first waiter
// of its own process, by the call that releases it. Or it offers the lock to the first process in Redis' line.
// Waiters don't poll. The first one looks now and then for what no message tells: that the holder died, or that
// it is a client of another library.

const (
	// staleAnswer is the age from which an answer of Redis doesn't tell one who comes now that the lock is held.
	staleAnswer = 250 * time.Millisecond
	// silence is for how long Redis may take to answer a look before it is not known any more that the lock is held.
	silence = 500 * time.Millisecond
	// leastAsk is what a look may take at least, however long those before it waited in vain.
	leastAsk = 100 * time.Millisecond
	// leaveWait is how long a waiter that gives up waits until its process is out of the line in Redis.
	leaveWait = 10 * time.Millisecond
)

// A row is a number of grants in which the lock was passed on and the key never was free.
type row struct {
	n     int   // how many, before the latest
	since int64 // the first of them: the server's clock, µs
}

// A turn is what the first in a line waits for.
type turn struct {
	value   string        // the lock may be acquired with it; empty: look whether it is free
	token   int64         // not 0: it has been acquired, with this token,
	start   lease.Instant // by a call that began then
	offered int64         // or else, if not 0, it is ours with this token for the time of an offer,
	at      int64         // which began after we were put in line at this µs of the server's clock,
	ttl     time.Duration // and is so long
	row     row           // what it goes on
	pause   time.Duration // let others be first for so long
}

// A line holds the waiters of this process for one key. The locker's mutex guards all of it.
type line struct {
	waiters []*waiter
	channel string // of the process, in the key's line in Redis; empty: it isn't there
	// answered is when Redis last said something about the lock.
	answered time.Time
	// asked is when the first call since then was sent that has no answer yet; zero: there is none.
	asked time.Time
	down  *outage
}

// An outage tells all waiters of a key that Redis failed the one that asked.
type outage struct {
	over chan struct{} // closed when err is set
	err  error
}

func newOutage() *outage { return &outage{over: make(chan struct{})} }

// failed returns the error, or nil if there is none.
func (o *outage) failed() error {
	select {
	case <-o.over:
		return o.err
	default:
		return nil
	}
}

type waiter struct {
	since time.Time // when it joined
	down  *outage
	// first has one value when the waiter is the first in its line: whether the holder is of this process.
	first chan bool
	// turns has room for one. Only the first waiter is sent any, under the locker's mutex.
	turns chan turn
}

// tryOnce asks for the locks once. The error is ErrHeld if one is held.
func (r *Redis) tryOnce(ctx context.Context, l *redisLock) error {
	_, err := r.try(ctx, l, l.asked, r.askTimeout, spec.NewValue(), "")
	return err
}

// wait waits until the locks are granted, ctx ends or Redis fails.
func (r *Redis) wait(ctx context.Context, l *redisLock) error {
	held, err, told := refusal{ours: true}, ErrHeld, false
	missed := r.missed.Load()
	if !r.waitedFor(l.places) { // else others of this process are first
		channel := r.bell.listening()
		held, err = r.try(ctx, l, l.asked, r.askTimeout, spec.NewValue(), channel)
		told = channel != ""
	}
	for err == ErrHeld { // and nothing more: the waiting goes on
		s := stand{redis: r, lock: l, held: held, told: told, seen: !held.sent.Time().IsZero(), at: held.at, sent: held.sent, missed: missed}
		held, err = s.wait(ctx)
		told = false
	}
	return err
}

// waitedFor reports whether this process has a waiter for one of the places.
func (r *Redis) waitedFor(places []place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(places, func(p place) bool { return r.lines[p.lock] != nil })
}

// join adds a waiter to the end of a line. seen: it has just found the lock held. If nobody of this process has
// lately, the first in line looks. So the waiter learns whether the lock is held or Redis is down.
func (r *Redis) join(key string, seen bool) *waiter {
	now := time.Now()
	w := &waiter{since: now, first: make(chan bool, 1), turns: make(chan turn, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[key]
	if l == nil {
		l = &line{down: newOutage()}
		r.lines[key] = l
		w.first <- false
	} else if !seen && now.Sub(l.answered) > staleAnswer {
		l.waiters[0].look()
	}
	if seen {
		l.answered, l.asked = now, time.Time{}
	}
	w.down = l.down
	l.waiters = append(l.waiters, w)
	return w
}

// leave removes a waiter from its line. A turn that it got and didn't use goes to the next.
func (r *Redis) leave(p place, w *waiter, granted bool) {
	r.mu.Lock()
	l := r.lines[p.lock]
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if granted {
		l.answered, l.asked = time.Now(), time.Time{}
	}
	stands := ""
	if len(l.waiters) == 0 {
		delete(r.lines, p.lock)
		// A holder's release skips its own process, if nobody waits there. So its place may stay. Not in
		// a Cluster, where the release can't know that nobody hears the message.
		if !granted || r.cluster != "" {
			stands = l.channel
		}
	} else if i == 0 {
		l.waiters[0].first <- granted
		if !granted { // it may have been told to look
			l.waiters[0].look()
		}
	}
	var left turn
	select {
	case left = <-w.turns:
	default:
	}
	r.mu.Unlock()
	r.passOn(p, left)
	if stands != "" {
		r.standDown(p, stands+" "+r.owner, granted)
	}
}

// standDown removes the process from the line of a key in Redis. It returns after leaveWait even if Redis doesn't answer.
func (r *Redis) standDown(p place, member string, granted bool) {
	done := make(chan struct{})
	r.caller.Go(func() {
		r.unline(context.Background(), p, member)
		close(done)
	})
	if granted {
		return
	}
	timer := time.NewTimer(leaveWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// unline removes a "<channel> <owner>" from the line of a key in Redis. If it fails, the next offer finds that nobody
// waits, and is passed on.
//
// A waiter that came meanwhile relies on the same place. It looks, and so the process is in line again.
func (r *Redis) unline(ctx context.Context, p place, member string) {
	_, _ = r.caller.Call(ctx, callTimeout, leaveScript, []string{p.line}, []any{member}, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lines[p.lock]; l != nil {
		l.waiters[0].look()
	} else {
		r.missed.Add(1) // it may have asked, and not be in line here yet
	}
}

// standing notes that the call which found the lock held has put the process in line in Redis.
func (r *Redis) standing(p place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[p.lock].channel = r.bell.listening()
}

// asks notes that the first in line sends a look. It returns the look's timeout. All waiters of a key learn together
// that Redis doesn't answer, however often the first of them changes: so the timeout counts from the first look that
// got no answer.
func (r *Redis) asks(p place, channel string) (timeout time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[p.lock]
	if channel != "" {
		l.channel = channel
	}
	if l.asked.IsZero() {
		l.asked = now
	}
	return min(r.askTimeout, max(l.asked.Add(callTimeout).Sub(now), leastAsk))
}

// asked notes the outcome of a look. If Redis failed, all waiters of the key get the error.
func (r *Redis) asked(ctx context.Context, p place, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[p.lock]
	switch {
	case err == nil, errors.Is(err, ErrHeld), errors.Is(err, ErrLost):
		l.answered, l.asked = time.Now(), time.Time{}
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // it says nothing of Redis
	default:
		l.down.err = err
		close(l.down.over)
		l.down, l.asked = newOutage(), time.Time{}
	}
}

// end returns the error of a waiter whose ctx ended. It is ErrHeld if the lock was seen held since the waiter came,
// and Redis has answered since.
func (r *Redis) end(ctx context.Context, p place, w *waiter) error {
	if err := w.down.failed(); err != nil {
		return fmt.Errorf("%w: %w", lease.Ended(ctx), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l, now := r.lines[p.lock], time.Now()
	if quiet := now.Sub(l.asked); !l.asked.IsZero() && (quiet > silence || l.answered.Before(w.since.Add(-staleAnswer))) {
		return fmt.Errorf("%w: %w", lease.Ended(ctx), batch.NoReply(quiet))
	}
	return fmt.Errorf("%w: %w", ErrHeld, lease.Ended(ctx))
}

// passOn releases the lock of a turn that nobody uses. The lock may be another's by now.
func (r *Redis) passOn(p place, t turn) {
	if t.value == "" {
		return
	}
	r.caller.Go(func() {
		_ = r.give(context.Background(), &handover{place: p, value: t.value, token: max(t.token, t.offered), row: t.row, ttl: r.ttl})
	})
}

// tell sends a turn to the first in line. A turn with a value replaces one that was not used yet. One that only
// says "look" replaces none.
func (r *Redis) tell(p place, t turn) {
	r.mu.Lock()
	var before turn
	if l := r.lines[p.lock]; l != nil {
		w := l.waiters[0]
		if t.token != 0 {
			l.answered, l.asked = time.Now(), time.Time{}
		}
		if t.value == "" {
			select {
			case w.turns <- t:
			default:
			}
		} else {
			select {
			case before = <-w.turns:
			default:
			}
			w.turns <- t
			if before.value == t.value { // the same once more, by a copy of an old call: it is passed on by nobody
				before = turn{}
			}
		}
		t = turn{}
	} else if t.value != "" {
		r.missed.Add(1)
	}
	r.mu.Unlock()
	r.passOn(p, before)
	r.passOn(p, t)
}

// look makes a waiter look. The caller has the locker's mutex.
func (w *waiter) look() {
	select {
	case w.turns <- turn{}:
	default:
	}
}

func (r *Redis) look(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.look()
}
