package store

import (
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/redistest"
)

// A storeTest is run on each topology, with a queue of its own.
type storeTest struct {
	name string
	run  func(t *testing.T, r *rig)
}

// storeTests is filled by the files that are named for what they test.
func storeTests() []storeTest {
	var all []storeTest
	for _, list := range [][]storeTest{
		enqueueTests, tickTests, claimTests, settleTests, sessionTests, reclaimTests,
		wakeTests, laneTests, retentionTests, keptTests, retainTests, copiesTests, fenceTests, countsTests, spanTests, depthTests, bytesTests, withheldTests, idleTests, actTests, moveTests, uniqueTests, entryTests, overlapTests, historyTests, doctorTests,
	} {
		all = append(all, list...)
	}
	return all
}

// TestStore runs the same list on each topology, to the end of each test.
func TestStore(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	ran := map[string]int{} // by topology
	t.Cleanup(func() {
		for name, n := range ran {
			if n != ran["single"] && ran["single"] > 0 && !t.Failed() {
				t.Errorf("%d tests on %s, %d on a single server", n, name, ran["single"])
			}
		}
	})
	for name, start := range map[string]func(t *testing.T) redis.UniversalClient{
		"single":   func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client() },
		"cluster":  func(t *testing.T) redis.UniversalClient { return redistest.Cluster(t).Client() },
		"sentinel": func(t *testing.T) redis.UniversalClient { return redistest.Sentinel(t).Client() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := start(t)
			for _, test := range storeTests() {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(t, newQueue(t, rdb))
					mu.Lock()
					defer mu.Unlock()
					ran[name]++
				})
			}
		})
	}
}
