package lease

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// boottime returns the time since the machine started, including suspends. If the kernel doesn't report it, it always
// returns 0. Then only the monotonic clock counts.
func boottime() time.Duration { return slept.boottime(readClocks, readBoottime) }

// readClocks reads the monotonic clock, since the process began, and the wall clock, in ns since 1970. With the usual
// clock sources it makes no system call.
func readClocks() (mono time.Duration, wall int64) {
	now := time.Now()
	return now.Sub(began), now.UnixNano()
}

// readBoottime makes a system call. That takes longer than all other steps of checking a lease.
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
	// bootReading is how long a reading of CLOCK_BOOTTIME is used. During that time the monotonic clock's progress is
	// added to it.
	bootReading = 10 * time.Millisecond
	// sleepless is the longest time that the readings of the clocks may take. It is also the largest difference that
	// the wall clock and the monotonic clock may have afterwards.
	sleepless = time.Millisecond
	// realTime is 2020, in ns since 1970. An earlier wall clock isn't real: a testing/synctest bubble begins in 2000.
	realTime = 1_577_836_800_000_000_000
)

// A sleepClock computes CLOCK_BOOTTIME without a system call: for up to bootReading it adds the progress of the
// monotonic clock to the last reading. The result is at most 1 ms ahead. It is behind only by suspends of less than 1
// ms. After a longer suspend the reading is not used any more: the wall clock counts a suspend and the monotonic clock
// doesn't, so the two differ. A suspend is missed only if, within the same bootReading, the wall clock is set back by
// just the time of the suspend.
type sleepClock struct{ last atomic.Pointer[bootRecord] }

// A bootRecord has readings of the clocks, made in the order wall, mono, boot. mono and wall are read once more
// afterwards. So a suspend between any two readings is noticed.
type bootRecord struct {
	mono time.Duration
	wall int64
	boot time.Duration
}

// boottime returns the value of CLOCK_BOOTTIME.
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
