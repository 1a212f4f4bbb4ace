package worker

import (
	"math/rand/v2"
	"time"
)

// A RetryPolicy returns how long a job waits after its attempt of that number, from 1, failed
// with err. A negative duration counts as 0. It isn't asked about an error that says so itself: see [signalbox.RetryAfter].
//
// [signalbox.RetryAfter]: https://pkg.go.dev/github.com/signalbox-go/signalbox#RetryAfter
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

// Constant returns a policy with the same delay after each attempt. It panics if d is negative.
//
// Jobs that failed together are retried together. Prefer a policy with jitter where they could overload what made them fail.
func Constant(d time.Duration) RetryPolicy {
	if d < 0 {
		panic("worker: Constant: the delay must be 0 or more")
	}
	return func(int, error) time.Duration { return d }
}

// Exponential returns a policy whose delay starts at first, doubles with each attempt and stays at most. It has no jitter:
// see [Constant]. It panics unless 0 < first <= most.
func Exponential(first, most time.Duration) RetryPolicy {
	mustDouble("Exponential", first, most)
	return func(attempt int, _ error) time.Duration { return doubled(attempt, first, most) }
}

// ExponentialJitter returns a policy with a bound that starts at first, doubles with each attempt
// and stays at most. Each delay is at least half of the bound, and at most the bound: "equal
// jitter" as in Marc Brooker's "Exponential Backoff And Jitter". The random half spreads
// the retries of jobs that failed together. The fixed half makes sure how long a job is retried.
// It panics unless 0 < first <= most.
func ExponentialJitter(first, most time.Duration) RetryPolicy {
	mustDouble("ExponentialJitter", first, most)
	return func(attempt int, _ error) time.Duration {
		bound := doubled(attempt, first, most)
		return bound - rand.N(bound/2+1)
	}
}

// ExponentialFullJitter is [ExponentialJitter] with delays from 0 to the bound: "full jitter". It spreads retries the most. How long a
// job is retried is left to chance: set [RetryFor], or many attempts. It panics unless 0 < first <= most.
func ExponentialFullJitter(first, most time.Duration) RetryPolicy {
	mustDouble("ExponentialFullJitter", first, most)
	return func(attempt int, _ error) time.Duration {
		bound := doubled(attempt, first, most)
		return bound - rand.N(bound)
	}
}

func mustDouble(policy string, first, most time.Duration) {
	if first <= 0 || most < first {
		panic("worker: " + policy + ": first must be above 0 and at most the second argument")
	}
}

// doubled returns first, doubled after each attempt but the first one, and at most most.
func doubled(attempt int, first, most time.Duration) time.Duration {
	bound := first
	for n := 1; n < attempt && bound < most; n++ {
		bound += min(bound, most-bound)
	}
	return bound
}
