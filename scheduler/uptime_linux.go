package scheduler

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns the time since the machine started, with the time that it was suspended. It is 0
// forever if the kernel refuses to tell.
func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
