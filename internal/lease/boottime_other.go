//go:build !linux

package lease

import "time"

// boottime always returns 0: only the monotonic clock counts.
func boottime() time.Duration { return 0 }
