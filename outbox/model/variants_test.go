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
	first   uint64 // the seed to begin with, near one that is known to find it
}{
	// The lane.
	{"no lane, job IDs alone", rules{noLane: true}, faults{}, "twice", 1},
	{"a lane that expires", rules{lanesExpire: true}, faults{}, "twice", 1},
	{"a lane without a nonce", rules{noNonce: true}, faults{databaseBack: true}, "lost", 1},
	{"a call that doesn't say which lane it expects", rules{noPrevious: true}, faults{databaseBack: true, redisBack: true}, "lost", 1070},
	{"one lane for two databases", rules{sharedLane: true}, faults{databases: 2}, "false alarm", 1},
	{"one sequence for two queues", rules{oneSeqForQueues: true}, faults{slots: 2}, "", 1},
	{"nobody looks at the lanes of idle shards", rules{noIdleLook: true}, faults{redisBack: true}, "lost", 1},
	{"a loss of more than the window isn't said", rules{lossUnsaid: true}, faults{redisBack: true, redisBeyond: true}, "lost", 1},
	// The first transaction.
	{"a pick without the shard's lock", rules{pickUnlocked: true}, faults{}, "twice", 1},
	{"a pick from a snapshot that is older than the lock", rules{pickOldSnapshot: true}, faults{}, "twice", 1},
	{"a pick in the order of random ids", rules{pickByID: true}, faults{}, "came behind", 1},
	{"positions in the order in which transactions began", rules{bornOrder: true}, faults{}, "came behind", 1},
	{"a floor at the last position that was picked", rules{keyset: true}, faults{}, "lost", 1},
	{"a batch is sent although its commit's result is unknown", rules{sendUncertain: true}, faults{}, "", 1},
	{"another number of shards after a deploy", rules{reshard: true}, faults{}, "came behind", 1},
	// Batches.
	{"a batch that waits gets more rows", rules{recompose: true}, faults{}, "", 1},
	{"a refused row leaves its batch, which keeps its name", rules{dropPoison: true}, faults{poison: true, versions: true}, "", 1},
	{"any unsent batch is sent, not the lowest", rules{sendAnyUnsent: true}, faults{redisBack: true}, "", 1},
	{"what the lane says of a burnt batch is ignored", rules{noOutcomes: true}, faults{burns: true}, "lost", 880},
	{"a burnt batch looks in the lane like one that was put in", rules{burntAlike: true}, faults{redisBack: true, burns: true}, "lost", 1},
	{"a batch that was sent stays one to burn, and its rows are overtaken", rules{burntOvertaken: true}, faults{redisBack: true, burns: true}, "came behind", 1060},
	{"calls without an answer count against the rows", rules{triesOfTransport: true}, faults{poison: true}, "", 1570},
	{"the script refuses rows for want of room", rules{scriptRefuses: true}, faults{redisBack: true, room: 3}, "lost", 1},
	{"only the pick looks for room", rules{boundless: true}, faults{room: 3}, "full queue", 1},
	// The second transaction.
	{"stale is sent", rules{staleIsSent: true}, faults{databaseBack: true}, "lost", 1},
	{"the second transaction for any nonce", rules{secondAnyNonce: true}, faults{databaseBack: true}, "", 1},
	{"the second transaction for whatever is unsent", rules{secondAnyBatch: true}, faults{}, "lost", 1},
	{"the second transaction in any order", rules{secondAnyOrder: true}, faults{redisBack: true}, "", 1},
	{"the second transaction takes the lane back", rules{secondSetsLane: true}, faults{}, "false alarm", 1},
	// Looks and purges.
	{"what was read before the lock decides", rules{lookOnce: true}, faults{}, "false alarm", 1},
	{"a lane that jumped is an alarm", rules{jumpIsAlarm: true}, faults{redisBack: true}, "", 1},
	{"a lane that jumped doesn't change what it must be", rules{jumpKeepsLane: true}, faults{redisBack: true}, "lost", 860},
	{"a batch is purged when it is sent", rules{purgeAtOnce: true}, faults{redisBack: true}, "lost", 1},
	{"a purge by the clock, while Redis is away", rules{purgeByClock: true}, faults{redisBack: true, outage: true}, "lost", 1},
	{"a purge that doesn't compare again", rules{purgeUnchecked: true}, faults{redisBack: true, outage: true}, "lost", 2030},
}

func TestVariants(t *testing.T) {
	t.Parallel()
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			const most = 20000
			for seed := v.first; seed < v.first+most; seed++ {
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
