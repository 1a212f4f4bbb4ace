//go:build !linux

package scheduler

import "time"

// uptime returns 0: Go's monotonic clock decides alone.
func uptime() time.Duration { return 0 }
