package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Who waits for a lock stands in a line: in this process in that of the key, of which only
// the first asks Redis, and there in that of all processes. A release passes the lock to
// the first of its own process, by the call that releases it, or offers it to the first of
// the next process, which confirms that it is there. Nobody polls, but to notice
// what nobody tells: that the holder died, or is a client of another library.

const (
	// A look finds what nobody tells: usually at the end of the holder's TTL, or after:
	oursLook   = 750 * time.Millisecond // with jitter to 1.25 s, if the holder tells
	othersLook = 50 * time.Millisecond  // with jitter to 250 ms, if it doesn't
	// expiryJitter spreads those who wait for the same TTL to end.
	expiryJitter = 10 * time.Millisecond
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
	start   Instant       // by a call that began then
	offered int64         // or else, if not 0, it is ours with this token for the time of an offer,
	at      int64         // which began after we were put in line at this µs of the server's clock,
	ttl     time.Duration // and is so long
	row     row           // what it goes on
	pause   time.Duration // let others be first for so long
}

// A line has those of this process who wait for a key.
type line struct{ waiters []*waiter }

type waiter struct {
	// first tells it that it is, and whether the holder is of this process.
	first chan bool
	// turns has room for one. Only the first gets any, with the lockers' mutex held.
	turns chan turn
}

// tryOnce asks for the locks and takes no for an answer.
func (r *Redis) tryOnce(ctx context.Context, l *redisLock) error {
	_, err := r.try(ctx, l, l.asked, newValue(), "")
	return err
}

// wait waits until the locks are granted, ctx ends or Redis fails.
func (r *Redis) wait(ctx context.Context, l *redisLock) error {
	held, err, told := refusal{ours: true}, ErrHeld, false
	missed := r.missed.Load()
	if !r.waitedFor(l.places) { // else it is not our turn
		channel := r.bell.listening()
		held, err = r.try(ctx, l, l.asked, newValue(), channel)
		told = channel != ""
	}
	for err == ErrHeld { // and nothing more: the waiting goes on
		s := stand{redis: r, lock: l, held: held, told: told, at: held.at, sent: held.sent, missed: missed}
		held, err = s.wait(ctx)
		told = false
	}
	return err
}

// waitedFor tells whether somebody stands in a line of this process.
func (r *Redis) waitedFor(places []place) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(places, func(p place) bool { return r.lines[p.lock] != nil })
}

