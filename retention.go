package signalbox

import "time"

// A Retention says how many of its dead jobs a queue keeps, and by themselves how many of its cancelled ones. Beyond that
// the oldest are dropped. A field that is 0 stands for its default.
type Retention struct {
	// Jobs is how many are kept. Default 100,000.
	Jobs int64
	// Bytes is how many bytes the records of those have that are kept. Default 256 MiB.
	Bytes int64
	// Age is how long they are kept, in whole microseconds. Default 30 days.
	Age time.Duration
}
