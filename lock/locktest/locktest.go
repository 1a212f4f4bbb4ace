// Package locktest shows that a [lock.Locker] keeps its promises.
//
// [Run] is for the tests of whoever implements one:
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker {
//			return mylock.New(dial(t), ttl)
//		})
//	}
//
// What a lock's Context has to do is said at [lock.Lock]; the standard library is enough for it, as the
// locker in memory of this package's own tests shows (term_test.go).
//
// It can't show what happens when the lock service fails, when a process is paused or
// when clocks step: those tests need the means to bring that about.
package locktest

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

const (
	// shortTTL is for leases that are to end. It is a whole second since some lock
	// services count in seconds.
	shortTTL = time.Second
	// heldTTL is for leases that are extended beyond it, in time also on a slow machine.
	heldTTL = 5 * time.Second
	// longTTL is for leases that must not end by themselves.
	longTTL = time.Minute
	// slack is what a slow machine may add to a wait. It is far below longTTL, so that
	// no lease that ended by itself passes for one that was released.
	slack = 10 * time.Second
	// patience bounds the wait of one among many.
	patience = 30 * time.Second
)

// A Maker makes a locker whose leases last for ttl, which is 1 s, 5 s or 1 min, with no minimum
// time of holding. Lockers of separate calls stand for separate processes that use the same
// lock service: they share no memory that a process couldn't. t is the test that uses
// the locker; what must be closed is closed by its Cleanup.
type Maker func(t testing.TB, ttl time.Duration) lock.Locker

// Run runs one parallel subtest for each promise, named after it. The slowest take some 6 s
// where all is well. Waits may take up to 10 s longer than they should before they
// count as failed. Each subtest has random keys of its own, of [A-Za-z0-9-], and releases
// what it holds.
func Run(t *testing.T, newLocker Maker) {
	t.Helper()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.show(&suite{t, newLocker})
		})
	}
}

// A promise is what one subtest shows.
type promise struct {
	name string
	show func(*suite)
}

var promises = []promise{
	{"OneHolder", oneHolder},
	{"OneWinner", oneWinner},
	{"KeysAreIndependent", keysAreIndependent},
	{"InvalidKey", invalidKey},

	{"AcquireWaitsForRelease", acquireWaitsForRelease},
	{"AcquireWaitsForExpiry", acquireWaitsForExpiry},
	{"AcquireEndsWithItsContext", acquireEndsWithItsContext},
	{"EndedContextGivesItsCause", endedContextGivesItsCause},
	{"Contention", contention},
	{"ContentionWithDeadHolders", contentionWithDeadHolders},

	{"TokensGrow", tokensGrow},
	{"TokensGrowAfterExpiry", tokensGrowAfterExpiry},

	{"UntilIsWithinTheTTL", untilIsWithinTheTTL},
	{"ContextEndsBeforeTheTTL", contextEndsBeforeTheTTL},
	{"ContextOutlivesThatOfAcquire", contextOutlivesThatOfAcquire},
	{"ContextKeepsValues", contextKeepsValues},
	{"ExtendKeepsTheLock", extendKeepsTheLock},
	{"ExtendNeverResurrects", extendNeverResurrects},
	{"ExtendAfterRelease", extendAfterRelease},

	{"ReleaseEndsTheContext", releaseEndsTheContext},
	{"ReleaseIsIdempotent", releaseIsIdempotent},
	{"ReleaseWorksAfterCancel", releaseWorksAfterCancel},
	{"LateReleaseTouchesNobody", lateReleaseTouchesNobody},

	{"DoRunsUnderTheLock", doRunsUnderTheLock},
	{"DoOutlivesTheTTL", doOutlivesTheTTL},
	{"HoldReleases", holdReleases},
}
