// Package locktest tests that a [lock.Locker] keeps its promises.
//
// [Run] is for the tests of those who implement one:
//
//	func TestConformance(t *testing.T) {
//		locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker {
//			return mylock.New(dial(t), ttl)
//		})
//	}
//
// [lock.Lock] says how a lock's Context must behave. The standard library is enough to implement that,
// as the in-memory locker of this package's own tests shows (term_test.go).
//
// Run can't test what happens when the lock service fails, when a process is paused or when clocks
// step. Such tests must be able to cause these events.
package locktest

import (
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

const (
	// shortTTL is for leases that must end. It is a whole second since some lock services count in
	// seconds.
	shortTTL = time.Second
	// heldTTL is for leases that are extended beyond it. It is long enough for that on a slow machine.
	heldTTL = 5 * time.Second
	// longTTL is for leases that must not end by themselves.
	longTTL = time.Minute
	// slack is how much longer a wait may take on a slow machine. It is far below longTTL. So a lease
	// that ended by itself can't be mistaken for one that was released.
	slack = 10 * time.Second
	// patience bounds the wait of one goroutine among many.
	patience = 30 * time.Second
)

// A Maker makes a locker whose leases last for ttl, which is 1 s, 5 s or 1 min. The locker must have no
// minimum holding time. Lockers of different calls stand for different processes that use the same lock
// service. So they must share no memory that processes couldn't share. t is the test that uses the
// locker. Use its Cleanup to close things.
type Maker func(t testing.TB, ttl time.Duration) lock.Locker

// Run runs one parallel subtest for each promise, named after it. The slowest take some 6 s if all goes
// well. A wait may take up to 10 s longer than it should before it counts as failed. Each subtest has
// its own random keys, of [A-Za-z0-9-], and releases the locks that it holds.
func Run(t *testing.T, newLocker Maker) {
	t.Helper()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.show(&suite{t, newLocker})
		})
	}
}

// A promise is what one subtest tests.
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
