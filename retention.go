package signalbox

import "time"

// A Retention limits the dead jobs and the cancelled jobs that a queue keeps. It holds for each of the two separately.
// Beyond a limit, the oldest jobs are dropped. A field that is 0 means its default.
type Retention struct {
	// Jobs limits the number of jobs, up to 10^15-1. Default 100,000.
	Jobs int64
	// Bytes limits the size of their records together, in bytes, up to 10^15-1. Default 256 MiB.
	Bytes int64
	// Age limits how long a job is kept: 1 µs to 10,000 days, in whole microseconds. Default 30 days.
	Age time.Duration
}
