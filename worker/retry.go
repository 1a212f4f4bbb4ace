package worker

import (
	"math/rand/v2"
	"time"
)

// A RetryPolicy returns how long a job waits after its attempt of that number, from 1, failed
// with err. A negative duration counts as 0.
type RetryPolicy func(attempt int, err error) time.Duration

var defaultRetry = ExponentialJitter(time.Second, 24*time.Hour)

// DefaultRetry is the [RetryPolicy] of a kind that has no other: ExponentialJitter from a second
// to a day. With the default of 25 attempts a job is retried for 102 to 204 hours: whatever the
// jitter, longer than a long weekend.
func DefaultRetry(attempt int, err error) time.Duration { return defaultRetry(attempt, err) }

// payloadAttempts is how often a payload that a worker refuses is tried, and payloadRetry how far
// apart: over 7.5 to 15 minutes, for as long as a new release may take to be everywhere.
const payloadAttempts = 5

var payloadRetry = ExponentialJitter(time.Minute, 8*time.Minute)

// ExponentialJitter returns a policy with a bound that starts at first, doubles with each attempt
// and stays at most. Each delay is at least half of the bound, and at most the bound: "equal
// jitter" as in Marc Brooker's "Exponential Backoff And Jitter". The random half spreads
// the retries of jobs that failed together. The fixed half makes sure how long a job is retried.
// It panics unless 0 < first <= most.
func ExponentialJitter(first, most time.Duration) RetryPolicy {
	if first <= 0 || most < first {
		panic("worker: ExponentialJitter: first must be above 0 and at most the second argument")
	}
	return func(attempt int, _ error) time.Duration {
		bound := first
		for n := 1; n < attempt && bound < most; n++ {
			bound += min(bound, most-bound)
		}
		return bound - rand.N(bound/2+1)
	}
}
