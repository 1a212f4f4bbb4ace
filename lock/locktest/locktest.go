// Package locktest tests that a [lock.Locker] keeps its promises.
//
// [Run] is for the tests of those who implement one:
//
//	func TestMain(m *testing.M) {
//		locktest.Child(func(addr string, ttl time.Duration) (lock.Locker, error) {
//			return mylock.New(addr, ttl)
//		})
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		addr := start(t)
//		locktest.Run(t, func(t testing.TB, ttl time.Duration) lock.Locker {
//			return mylock.New(addr, ttl)
//		}, locktest.Processes(addr))
//	}
//
// [lock.Lock] says how a lock's Context must behave. The standard library is enough to implement that,
// as the in-memory locker of this package's own tests shows (term_test.go).
//
// With [Processes], holders and waiters are also processes that are killed or stopped. Run can't test what happens
// when the lock service fails or when clocks step. Such tests must be able to cause these events.
//
// # Keys
//
// Every locker must take any key of 1 to 200 bytes of valid UTF-8, except those with a control character, a { or a },
// and those that end in :fence or :wait. It may refuse other keys, each always and with [lock.ErrInvalid]. A key that it
// takes is independent of all other keys.
package locktest

import (
	"fmt"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// moment is a pause that is long enough for others to act, even on a slow machine.
const moment = time.Second

// times are the TTLs of a run, and the bounds of its waits.
type times struct {
	// short is for leases that must end. It is at least a whole second since some lock services count in
	// seconds.
	short time.Duration
	// extended is for leases that are extended beyond it. It is long enough for that on a slow machine.
	extended time.Duration
	// long is for leases that must not end by themselves.
	long time.Duration
	// slack is how much longer a wait may take on a slow machine. It is far below long. So a lease
	// that ended by itself can't be mistaken for one that was released.
	slack time.Duration
	// patience bounds the wait of one goroutine among many.
	patience time.Duration
}

// plan returns the times for a locker that takes TTLs from least to most. 0 is no bound.
func plan(least, most time.Duration) (times, error) {
	t := times{short: max(time.Second, least), extended: 5 * time.Second, long: time.Minute}
	if most > 0 {
		t.long = min(t.long, most)
	}
	t.extended = min(max(t.extended, t.short), t.long)
	t.slack = min(10*time.Second, t.long/4)
	t.patience = 30*time.Second + 2*(t.short-time.Second)
	if least < 0 || most < 0 || t.long < 5*t.short {
		return t, fmt.Errorf("locktest: MinTTL is %v and MaxTTL is %v; MaxTTL must be at least 5 times MinTTL, and at least 5 s", least, most)
	}
	return t, nil
}

// An Option says what Run must know of a locker.
type Option func(*options)

type options struct {
	least, most time.Duration
	processes   bool
	arg         string
}

// MinTTL says that the locker takes no TTL below d. Without it the shortest TTL is 1 s, and a longer d takes its place.
func MinTTL(d time.Duration) Option { return func(o *options) { o.least = d } }

// MaxTTL says that the locker takes no TTL above d, which is at least 5 times the shortest. Without it the longest TTL
// is 1 min, and a shorter d takes its place.
func MaxTTL(d time.Duration) Option { return func(o *options) { o.most = d } }

// A Maker makes a locker whose leases last for ttl, which is 1 s, 5 s or 1 min unless [MinTTL] or [MaxTTL] is given.
// The locker must have no minimum holding time. Lockers of different calls stand for different processes that use the
// same lock service. So they must share no memory that processes couldn't share. t is the test that uses the
// locker. Use its Cleanup to close things.
type Maker func(t testing.TB, ttl time.Duration) lock.Locker

// Run runs one parallel subtest for each promise, named after it. The slowest take some 6 s if all goes
// well. A wait may take up to 10 s longer than it should before it counts as failed. Each subtest has
// its own random keys, and releases the locks that it holds.
func Run(t *testing.T, newLocker Maker, opts ...Option) {
	t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	tm, err := plan(o.least, o.most)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range promises {
		if p.processes && !o.processes {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			p.show(&suite{TB: t, times: tm, newLocker: newLocker, spawn: spawner(o.arg)})
		})
	}
}

// A promise is what one subtest tests.
type promise struct {
	name      string
	show      func(*suite)
	processes bool // the subtest is for [Processes]
}

var promises = []promise{
	{name: "OneHolder", show: oneHolder},
	{name: "OneWinner", show: oneWinner},

	{name: "KeysAreIndependent", show: keysAreIndependent},
	{name: "KeysOfAllKinds", show: keysOfAllKinds},
	{name: "KeysThatMayBeRefused", show: keysThatMayBeRefused},
	{name: "InvalidKey", show: invalidKey},

	{name: "AcquireWaitsForRelease", show: acquireWaitsForRelease},
	{name: "AcquireWaitsForExpiry", show: acquireWaitsForExpiry},
	{name: "AcquireEndsWithItsContext", show: acquireEndsWithItsContext},
	{name: "EndedContextGivesItsCause", show: endedContextGivesItsCause},
	{name: "Contention", show: contention},
	{name: "ContentionWithDeadHolders", show: contentionWithDeadHolders},

	{name: "KilledHolder", show: killedHolder, processes: true},
	{name: "StoppedHolder", show: stoppedHolder, processes: true},
	{name: "LostWaiters", show: lostWaiters, processes: true},

	{name: "TokensGrow", show: tokensGrow},
	{name: "TokensGrowAfterExpiry", show: tokensGrowAfterExpiry},
	{name: "OriginOfTokens", show: originOfTokens},

	{name: "UntilIsWithinTheTTL", show: untilIsWithinTheTTL},
	{name: "ContextEndsBeforeTheTTL", show: contextEndsBeforeTheTTL},
	{name: "ContextOutlivesThatOfAcquire", show: contextOutlivesThatOfAcquire},
	{name: "ContextKeepsValues", show: contextKeepsValues},
	{name: "ExtendKeepsTheLock", show: extendKeepsTheLock},
	{name: "ExtendNeverResurrects", show: extendNeverResurrects},
	{name: "ExtendAfterRelease", show: extendAfterRelease},

	{name: "ReleaseEndsTheContext", show: releaseEndsTheContext},
	{name: "ReleaseIsIdempotent", show: releaseIsIdempotent},
	{name: "ReleaseWorksAfterCancel", show: releaseWorksAfterCancel},
	{name: "LateReleaseTouchesNobody", show: lateReleaseTouchesNobody},

	{name: "DoRunsUnderTheLock", show: doRunsUnderTheLock},
	{name: "DoOutlivesTheTTL", show: doOutlivesTheTTL},
	{name: "HoldReleases", show: holdReleases},
}
