package main

import (
	"fmt"
	"slices"
	"strings"
)

// A testCase is one figure that is compared.
type testCase struct {
	name     string
	unit     string
	less     bool    // less is better
	series   int     // of the samples of one run
	quantile float64 // of the samples of one run that is the figure; of a single one: any
	target   float64 // the ratio is to be this or more; 0: any
	bound    float64 // our figure is to be no worse than this, in the same unit; 0: none
}

// within reports whether a figure of ours keeps the bound.
func (tc *testCase) within(ours float64) bool {
	switch {
	case tc.bound == 0:
		return true
	case tc.less:
		return ours <= tc.bound
	}
	return ours >= tc.bound
}

// A side is one of two that are compared.
type side struct {
	measure     measure
	full, quick int // jobs, or locks taken, in one run
}

// A contest runs both sides, for one case or for several figures of the same runs.
type contest struct {
	peer     string       // "" if there is none to compare with: then theirs has no measure
	missing  func() error // returns why the peer can't run on this machine, or nil if it can; nil: it always can
	programs *pair        // that the sides run; nil: they run in this one
	ours     side
	theirs   side
	cases    []testCase
}

// withCPU returns a case whose runs are measured by a stopwatch, and the cases for the processor time of client and server.
func withCPU(tc testCase) []testCase {
	return []testCase{
		tc,
		{name: tc.name + "-client-cpu", unit: "us/job", less: true, series: clientCPU},
		{name: tc.name + "-redis-cpu", unit: "us/job", less: true, series: redisCPU},
	}
}

