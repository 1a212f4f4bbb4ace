package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// The delays between two looks at a held lock. The holder may be another library's
// client, which tells nobody when it releases, so we look.
const (
	firstLook  = 10 * time.Millisecond
	latestLook = 150 * time.Millisecond // with jitter, 75 to 225 ms
	lookJitter = 0.5

	// expiryJitter spreads those who wait for the same TTL to end.
	expiryJitter = 10 * time.Millisecond
)

// wait tries until the lock is granted, ctx ends or Redis fails.
func (r *Redis) wait(ctx context.Context, l *redisLock) error {
	delays := newDelays()
	heldFor, err := r.try(ctx, l)
	for errors.Is(err, ErrHeld) {
		timer := time.NewTimer(untilNextLook(delays.NextBackOff(), heldFor))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		if heldFor, err = r.try(ctx, l); err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return fmt.Errorf("%w: %w", ErrHeld, err)
		}
	}
	return err
}

// newDelays is stateful: one per wait.
func newDelays() backoff.BackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstLook),
		backoff.WithMaxInterval(latestLook),
		backoff.WithRandomizationFactor(lookJitter),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0), // ctx bounds the waiting
	)
}

// untilNextLook is the delay, or the rest of the holder's TTL if that ends sooner: then
// the lock is free, or was extended. The ms are rounded down by Redis.
func untilNextLook(delay, heldFor time.Duration) time.Duration {
	if heldFor < 0 {
		return delay
	}
	return min(delay, heldFor+time.Millisecond+rand.N(expiryJitter))
}
