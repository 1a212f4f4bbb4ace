package batch

import (
	"testing"
	"time"
)

func TestServerClock(t *testing.T) {
	t.Parallel()
	var c Clock
	now := time.Now()
	if c.At(now) != 0 {
		t.Error("it knows the time before any reply")
	}
	c.Saw(0, now)
	if c.At(now) != 0 {
		t.Error("a reply without a time counts")
	}
	c.Saw(5_000_000, now)
	c.Saw(4_000_000, now) // was longer on its way back, or the clock was stepped back just now
	if got := c.At(now.Add(time.Second)); got != 6_000_000 {
		t.Errorf("%d", got)
	}
	c.Saw(7_000_000, now) // stepped ahead
	if got := c.At(now); got != 7_000_000 {
		t.Errorf("after a step ahead: %d", got)
	}
	later := now.Add(clockAge + time.Second)
	c.Saw(8_000_000, later)
	if got := c.At(later); got != 8_000_000 {
		t.Errorf("a minute after a step back: %d", got)
	}
}
