package signalbox

import "time"

// NoLimit says that there is no limit: in Running of [Limits], or in Jobs of [Rate]. A group whose own limits say so has none there, whatever those of all groups say.
const NoLimit = -1

// Limits bound what runs of a queue, or of each of its groups, across all workers. The zero value bounds nothing. In the limits of a single group
// Running has the value that it has for all groups if it is 0, and Rate, as a whole, if its Jobs is 0: also when that changes later. See [NoLimit].
type Limits struct {
	// Running is how many jobs run at a time, at most: 1 to 1,000,000; 0 and NoLimit are no limit. A job counts from its claim until its outcome is
	// settled, or until it is taken back from a worker that died. A job of a group that isn't serial doesn't count while it waits for its retry.
	Running int
	// Rate is how often jobs start.
	Rate Rate
}

// A Rate is how often jobs start, at most: a delivery counts when a worker claims it, also one that runs a job again. The zero value is no limit.
type Rate struct {
	// Jobs is how many start in each Per: 1 to 1,000,000; 0 and NoLimit are no limit.
	Jobs int
	// Per is a time of 1 ms to 24 h. 0 is 1 s.
	Per time.Duration
	// Burst is how many may start at once after a time without any: 1 to 1,000,000. 0 is 1: then jobs start evenly.
	Burst int
}

// RetainNone is how long a job is kept after it has ended that is not to be kept at all: for scheduler.Retain, and [Defaults].
const RetainNone time.Duration = -1

// A Retention limits the jobs of a queue that have ended and are kept. It holds for dead jobs and for cancelled jobs separately. Another one
// is for completed jobs, of which a queue keeps none unless that is set. Beyond a limit, the oldest jobs are dropped. A field that is 0 means its
// default.
type Retention struct {
	// Jobs limits the number of jobs, up to 10^15-1. Default 100,000.
	Jobs int64
	// Bytes limits the size of their records together, in bytes, up to 10^15-1. Default 256 MiB.
	Bytes int64
	// Age limits how long a job is kept: 1 µs to 10,000 days, in whole microseconds. Default 30 days.
	Age time.Duration
}