// contests are all there are. The targets are those that the project holds itself to, as ratios. Where
// the project's is a bound on our own figure, the ratio is the peer's figure, measured
// when the targets were set, over that bound; where there is no such figure, any will do.
func contests() []contest {
	removal := &pair{patch: removed}
	return slices.Concat([]contest{
		{
			peer:   "asynq",
			ours:   side{ourProcess(100), 200_000, 60_000},
			theirs: side{asynqProcess(100), 20_000, 8_000},
			cases:  withCPU(testCase{name: "process-c100", unit: "jobs/s", target: 12}),
		},
		{
			peer:   "asynq",
			ours:   side{ourProcess(10), 80_000, 30_000},
			theirs: side{asynqProcess(10), 20_000, 8_000},
			cases:  withCPU(testCase{name: "process-c10", unit: "jobs/s", target: 4}),
		},
		{
			// At most 1.15 times the processor time of a loop that has no locks, no tokens and no retries.
			peer:   "Streams, JSON",
			ours:   side{ourProcess(100), 200_000, 60_000},
			theirs: side{streamsProcess(50, true), 200_000, 60_000},
			cases: []testCase{
				{name: "streams-c100", unit: "jobs/s"},
				{name: "streams-c100-cpu", unit: "us/job", less: true, series: bothCPU, target: 0.87},
			},
		},
		{
			// What stands between: handlers of any kind, which this peer has none of.
			peer:   "bare Streams",
			ours:   side{ourProcess(100), 200_000, 60_000},
			theirs: side{streamsProcess(100, false), 200_000, 60_000},
			cases: []testCase{
				{name: "streams-bare-c100", unit: "jobs/s"},
				{name: "streams-bare-c100-cpu", unit: "us/job", less: true, series: bothCPU},
			},
		},
		{
			peer:   "asynq",
			ours:   side{ourEnqueue, 200_000, 60_000},
			theirs: side{asynqEnqueue, 60_000, 20_000},
			cases:  withCPU(testCase{name: "enqueue-16", unit: "jobs/s", target: 2.5}),
		},
		{
			peer:   "asynq",
			ours:   side{ourUnique, 100_000, 40_000},
			theirs: side{asynqUnique, 60_000, 20_000},
			cases:  []testCase{{name: "unique-enqueue", unit: "jobs/s", target: 2}},
		},
		{
			peer:    "River",
			missing: missingPostgres,
			ours:    side{ourUnique, 100_000, 40_000},
			theirs:  side{riverUnique, 20_000, 6_000},
			cases:   []testCase{{name: "unique-enqueue-river", unit: "jobs/s", target: 3}},
		},
		{
			// asynq has no bulk call. The project's target is 8 times River, which inserted
			// 36,000 to 50,000 jobs/s where asynq enqueued 43,000 to 56,000: 7 times asynq.
			peer:   "asynq, 16 producers",
			ours:   side{ourBulk, 500_000, 200_000},
			theirs: side{asynqEnqueue, 60_000, 20_000},
			cases:  []testCase{{name: "enqueue-bulk", unit: "jobs/s", target: 7}},
		},
		{
			peer:   "asynq, 16 producers",
			ours:   side{ourBulkWith(uniqueKey), 300_000, 100_000},
			theirs: side{asynqEnqueue, 60_000, 20_000},
			cases:  []testCase{{name: "unique-bulk", unit: "jobs/s", target: 4}},
		},
		{
			peer:   "asynq, 16 producers",
			ours:   side{ourBulkWith(uniqueKey), 300_000, 100_000},
			theirs: side{asynqUnique, 60_000, 20_000},
			cases:  []testCase{{name: "unique-bulk-both", unit: "jobs/s", target: 4}},
		},
		{
			peer:   "asynq, 16 producers",
			ours:   side{ourBulkWith(oneOf100), 300_000, 100_000},
			theirs: side{asynqEnqueue, 60_000, 20_000},
			cases:  []testCase{{name: "groups-bulk", unit: "jobs/s", target: 4}},
		},
		{
			// One chunk is in flight at a time, so that a crash repeats no more than that.
			peer:   "asynq, 16 producers",
			ours:   side{ourSeq, 1_000_000, 200_000},
			theirs: side{asynqEnqueue, 60_000, 20_000},
			cases:  []testCase{{name: "enqueue-seq", unit: "jobs/s", target: 4}},
		},
		{
			peer:   "asynq",
			ours:   side{ourLatency, 300, 150},
			theirs: side{asynqLatency, 40, 6},
			cases: []testCase{
				{name: "latency-idle-p50", unit: "ms", less: true, quantile: 0.5, target: 810, bound: 0.6}, // 486 ms
				{name: "latency-idle-p99", unit: "ms", less: true, quantile: 0.99, target: 365, bound: 4},  // 1,461 ms
			},
		},
		{
			peer:   "asynq",
			ours:   side{ourCancels, 500, 100},
			theirs: side{asynqCancels, 500, 100},
			cases:  []testCase{{name: "cancel-p99", unit: "ms", less: true, quantile: 0.99, bound: 100}},
		},
		{
			// At most 1.25 times what a queue on Redis takes at the least.
			peer:   "the floor",
			ours:   side{ourLatency, 300, 150},
			theirs: side{floorLatency, 300, 150},
			cases:  []testCase{{name: "latency-floor", unit: "ms", less: true, quantile: 0.5, target: 0.8}},
		},
		{
			peer:   "asynq",
			ours:   side{ourMemory, 50_000, 50_000},
			theirs: side{asynqMemory, 50_000, 50_000},
			cases:  []testCase{{name: "memory-pending", unit: "bytes", less: true, target: 2.37, bound: 280}}, // 663 bytes
		},
		{
			peer:   "scripts alone",
			ours:   side{ourProcess(100), 200_000, 60_000},
			theirs: side{bareScripts(2, 50), 300_000, 100_000},
			cases:  []testCase{{name: "ceiling", unit: "jobs/s", target: 0.5}},
		},
		{
			peer:   "one Redis",
			ours:   side{queuesInCluster, 2000, 400},
			theirs: side{queuesOnOne, 2000, 400},
			cases:  []testCase{{name: "cluster-60-queues", unit: "ms", less: true, quantile: 0.99, bound: 50}},
		},
		{
			// Each group has at most one job at a time. With fewer jobs than groups each job has a group of its own.
			peer:   "asynq, no groups",
			ours:   side{groupedProcess(100), 200_000, 60_000},
			theirs: side{asynqProcess(100), 20_000, 8_000},
			cases:  []testCase{{name: "groups-100", unit: "jobs/s", target: 4}},
		},
		{
			peer:   "asynq, no groups",
			ours:   side{groupedProcess(10_000), 200_000, 60_000},
			theirs: side{asynqProcess(100), 20_000, 8_000},
			cases:  []testCase{{name: "groups-10000", unit: "jobs/s", target: 4}},
		},
		{
			peer:   "asynq, no groups",
			ours:   side{groupedProcess(100_000), 200_000, 60_000},
			theirs: side{asynqProcess(100), 20_000, 8_000},
			cases:  []testCase{{name: "groups-100000", unit: "jobs/s", target: 4}},
		},
		{
			// The server's processor time for a job, from its enqueue to its end: at most 3 times that of a plain one.
			peer:   "plain jobs",
			ours:   side{groupedProcess(10_000), 200_000, 60_000},
			theirs: side{groupedProcess(0), 200_000, 60_000},
			cases:  []testCase{{name: "groups-cpu", unit: "us/job", less: true, series: serverCPU, target: 0.333}},
		},
		{
			// The same for a job with a unique key: at most twice that of a plain one.
			peer:   "plain jobs",
			ours:   side{uniqueProcess, 200_000, 60_000},
			theirs: side{groupedProcess(0), 200_000, 60_000},
			cases:  []testCase{{name: "unique-cpu", unit: "us/job", less: true, series: serverCPU, target: 0.5}},
		},
		{
			// Plain jobs, in a queue that has had a group.
			peer:   "no groups",
			ours:   side{besideGroups(100), 200_000, 60_000},
			theirs: side{ourProcess(100), 200_000, 60_000},
			cases:  []testCase{{name: "plain-beside-groups-c100", unit: "jobs/s", target: 0.91}},
		},
		{
			peer:   "no groups",
			ours:   side{besideGroups(10), 100_000, 30_000},
			theirs: side{ourProcess(10), 100_000, 30_000},
			cases:  []testCase{{name: "plain-beside-groups-c10", unit: "jobs/s", target: 0.8}},
		},
		{
			// At most twice as long as beside a tenant whose jobs run at the same rate, and don't pile up.
			peer:   "1,000 pending",
			ours:   side{quietBeside(0), 1_000_000, 50_000},
			theirs: side{quietBeside(1000), 1_000_000, 50_000},
			cases:  []testCase{{name: "groups-flood", unit: "ms", less: true, quantile: 0.99, target: 0.5}},
		},
		{
			peer:   "asynq, no order",
			ours:   side{serialProcess, 200_000, 60_000},
			theirs: side{asynqProcess(100), 20_000, 8_000},
			cases:  []testCase{{name: "serial-throughput", unit: "jobs/s", target: 4}},
		},
		{
			ours:  side{rateAccuracy(1), 10_000, 2_000},
			cases: []testCase{{name: "rate-accuracy", unit: "share", bound: 0.95}},
		},
		{
			ours:  side{rateAccuracy(20), 10_000, 2_000},
			cases: []testCase{{name: "rate-accuracy-groups", unit: "share", bound: 0.95}},
		},
		{
			peer:   "asynq",
			ours:   side{ourTicks, 2000, 400},
			theirs: side{asynqTicks, 2000, 400},
			cases:  []testCase{{name: "cron-lag-p99", unit: "ms", less: true, quantile: 0.99, bound: 50}},
		},
		{
			peer:   "asynq",
			ours:   side{ourDelayed, 2000, 400},
			theirs: side{asynqDelayed, 2000, 400},
			cases:  []testCase{{name: "delayed-lateness-p99", unit: "ms", less: true, quantile: 0.99, bound: 10}},
		},
		{
			ours:  side{delayedCrowd, 200_000, 40_000},
			cases: []testCase{{name: "delayed-crowd-script", unit: "ms", less: true, quantile: 1, bound: 5}},
		},
		{
			// Both sides are the same: what the bench can't see are differences of this size.
			peer:   "trace-off again",
			ours:   side{tracedProcess(noProviders), 200_000, 60_000},
			theirs: side{tracedProcess(noProviders), 200_000, 60_000},
			cases:  []testCase{{name: "trace-off", unit: "jobs/s", target: 0.9}},
		},
		{
			// Two builds of this program, as the code that is compared can't be in one.
			peer:     "tracing removed",
			programs: removal,
			ours:     side{removal.process(asItIs, "nobody"), 200_000, 60_000},
			theirs:   side{removal.process(patched, "nobody"), 200_000, 60_000},
			cases:    []testCase{{name: "trace-removed", unit: "jobs/s", target: 0.9}},
		},
		{
			peer:   "trace-off",
			ours:   side{tracedProcess(noopProviders), 200_000, 60_000},
			theirs: side{tracedProcess(noProviders), 200_000, 60_000},
			cases:  []testCase{{name: "trace-noop", unit: "jobs/s", target: 0.9}},
		},
		{
			peer:   "trace-off",
			ours:   side{tracedProcess(sdkProviders), 100_000, 30_000},
			theirs: side{tracedProcess(noProviders), 200_000, 60_000},
			cases:  []testCase{{name: "trace-on", unit: "jobs/s", target: 0.6}},
		},
		{
			peer:   "trace-off",
			ours:   side{inService(tracedProcess(sdkProviders)), 100_000, 30_000},
			theirs: side{inService(tracedProcess(noProviders)), 200_000, 60_000},
			cases:  []testCase{{name: "trace-on-service", unit: "jobs/s", target: 0.6}},
		},
		{
			peer:   "redislock",
			ours:   side{lockCycles(ourLocks, 1), 20_000, 4_000},
			theirs: side{lockCycles(redislocks, 1), 20_000, 4_000},
			cases:  []testCase{{name: "lock-c1", unit: "cycles/s", target: 0.9}},
		},
		{
			peer:   "rueidislock",
			ours:   side{lockCycles(ourLocks, 64), 100_000, 24_000},
			theirs: side{lockCycles(rueidislocks, 64), 100_000, 24_000},
			cases:  []testCase{{name: "lock-c64", unit: "cycles/s", target: 1}},
		},
		{
			peer:   "rueidislock",
			ours:   side{contended(ourLocks), 16_000, 4_800},
			theirs: side{contended(rueidislocks), 16_000, 4_800},
			cases: []testCase{
				{name: "lock-contended-16", unit: "cycles/s", series: cyclesPerSecond, target: 2},
				{name: "lock-contended-16-p99", unit: "ms", less: true, series: waits, quantile: 0.99, bound: 10},
			},
		},
		{
			// The fastest peer that gives all their turn. Those with longer pauses have more cycles, one
			// process after the other: one has all its locks while the others sleep.
			peer:   "redislock",
			ours:   side{contendedProcesses("signalbox"), 8_000, 2_400},
			theirs: side{contendedProcesses("redislock"), 8_000, 2_400},
			cases: []testCase{
				{name: "lock-contended-16-processes", unit: "cycles/s", series: cyclesPerSecond, target: 2},
				{name: "lock-contended-16-processes-p99", unit: "ms", less: true, series: waits, quantile: 0.99, bound: 20},
				{name: "lock-contended-16-processes-jain", unit: "index", series: jain, bound: 0.95},
			},
		},
		{
			peer:   "redsync",
			ours:   side{redlockCycles(ourRedlock, 1), 5_000, 1_000},
			theirs: side{redlockCycles(redsyncs, 1), 5_000, 1_000},
			cases:  []testCase{{name: "redlock-c1", unit: "cycles/s", target: 1.5}},
		},
		{
			peer:   "redsync",
			ours:   side{redlockCycles(ourRedlock, 64), 20_000, 3_000},
			theirs: side{redlockCycles(redsyncs, 64), 10_000, 1_500},
			cases:  []testCase{{name: "redlock-c64", unit: "cycles/s", target: 4}},
		},
		{
			peer:   "redsync, failing fast",
			ours:   side{redlockTwoDown(ourRedlock), 300, 100},
			theirs: side{redlockTwoDown(redsyncsFailingFast), 300, 100},
			// The timeout of a node is 50 ms.
			cases: []testCase{{name: "redlock-two-down", unit: "ms", less: true, quantile: 0.99, bound: 60}},
		},
	}, outboxContests(), postgresContests(), etcdContests(), zooKeeperContests())
}

// limit is the bound for people.
func (tc *testCase) limit() string {
	switch {
	case tc.bound == 0:
		return ""
	case tc.less:
		return "<= " + figure(tc.bound)
	}
	return ">= " + figure(tc.bound)
}

func names(contests []contest) []string {
	var list []string
	for _, c := range contests {
		for _, tc := range c.cases {
			list = append(list, tc.name)
		}
	}
	return list
}

// choose keeps the cases of a list of names; an empty list keeps all.
func choose(all []contest, list string) ([]contest, error) {
	if list == "" {
		return all, nil
	}
	wanted := strings.Split(list, ",")
	for _, name := range wanted {
		if !slices.Contains(names(all), name) {
			return nil, fmt.Errorf("-case %q: there is no such case; there are %s", name, strings.Join(names(all), ", "))
		}
	}
	var chosen []contest
	for _, c := range all {
		c.cases = slices.DeleteFunc(slices.Clone(c.cases), func(tc testCase) bool { return !slices.Contains(wanted, tc.name) })
		if len(c.cases) > 0 {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}
