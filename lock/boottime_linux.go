package lock

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime is the time since the machine started, including suspends. If the kernel
// refuses to tell, it is 0 forever and the monotonic clock decides alone.
func boottime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}
