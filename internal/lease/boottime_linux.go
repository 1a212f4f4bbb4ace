package lease

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// boottime is the time since the machine started, including suspends. If the kernel
// refuses to tell, it is 0 forever and the monotonic clock decides alone.
func boottime() time.Duration { return slept.boottime(readClocks, readBoottime) }

// readClocks reads the monotonic clock, since the process began, and the wall clock, in ns since 1970. With the usual clock sources it
// makes no system call.
func readClocks() (mono time.Duration, wall int64) {
	now := time.Now()
	return now.Sub(began), now.UnixNano()
}

// readBoottime makes a system call, which takes longer than all else that a look at a lease does.
func readBoottime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

var (
	slept sleepClock
	began = time.Now()
)

const (
	// bootReading is for how long a reading of CLOCK_BOOTTIME is continued by the monotonic clock.
	bootReading = 10 * time.Millisecond
	// sleepless is how long the readings of the clocks may take, and how far the wall clock and the monotonic clock may
	// differ afterwards.
	sleepless = time.Millisecond
	// realTime is 2020, in ns since 1970. A wall clock before that is none: a testing/synctest bubble begins in 2000.
	realTime = 1_577_836_800_000_000_000
)

// A sleepClock continues the last reading of CLOCK_BOOTTIME by the monotonic clock for up to bootReading. That needs no
// system call. It is at most 1 ms ahead, and behind only by suspends of less than 1 ms. A longer suspend ends it at once: the wall clock counts a suspend and the monotonic clock doesn't.
// Only a step of the wall clock by just the time of the suspend, within the same bootReading, would hide one.
type sleepClock struct{ last atomic.Pointer[bootRecord] }

// A bootRecord has readings of the clocks, made in the order wall, mono, boot. The readings after them show a suspend between
// any two.
type bootRecord struct {
	mono time.Duration
	wall int64
	boot time.Duration
}

// boottime returns what CLOCK_BOOTTIME shows.
func (s *sleepClock) boottime(clocks func() (mono time.Duration, wall int64), read func() time.Duration) time.Duration {
	mono, wall := clocks()
	if l := s.last.Load(); l != nil {
		if passed := mono - l.mono; passed >= 0 && passed < bootReading && awake(passed, wall-l.wall) {
			return l.boot + passed
		}
	}
	boot := read()
	if boot != 0 && wall > realTime {
		m, w := clocks()
		if m-mono < sleepless && awake(m-mono, w-wall) {
			s.last.Store(&bootRecord{mono, wall, boot})
		}
	}
	return boot
}

// awake reports whether the monotonic clock and the wall clock agree on how much time has passed.
func awake(mono time.Duration, wall int64) bool {
	ahead := time.Duration(wall) - mono
	return ahead > -sleepless && ahead < sleepless
}
