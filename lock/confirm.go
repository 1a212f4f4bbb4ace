package lock

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// offerTTL returns how long an offer lives unless it is confirmed. It is short: so an offer to a dead process
// costs others little time.
func (r *Redis) offerTTL() time.Duration { return min(r.ttl, maxOffer) }

const maxOffer = time.Second

// A confirmation extends an offered lock to its full TTL, after a moment. A holder that releases the lock
// before that saves the call.
type confirmation struct {
	timer *time.Timer
	stop  context.CancelFunc
	done  chan struct{}
	ended bool
}

// offered takes an offer. Its time began after sent.
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

// extendWithin extends the lock within d. The call must be short, since a release waits for it.
func (l *redisLock) extendWithin(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return l.Extend(ctx)
}

// end stops the confirmation and returns when it has ended.
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
