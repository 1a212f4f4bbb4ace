package lock

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// offerTTL is how long an offer lives unless it is confirmed, which bounds the time that one
// to a dead process costs.
func (r *Redis) offerTTL() time.Duration { return min(r.ttl, maxOffer) }

const maxOffer = time.Second

// A confirmation extends an offered lock to its full TTL, if it is held long enough: a short
// use is over before, and saves the call.
type confirmation struct {
	timer *time.Timer
	stop  context.CancelFunc
	done  chan struct{}
	ended bool
}

// offered takes an offer whose time began after sent.
func (l *redisLock) offered(ctx context.Context, sent lease.Instant, t turn) error {
	ttl := t.ttl
	if err := l.granted(ctx, sent, ttl, t.value, t.offered, t.row); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	c := &confirmation{stop: stop, done: make(chan struct{})}
	l.confirm = c
	c.timer = time.AfterFunc(ttl/8, func() {
		defer close(c.done)
		for l.extendWithin(ctx, ttl/4) != nil && l.Validity.Err() == nil {
			select {
			case <-time.After(ttl / 16):
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

// extendWithin bounds the call, which a release waits for.
func (l *redisLock) extendWithin(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.Extend(ctx)
}

// end ends it and waits until it has ended.
func (c *confirmation) end() {
	if c == nil || c.ended {
		return
	}
	c.ended = true
	c.stop()
	if !c.timer.Stop() {
		<-c.done
	}
}
