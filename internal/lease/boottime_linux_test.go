package lease

import (
	"testing"
	"time"
)

// CLOCK_BOOTTIME is read again if the machine may have slept since the last reading, and after 10 ms.
func TestSleepClock(t *testing.T) {
	t.Parallel()
	const (
		ms    = time.Millisecond
		start = int64(1_800_000_000_000_000_000)
	)
	for name, c := range map[string]struct {
		mono time.Duration // since the first reading
		wall time.Duration
		read bool
	}{
		"at once":                        {0, 0, false},
		"soon":                           {9 * ms, 9 * ms, false},
		"the wall clock is slewed":       {9 * ms, 9*ms + 9*time.Microsecond, false},
		"later":                          {10 * ms, 10 * ms, true},
		"after a suspend":                {ms, ms + 5*time.Second, true},
		"after a short suspend":          {0, ms, true},
		"the wall clock is set back":     {ms, -time.Hour, true},
		"set back by a moment":           {5 * ms, 4 * ms, true},
		"another began to read earlier":  {-ms, -ms, true},
		"after a pause, all clocks told": {time.Minute, time.Minute, true},
	} {
		var s sleepClock
		mono, wall := time.Hour, start
		clocks := func() (time.Duration, int64) { return mono, wall }
		if got := s.boottime(clocks, func() time.Duration { return 7 * time.Hour }); got != 7*time.Hour {
			t.Fatalf("%s: the first reading is %v", name, got)
		}
		mono, wall = mono+c.mono, wall+int64(c.wall)
		reads := 0
		got := s.boottime(clocks, func() time.Duration { reads++; return 8 * time.Hour })
		want := 7*time.Hour + c.mono
		if c.read {
			want = 8 * time.Hour
		}
		if got != want || (reads == 1) != c.read {
			t.Errorf("%s: %v after %d readings, want %v", name, got, reads, want)
		}
	}
}

// Some readings are not used again: one that took long, since its moment is unknown; one that the kernel refused; and
// one in a bubble of testing/synctest, whose clocks aren't real.
func TestSleepClockReadsAgain(t *testing.T) {
	t.Parallel()
	now := time.Now().UnixNano()
	for name, c := range map[string]struct {
		wall       int64
		boot       time.Duration
		mono, late time.Duration // progress during the reading, of the monotonic clock and of the wall clock
	}{
		"synctest":          {time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano(), time.Hour, 0, 0},
		"refused":           {now, 0, 0, 0},
		"a pause":           {now, time.Hour, time.Millisecond, time.Millisecond},
		"a suspend":         {now, time.Hour, 0, time.Second},
		"the wall set back": {now, time.Hour, 0, -time.Second},
	} {
		var s sleepClock
		mono, wall, reads := time.Second, c.wall, 0
		clocks := func() (time.Duration, int64) { return mono, wall }
		for range 3 {
			got := s.boottime(clocks, func() time.Duration {
				reads++
				mono, wall = mono+c.mono, wall+int64(c.late)
				return c.boot
			})
			if got != c.boot {
				t.Errorf("%s: %v", name, got)
			}
		}
		if reads != 3 {
			t.Errorf("%s: %d readings of 3", name, reads)
		}
	}
}

// boottime agrees with CLOCK_BOOTTIME.
func TestBoottime(t *testing.T) {
	t.Parallel()
	for range 1000 {
		before := readBoottime()
		got := boottime()
		after := readBoottime()
		if got < before-sleepless || got > after+sleepless {
			t.Fatalf("%v, and the clock shows %v to %v", got, before, after)
		}
	}
}