// join puts a waiter at the end of a line.
func (r *Redis) join(key string) *waiter {
	w := &waiter{first: make(chan bool, 1), turns: make(chan turn, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lines[key]
	if l == nil {
		l = &line{}
		r.lines[key] = l
		w.first <- false
	}
	l.waiters = append(l.waiters, w)
	return w
}

// leave takes a waiter out of its line. What it was given and didn't use, it passes on.
func (r *Redis) leave(p place, w *waiter, granted bool) {
	r.mu.Lock()
	l := r.lines[p.lock]
	i := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, i, i+1)
	if len(l.waiters) == 0 {
		delete(r.lines, p.lock)
	} else if i == 0 {
		l.waiters[0].first <- granted
		if !granted { // what it was told goes with it
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
}

// passOn gives away a turn that nobody uses. It may be one of a lock that is no longer free.
func (r *Redis) passOn(p place, t turn) {
	if t.value == "" {
		return
	}
	r.caller.done.Go(func() { _ = r.give(context.Background(), p, t.value, t.row, 0) })
}

// tell gives a turn to the first in line. One that was there before it is void, unless the
// new one says no more than "look".
func (r *Redis) tell(p place, t turn) {
	r.mu.Lock()
	var before turn
	if l := r.lines[p.lock]; l != nil {
		w := l.waiters[0]
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
		}
		t = turn{}
	} else if t.value != "" {
		r.missed.Add(1)
	}
	r.mu.Unlock()
	r.passOn(p, before)
	r.passOn(p, t)
}

// look has a waiter look. The lockers' mutex is held.
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

// give releases a lock with this value, to the first in line if there is one. keep is how
// much longer it must be held.
func (r *Redis) give(ctx context.Context, p place, value string, s row, keep time.Duration) error {
	owner := any("")
	switch {
	case keep > 0:
	case r.waitedFor([]place{p}):
		owner = r.ownerArg
	case s.n == 0: // it was not passed on, so most likely nobody waits
		if done, err := r.free(ctx, p, value); done || err != nil {
			return err
		}
	}
	next := turn{value: newValue(), row: row{s.n + 1, s.since}, start: Now()}
	reply, err := r.caller.call(context.WithoutCancel(ctx), callTimeout, releaseScript,
		[]string{p.lock, p.fence, p.line},
		[]any{
			value, next.value, owner, r.ttlArg, r.offerArg,
			s.n, s.since, max(0, (keep + time.Millisecond - 1).Milliseconds()), r.cluster,
		},
		func(_ context.Context, reply any, err error) {
			g, _ := parseReleased(reply)
			if g.token != 0 || err != nil && owner != "" {
				r.tell(p, next) // it was granted to us, or may have been, and nobody heard of it
			}
		})
	if isWrongType(err) {
		return ErrTaken // somebody put another type in its place
	}
	if err != nil {
		return err
	}
	g, err := parseReleased(reply)
	if g.token != 0 {
		next.token = g.token
		r.tell(p, next)
	} else {
		r.tell(p, turn{pause: g.pause})
	}
	return err
}

// free releases a lock that nobody waits for.
func (r *Redis) free(ctx context.Context, p place, value string) (done bool, err error) {
	reply, err := r.caller.call(context.WithoutCancel(ctx), callTimeout, freeScript, []string{p.lock, p.line}, []any{value}, nil)
	if done = reply == int64(1); done && err == nil {
		r.tell(p, turn{}) // who has come meanwhile
	}
	return done, err
}

// A stand is the time that somebody stands in the line of one key.
type stand struct {
	redis *Redis
	lock  *redisLock
	held  refusal // how the locks were found last
	told  bool    // Redis has our channel and tells when the lock is free
	at    int64   // when it put us in line, by its clock; 0: unknown
	sent  Instant // and the call that did was sent then
	// missed is how many turns of this process were missed before that call.
	missed int64
}

// wait returns when the locks are granted, with ErrHeld when it is another key's lock that
// is in the way, and with another error when ctx ends or Redis fails.
func (s *stand) wait(ctx context.Context) (held refusal, err error) {
	r, key := s.redis, s.held.key
	p := s.lock.places[key]
	w := r.join(p.lock)
	defer func() { r.leave(p, w, err == nil) }()
	if r.missed.Load() != s.missed {
		s.told = false // it may have been for us
	}
	var handed bool // the holder is of this process, and tells us
	select {
	case handed = <-w.first:
	case <-ctx.Done():
		return s.held, heldUntilEnd(ctx)
	}
	r.bell.enter()
	defer r.bell.leave()
	if handed {
		s.held = refusal{key: key, for_: r.ttl, ours: true}
	} else if !s.told && r.bell.listening() != "" {
		r.look(w) // and say where we are to be told; else the bell has us look when it is ready
	}
	timer := time.NewTimer(s.patience(handed))
	defer timer.Stop()
	for {
		var t turn
		select {
		case t = <-w.turns:
		case <-timer.C:
		case <-ctx.Done():
			return s.held, heldUntilEnd(ctx)
		}
		if t.token != 0 && len(s.lock.places) == 1 {
			return s.held, s.lock.granted(ctx, t.start, r.ttl, t.value, t.token, t.row)
		}
		if s.fresh(t) {
			return s.held, s.lock.offered(ctx, s.sent, t)
		}
		err := s.ask(ctx, t)
		if !errors.Is(err, ErrHeld) || s.held.key != key {
			if err != nil {
				r.passOn(p, t)
			}
			if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				err = heldUntilEnd(ctx)
			}
			return s.held, err
		}
		timer.Reset(s.patience(false))
	}
}

// ask tries to acquire the locks at a turn.
func (s *stand) ask(ctx context.Context, t turn) (err error) {
	if t.pause > 0 {
		timer := time.NewTimer(t.pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ended(ctx)
		}
	}
	value := t.value
	if value == "" {
		value = newValue()
	}
	channel := s.redis.bell.listening()
	s.told = channel != ""
	held, err := s.redis.try(ctx, s.lock, Now(), value, channel)
	if errors.Is(err, ErrHeld) {
		s.held = held
		if held.at != 0 {
			s.at, s.sent = held.at, held.sent
		}
	}
	if err == nil && t.value != "" {
		s.lock.row = t.row
	}
	return err
}

// fresh tells whether an offer can be used as it is. Its time began after the call was sent that put us
// in line where it found us, so that call is what it counts from; and enough of it must be left.
func (s *stand) fresh(t turn) bool {
	return t.offered != 0 && t.at == s.at && len(s.lock.places) == 1 && time.Since(s.sent.mono) < t.ttl/4
}

// patience is how long to wait for a turn before looking: until the holder's TTL is over, or
// until something may have gone unheard. The ms are rounded down by Redis.
func (s *stand) patience(handed bool) time.Duration {
	d := othersLook + rand.N(4*othersLook)
	if handed || s.told && s.held.ours {
		d = oursLook + rand.N(oursLook*2/3)
	}
	if s.held.for_ >= 0 {
		d = min(d, s.held.for_+time.Millisecond+rand.N(expiryJitter))
	}
	return d
}

// heldUntilEnd is the error of who waited for a lock until ctx ended.
func heldUntilEnd(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrHeld, ended(ctx)) }
