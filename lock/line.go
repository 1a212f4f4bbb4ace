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

// Waiters queue twice. Inside the process each key has a line: its queue of waiters. Only the first of them
// asks Redis (stand.go). In Redis each key has a queue of processes (scripts/acquire.lua).
//
// A release hands the lock over. If a waiter of the same process is next, the call that releases
// the lock also grants it to that waiter. Otherwise it offers the lock to the first process in Redis' queue: a message
// carries the lock's new value, and the process may use it for a short time.
//
// Waiters don't poll. The first one asks Redis now and then for what no message says: that the holder
// died, or that the holder is a client of another library. Such a call is a look.

const (
	// staleAnswer bounds the age of an answer that Redis gave. An older one doesn't show a new waiter that the lock is held.
	staleAnswer = 250 * time.Millisecond
	// silence bounds how long Redis may take to answer a look. After it nobody knows that the lock is still held.
	silence = 500 * time.Millisecond
	// leastAsk is the shortest timeout of a look, however long earlier looks waited in vain.
	leastAsk = 100 * time.Millisecond
	// leaveWait bounds how long a waiter that gives up waits until its process has left the queue in Redis.
	leaveWait = 10 * time.Millisecond
)

// A row is a series of grants: the lock was handed over each time, and the key was never free.
type row struct {
	n     int   // how many grants came before the latest
	since int64 // when the first of them was made: the server's clock, µs
}

// A turn says to the first waiter in a line what it may do. There are four kinds:
//
//   - look: value is empty. Ask Redis whether the lock is free.
//   - value alone: acquire the lock with this value.
//   - grant: token is set. The lock has been acquired for this waiter.
//   - offer: offered is set. The lock belongs to this process for a short time.
type turn struct {
	value   string        // the lock's random value; empty in a look
	token   int64         // of a grant; else 0
	start   lease.Instant // of a grant: before the call that acquired the lock was sent
	offered int64         // the token of an offer; else 0
	at      int64         // of an offer: when this process joined the queue, by the server's clock, µs. The offer's time began later.
	ttl     time.Duration // of an offer: how long it lasts
	row     row           // the row of grants that this turn continues
	pause   time.Duration // wait so long before asking, so that others get the lock first
}

// A line is the queue of this process's waiters for one key. The locker's mutex guards all of its fields.
type line struct {
	waiters []*waiter
	channel string // of this process, as it stands in Redis' queue for the key; empty: it doesn't stand there
	// answered is when Redis last answered a call about the lock.
	answered time.Time
	// asked is when the oldest call was sent that has no answer yet; zero: there is none.
	asked time.Time
	down  *outage
}

// An outage reports to all waiters of a key that Redis failed the one that asked.
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
	since time.Time // when it joined the line
	down  *outage
	// first receives one value when the waiter becomes the first in its line: whether the holder is of this process.
	first chan bool
	// turns has room for one turn. Only the first waiter gets any. They are sent under the locker's mutex.
	turns chan turn
}

// tryOnce asks for the locks once. It returns ErrHeld if one of them is held.
func (r *Redis) tryOnce(ctx context.Context, l *redisLock) error {
	_, err := r.try(ctx, l, l.asked, r.askTimeout, spec.NewValue(), "")
	return err
}

// wait waits until the locks are granted, ctx ends or Redis fails.
func (r *Redis) wait(ctx context.Context, l *redisLock) error {
	refused, err, told := refusal{ours: true}, ErrHeld, false
	missed := r.missed.Load()
	if !r.waitedFor(l.places) { // else other waiters of this process come first
		channel := r.bell.listening()
		refused, err = r.try(ctx, l, l.asked, r.askTimeout, spec.NewValue(), channel)
		told = channel != ""
	}
	for err == ErrHeld { // exactly that, not an error that wraps it: the waiting goes on
		s := stand{redis: r, lock: l, refusal: refused, told: told, seen: !refused.sent.Time().IsZero(), at: refused.at, sent: refused.sent, missed: missed}
		refused, err = s.wait(ctx)
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

// join adds a waiter to the end of a line. seen says that the caller has just found the lock held. If nobody of
// this process has found that lately, the first waiter looks. So a new waiter learns whether the lock is held or Redis is down.
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

// leave removes a waiter from its line. A turn that it received and didn't use is passed on.
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
		// A release of this process skips its own process if nobody waits there. So the process may keep
		// its place in Redis' queue. In a Cluster it may not: there a release can't see that nobody hears the message.
		if !granted || r.cluster != "" {
			stands = l.channel
		}
	} else if i == 0 {
		l.waiters[0].first <- granted
		if !granted { // the turn that this waiter leaves unused may be a look
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

// standDown removes the process from Redis' queue for a key. It returns after leaveWait even if Redis doesn't answer.
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

// unline removes the member "<channel> <owner>" from Redis' queue for a key. If that fails, the next offer
// finds that nobody waits, and is passed on.
//
// A waiter that came meanwhile relies on the removed place. So it looks, which puts the process in the queue again.
func (r *Redis) unline(ctx context.Context, p place, member string) {
	_, _ = r.caller.Call(ctx, callTimeout, leaveScript, []string{p.line}, []any{member}, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lines[p.lock]; l != nil {
		l.waiters[0].look()
	} else {
		r.missed.Add(1) // a waiter may have asked Redis, and not be in the line here yet
	}
}

// queued notes that the process is in Redis' queue: the call that found the lock held has put it there.
func (r *Redis) queued(p place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines[p.lock].channel = r.bell.listening()
}

// asks notes that the first waiter sends a look, and returns the look's timeout. The timeout counts from the
// oldest look without an answer. So all waiters of a key learn at the same time that Redis doesn't answer, however often
// the first of them changes.
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
	case ctx.Err() != nil && errors.Is(err, ctx.Err()): // that shows nothing about Redis
	default:
		l.down.err = err
		close(l.down.over)
		l.down, l.asked = newOutage(), time.Time{}
	}
}

// end returns the error of a waiter whose ctx ended. The error wraps ErrHeld if the lock was seen held since the waiter
// came, and Redis has answered since.
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

// passOn releases the lock of a turn that nobody uses. By then somebody else may hold the lock, which then stays as it is.
func (r *Redis) passOn(p place, t turn) {
	if t.value == "" {
		return
	}
	r.caller.Go(func() {
		_ = r.give(context.Background(), &handover{place: p, value: t.value, token: max(t.token, t.offered), row: t.row, ttl: r.ttl})
	})
}

// tell sends a turn to the first waiter in a line. A turn with a value replaces one that was not used yet. A look
// replaces nothing.
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
			if before.value == t.value { // a copy of an old call sent the same turn again: nobody passes it on
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

// look makes a waiter look. The caller holds the locker's mutex.
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
