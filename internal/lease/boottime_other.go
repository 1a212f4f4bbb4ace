//go:build !linux

package lease

import "time"

// boottime is 0 forever: the monotonic clock decides alone.
func boottime() time.Duration { return 0 }
