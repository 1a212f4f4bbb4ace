package lease

import "time"

// An Instant is a moment on the clocks that measure a lease: the monotonic clock and, on Linux,
// CLOCK_BOOTTIME. CLOCK_BOOTTIME also counts the time that the machine was suspended. Go's monotonic
// clock stands still during a suspend.
type Instant struct {
	mono time.Time
	boot time.Duration
}

// Now reads the clocks. Take it before the call that asks for a lease: the server's TTL begins after
// that moment.
func Now() Instant { return Instant{mono: time.Now(), boot: boottime()} }

// Time returns the moment with its monotonic reading. For the zero Instant it returns the zero time.
func (i Instant) Time() time.Time { return i.mono }

// Add returns the moment d later on both clocks.
func (i Instant) Add(d time.Duration) Instant { return Instant{i.mono.Add(d), i.boot + d} }

// SleptSince returns how long the machine was suspended between an earlier moment and this one.
func (i Instant) SleptSince(earlier Instant) time.Duration {
	return i.boot - earlier.boot - i.mono.Sub(earlier.mono)
}
