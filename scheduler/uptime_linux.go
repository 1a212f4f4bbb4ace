package scheduler

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns the time since the machine started, including suspends. If the kernel doesn't
// report it, uptime always returns 0.
func uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
