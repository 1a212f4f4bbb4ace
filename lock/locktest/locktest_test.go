package locktest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/lock"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// A locker without a flaw passes, on real clocks.
func TestRun(t *testing.T) {
	t.Parallel()
	var s service
	Run(t, func(_ testing.TB, ttl time.Duration) lock.Locker { return &memory{&s, ttl, nil} })
}

// Each flaw is found by the subtests whose promise it breaks.
func TestFlaws(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for flaw, want := range flaws {
		t.Run(strings.ReplaceAll(flaw, " ", "-"), func(t *testing.T) {
			for _, p := range promises {
				said := shown(t, p, flaw)
				if fails := len(said) > 0; fails {
					found[p.name] = true
				}
				if strings.Contains(" "+want+" ", " "+p.name+" ") && len(said) == 0 {
					t.Errorf("%s does not find it", p.name)
				}
			}
		})
	}
	for _, p := range promises {
		if !found[p.name] {
			t.Errorf("no flaw is found by %s", p.name)
		}
		if said := shown(t, p, ""); len(said) > 0 {
			t.Errorf("%s fails without a flaw: %s", p.name, said)
		}
	}
}

// flaws has subtests that must find each flaw.
var flaws = map[string]string{
	"excludes nobody":                          "KilledHolder StoppedHolder OneHolder OneWinner AcquireWaitsForRelease AcquireWaitsForExpiry Contention ContentionWithDeadHolders DoRunsUnderTheLock",
	"is reentrant":                             "OneHolder OneWinner AcquireWaitsForRelease Contention",
	"the lock has no name":                     "OneHolder DoRunsUnderTheLock",
	"forgets the key's end":                    "KeysAreIndependent",
	"takes an empty key":                       "InvalidKey",
	"says nothing when it is held":             "OneHolder OneWinner AcquireWaitsForRelease",
	"TryAcquire waits":                         "OneHolder",
	"TryAcquire says busy":                     "OneHolder OneWinner",
	"Acquire never waits":                      "AcquireWaitsForRelease AcquireWaitsForExpiry AcquireEndsWithItsContext Contention",
	"folds case":                               "KeysOfAllKinds",
	"a slash ends the key":                     "KeysOfAllKinds",
	"refuses a slash":                          "KeysOfAllKinds",
	"a zero byte ends the key":                 "KeysThatMayBeRefused",
	"fails with odd keys":                      "KeysThatMayBeRefused",
	"Acquire refuses odd keys late":            "KeysThatMayBeRefused",
	"a dead process keeps its lock":            "KilledHolder StoppedHolder",
	"waits for dead waiters":                   "LostWaiters",
	"each locker is an issuer":                 "OriginOfTokens",
	"all holders are one":                      "OriginOfTokens",
	"looks once an hour":                       "KilledHolder StoppedHolder LostWaiters AcquireWaitsForRelease AcquireWaitsForExpiry Contention ContentionWithDeadHolders",
	"waits for the release only":               "KilledHolder StoppedHolder AcquireWaitsForExpiry ContentionWithDeadHolders TokensGrowAfterExpiry",
	"waits for the expiry only":                "AcquireWaitsForRelease Contention",
	"waits on after ctx ended":                 "AcquireEndsWithItsContext",
	"the end of ctx is not ErrHeld":            "AcquireEndsWithItsContext DoRunsUnderTheLock",
	"the end of ctx has no cause":              "AcquireEndsWithItsContext",
	"takes a context that has ended":           "EndedContextGivesItsCause",
	"the lock ends with the acquire's context": "ContextOutlivesThatOfAcquire",
	"the lock forgets values":                  "ContextKeepsValues",
	"tokens are all the same":                  "KilledHolder StoppedHolder TokensGrow TokensGrowAfterExpiry Contention",
	"tokens begin again after an expiry":       "TokensGrowAfterExpiry ContentionWithDeadHolders",
	"tokens fall":                              "TokensGrow TokensGrowAfterExpiry Contention",
	"holders believe in twice the TTL":         "UntilIsWithinTheTTL AcquireWaitsForExpiry ContentionWithDeadHolders",
	"leases have no end":                       "StoppedHolder UntilIsWithinTheTTL AcquireWaitsForExpiry ContentionWithDeadHolders ExtendNeverResurrects",
	"contexts end too soon":                    "ContextEndsBeforeTheTTL",
	"Extend resurrects":                        "StoppedHolder ExtendNeverResurrects ExtendAfterRelease",
	"Extend of a lost lock keeps the key":      "ExtendNeverResurrects",
	"Extend says nothing of a loss":            "ExtendNeverResurrects ExtendAfterRelease",
	"Extend says anything of a loss":           "StoppedHolder ExtendNeverResurrects ExtendAfterRelease",
	"Extend has a new token":                   "TokensGrow",
	"Extend doesn't reach the service":         "ExtendKeepsTheLock DoOutlivesTheTTL",
	"Extend doesn't move the end":              "UntilIsWithinTheTTL ExtendKeepsTheLock DoOutlivesTheTTL",
	"Release needs a context":                  "ReleaseWorksAfterCancel",
	"Release only once":                        "ReleaseIsIdempotent",
	"Release says its loss only once":          "LateReleaseTouchesNobody",
	"Release ends no context":                  "ReleaseEndsTheContext",
	"Release is a loss":                        "ReleaseEndsTheContext",
	"Release leaves it held":                   "OneHolder AcquireWaitsForRelease ReleaseWorksAfterCancel HoldReleases DoRunsUnderTheLock",
	"Release deletes what another has":         "ReleaseIsIdempotent LateReleaseTouchesNobody",
	"Release never says a loss":                "StoppedHolder LateReleaseTouchesNobody",
}

// shown returns the failures that a subtest reports for a flaw, in a synctest bubble.
func shown(t *testing.T, p promise, flaw string) (said []string) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		tm, err := plan(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		s := &service{flaw: flaw}
		done := make(chan struct{})
		go func() { // Fatal ends this goroutine
			defer close(done)
			p.show(&suite{
				TB: r, times: tm,
				newLocker: func(_ testing.TB, ttl time.Duration) lock.Locker { return &memory{s, ttl, nil} },
				spawn:     s.spawn,
			})
		}()
		<-done
		time.Sleep(24 * time.Hour) // calls that the subtest gave up on end as well; it costs no real time
		r.mu.Lock()
		defer r.mu.Unlock()
		said = r.said
	})
	return said
}

// A recorder is a testing.TB that only records failures.
type recorder struct {
	testing.TB
	mu   sync.Mutex
	said []string
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
