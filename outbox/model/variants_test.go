package model

import (
	"strings"
	"testing"
)

// Each variant leaves out one rule, and must be found to be broken in the way that its symptom says.
var variants = []struct {
	name    string
	rules   rules
	faults  faults
	symptom string
}{
	// The lane.
	{"no lane, job IDs alone", rules{noLane: true}, faults{}, "twice"},
	{"a lane that expires", rules{lanesExpire: true}, faults{}, "twice"},
	{"a lane without a nonce", rules{noNonce: true}, faults{databaseBack: true}, "lost"},
	{"a call that doesn't say which lane it expects", rules{noPrevious: true}, faults{databaseBack: true, redisBack: true}, "lost"},
	{"one lane for two databases", rules{sharedLane: true}, faults{databases: 2}, "false alarm"},
	{"one sequence for two queues", rules{oneSeqForQueues: true}, faults{slots: 2}, ""},
	{"nobody looks at the lanes of idle shards", rules{noIdleLook: true}, faults{redisBack: true}, "lost"},
	{"a loss of more than the window isn't said", rules{lossUnsaid: true}, faults{redisBack: true, redisBeyond: true}, "lost"},
	// The first transaction.
	{"a pick without the shard's lock", rules{pickUnlocked: true}, faults{}, "twice"},
	{"a pick from a snapshot that is older than the lock", rules{pickOldSnapshot: true}, faults{}, "twice"},
	{"a pick in the order of random ids", rules{pickByID: true}, faults{}, "came behind"},
	{"positions in the order in which transactions began", rules{bornOrder: true}, faults{}, "came behind"},
	{"a floor at the last position that was picked", rules{keyset: true}, faults{}, "lost"},
	{"a batch is sent although its commit's result is unknown", rules{sendUncertain: true}, faults{}, ""},
	{"another number of shards after a deploy", rules{reshard: true}, faults{}, "came behind"},
	// Batches.
	{"a batch that waits gets more rows", rules{recompose: true}, faults{}, ""},
	{"a refused row leaves its batch, which keeps its name", rules{dropPoison: true}, faults{poison: true, versions: true}, ""},
	{"any unsent batch is sent, not the lowest", rules{sendAnyUnsent: true}, faults{redisBack: true}, ""},
	{"what the lane says of a burnt batch is ignored", rules{noOutcomes: true}, faults{burns: true}, "lost"},
	{"a burnt batch looks in the lane like one that was put in", rules{burntAlike: true}, faults{redisBack: true, burns: true}, "lost"},
	{"a batch that was sent stays one to burn, and its rows are overtaken", rules{burntOvertaken: true}, faults{redisBack: true, burns: true}, "came behind"},
	{"calls without an answer count against the rows", rules{triesOfTransport: true}, faults{poison: true}, ""},
	{"the script refuses rows for want of room", rules{scriptRefuses: true}, faults{redisBack: true, room: 3}, ""},
	// The second transaction.
	{"stale is sent", rules{staleIsSent: true}, faults{databaseBack: true}, "lost"},
	{"the second transaction for any nonce", rules{secondAnyNonce: true}, faults{databaseBack: true}, ""},
	{"the second transaction for whatever is unsent", rules{secondAnyBatch: true}, faults{}, "lost"},
	{"the second transaction in any order", rules{secondAnyOrder: true}, faults{redisBack: true}, ""},
	{"the second transaction takes the lane back", rules{secondSetsLane: true}, faults{}, "false alarm"},
	// Looks and purges.
	{"what was read before the lock decides", rules{lookOnce: true}, faults{}, "false alarm"},
	{"a lane that jumped is an alarm", rules{jumpIsAlarm: true}, faults{redisBack: true}, ""},
	{"a lane that jumped doesn't change what it must be", rules{jumpKeepsLane: true}, faults{redisBack: true}, "lost"},
	{"a batch is purged when it is sent", rules{purgeAtOnce: true}, faults{redisBack: true}, "lost"},
	{"a purge by the clock, while Redis is away", rules{purgeByClock: true}, faults{redisBack: true, outage: true}, "lost"},
	{"a purge that doesn't compare again", rules{purgeUnchecked: true}, faults{redisBack: true, outage: true}, "lost"},
}

func TestVariants(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			const most = 20000
			for seed := uint64(1); seed <= most; seed++ {
				w := simulate(seed, v.rules, v.faults, false)
				if w.broken != "" && strings.Contains(w.broken, v.symptom) {
					t.Logf("run %d: %s", seed, w.broken)
					return
				}
			}
			t.Errorf("not found to be broken (%q) in %d runs", v.symptom, most)
		})
	}
}
