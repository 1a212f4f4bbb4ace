//go:build !linux

package scheduler

import "time"

// uptime returns 0: only Go's monotonic clock counts.
func uptime() time.Duration { return 0 }
