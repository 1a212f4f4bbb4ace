package worker

import (
	"time"

	"github.com/cenkalti/backoff/v4"
)

// A RetryPolicy says how long a job waits after its attempt of that number, from 1, failed
// with err. A negative duration counts as 0.
type RetryPolicy func(attempt int, err error) time.Duration

var defaultRetry = ExponentialJitter(time.Second, time.Hour)

// DefaultRetry is a [RetryPolicy] that waits up to 1 s, 2 s, 4 s ... 1 h: ExponentialJitter
// from a second to an hour.
func DefaultRetry(attempt int, err error) time.Duration { return defaultRetry(attempt, err) }

// ExponentialJitter waits for a random time between 0 and a bound that starts at first, doubles
// with each attempt and stays at most: "full jitter" as in Marc Brooker's "Exponential Backoff
// And Jitter", which spreads the retries of many jobs best. It panics unless 0 < first <= most.
func ExponentialJitter(first, most time.Duration) RetryPolicy {
	if first <= 0 || most < first {
		panic("worker: ExponentialJitter: first must be above 0 and at most the second argument")
	}
	return func(attempt int, _ error) time.Duration {
		// The library spreads an interval by the factor 1 to both sides: 0 to twice the
		// interval. It is stateful, so each use has its own.
		b := backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(first/2),
			backoff.WithMaxInterval(most/2),
			backoff.WithMultiplier(2),
			backoff.WithRandomizationFactor(1),
			backoff.WithMaxElapsedTime(0),
		)
		var d time.Duration
		for range min(max(attempt, 1), 64) {
			d = b.NextBackOff()
		}
		return d
	}
}
