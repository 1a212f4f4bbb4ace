package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

const (
	// The first waiter looks for what no message says, usually at the end of the holder's TTL. It looks earlier, after:
	oursLook   = 750 * time.Millisecond // up to 1.25 s at random, if the holder's release sends a message
	othersLook = 50 * time.Millisecond  // up to 250 ms at random, if it doesn't
	// expiryJitter spreads the looks of waiters that wait for the end of the same TTL.
	expiryJitter = 10 * time.Millisecond
)

// A stand is one stay of an Acquire in the line of one key.
type stand struct {
	redis   *Redis
	lock    *redisLock
	refusal refusal       // how the last call found the locks
	seen    bool          // that call has just been made
	told    bool          // this process is in Redis' queue: a message comes when the lock is free
	at      int64         // when Redis put the process in the queue, by its clock, µs; 0: unknown
	sent    lease.Instant // when that call was sent
	// missed is the locker's count of missed turns, read before that call.
	missed int64
}

// wait returns nil when the locks are granted. It returns ErrHeld when the lock of another key is in the way,
// and the refusal says which. It returns another error when ctx ends or Redis fails.
func (s *stand) wait(ctx context.Context) (_ refusal, err error) {
	r, key := s.redis, s.refusal.key
	p := s.lock.places[key]
	w := r.join(p.lock, s.seen)
	defer func() { r.leave(p, w, err == nil) }()
	if s.told {
		r.queued(p)
	}
	if r.missed.Load() != s.missed {
		s.told = false // its place in Redis' queue may be used up
	}
	var handed bool // the holder is of this process, and its release sends a turn
	select {
	case handed = <-w.first:
	case <-w.down.over:
		return s.refusal, w.down.err
	case <-ctx.Done():
		return s.refusal, r.end(ctx, p, w)
	}
	r.bell.enter()
	defer r.bell.leave()
	if handed {
		s.refusal = refusal{key: key, for_: r.ttl, ours: true}
	} else if !s.told && r.bell.listening() != "" {
		r.look(w) // this names the channel. Without a channel the bell makes the waiter look, once it listens
	}
	timer := time.NewTimer(s.patience(handed))
	defer timer.Stop()
	for {
		var t turn
		select {
		case t = <-w.turns:
		case <-timer.C:
		case <-w.down.over:
			return s.refusal, w.down.err
		case <-ctx.Done():
			return s.refusal, r.end(ctx, p, w)
		}
		if t.token != 0 && len(s.lock.places) == 1 {
			return s.refusal, s.lock.granted(ctx, t.start, r.ttl, t.value, t.token, t.row)
		}
		if s.fresh(t) {
			return s.refusal, s.lock.offered(ctx, s.sent, t)
		}
		err := w.down.failed()
		if err == nil {
			err = s.ask(ctx, p, t)
			r.asked(ctx, p, err)
		}
		if !errors.Is(err, ErrHeld) || s.refusal.key != key {
			if err != nil {
				r.passOn(p, t)
			}
			if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
				err = r.end(ctx, p, w)
			}
			return s.refusal, err
		}
		timer.Reset(s.patience(false))
	}
}

// ask tries to acquire the locks as a turn says.
func (s *stand) ask(ctx context.Context, p place, t turn) (err error) {
	if t.pause > 0 {
		timer := time.NewTimer(t.pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return lease.Ended(ctx)
		}
	}
	value := t.value
	if value == "" {
		value = spec.NewValue()
	}
	channel := s.redis.bell.listening()
	s.told = channel != ""
	refused, err := s.redis.try(ctx, s.lock, lease.Now(), s.redis.asks(p, channel), value, channel)
	if errors.Is(err, ErrHeld) {
		s.refusal = refused
		if refused.at != 0 {
			s.at, s.sent = refused.at, refused.sent
		}
	}
	if err == nil && t.value != "" {
		s.lock.row = t.row
	}
	return err
}

// fresh reports whether an offer can be used without asking Redis. It must be for the place that our last
// call got: then its time began after that call was sent. And at most a quarter of its time may have passed since.
func (s *stand) fresh(t turn) bool {
	return t.offered != 0 && t.at == s.at && len(s.lock.places) == 1 && time.Since(s.sent.Time()) < t.ttl/4
}

// patience returns how long to wait for a turn before the next look. That is until the end of the holder's TTL,
// or less, since messages get lost. Redis rounds the TTL down to ms.
func (s *stand) patience(handed bool) time.Duration {
	d := othersLook + rand.N(4*othersLook)
	if handed || s.told && s.refusal.ours {
		d = oursLook + rand.N(oursLook*2/3)
	}
	if s.refusal.for_ >= 0 {
		d = min(d, s.refusal.for_+time.Millisecond+rand.N(expiryJitter))
	}
	return d
}
