package signalbox

import "time"

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
