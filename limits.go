package signalbox

import "time"

// Limits bound what runs of a queue, or of each of its groups, across all workers. The zero value is no limit.
type Limits struct {
	// Running is how many jobs run at a time, at most: 1 to 1,000,000; 0 is no limit. A job counts from its claim until its outcome is
	// settled, or until it is taken back from a worker that died. A job of a group that isn't serial doesn't count while it waits for its retry.
	Running int
	// Rate is how often jobs start.
	Rate Rate
}

// A Rate is how often jobs start, at most: a delivery counts when a worker claims it, also one that runs a job again. The zero value is no limit.
type Rate struct {
	// Jobs is how many start in each Per: 1 to 1,000,000; 0 is no limit.
	Jobs int
	// Per is a time of 1 ms to 24 h. 0 is 1 s.
	Per time.Duration
	// Burst is how many may start at once after a time without any: 1 to 1,000,000. 0 is 1: then jobs start evenly.
	Burst int
}
