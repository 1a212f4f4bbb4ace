package signalbox

import "time"

// A Retention says what a queue keeps of its dead jobs, and of its cancelled jobs. The two count apart. The oldest jobs beyond
// it are dropped. A field that is 0 stands for its default.
type Retention struct {
	// Jobs is how many are kept, up to 10^15-1. Default 100,000.
	Jobs int64
	// Bytes bounds the records of those that are kept, in bytes, up to 10^15-1. Default 256 MiB.
	Bytes int64
	// Age is how long they are kept: 1 µs to 10,000 days, in whole microseconds. Default 30 days.
	Age time.Duration
}
