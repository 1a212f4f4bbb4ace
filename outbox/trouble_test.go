package outbox

import (
	"testing"
	"time"
)

// Something that goes on failing is logged every 10 s. That all works again is reported once, with how long it was, and only if a failure was logged.
func TestTroubles(t *testing.T) {
	t.Parallel()
	var all troubles
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	tells := func(s int, what string, want bool) {
		t.Helper()
		if got := all.fails(what, at(s)); got != want {
			t.Errorf("after %d s, %s: %v", s, what, got)
		}
	}
	ends := func(s int, what string, want time.Duration) {
		t.Helper()
		if outage, over := all.works(what, at(s)); over != (want > 0) || over && outage != want {
			t.Errorf("after %d s, %s: %v, %v", s, what, outage, over)
		}
	}
	ends(0, "a", 0)
	tells(0, "a", true)
	tells(1, "b", true)
	tells(9, "a", false)
	tells(10, "a", true)
	ends(12, "a", 0)
	ends(13, "a", 0)
	ends(14, "b", 14*time.Second)
	ends(15, "b", 0)
	tells(16, "a", false) // so soon after the last time that nobody wants to know
	ends(17, "a", 0)
	tells(20, "a", true)
	ends(21, "a", time.Second)

	tells(30, "a", true) // then another relay takes over
	tells(33, "c", true)
	if _, over := all.forget(at(80)); over {
		t.Error("forgotten after 50 s")
	}
	if outage, over := all.forget(at(95)); !over || outage != 3*time.Second {
		t.Errorf("got %v, %v", outage, over)
	}
	if _, over := all.forget(at(300)); over || len(all.last)+len(all.told) != 0 {
		t.Errorf("it remembers %v, %v", all.last, all.told)
	}
	if !all.tell("d", at(301)) || all.tell("d", at(302)) || !all.tell("d", at(312)) {
		t.Error("what is no failure")
	}
}

// A shard that stands still is tried again after longer and longer pauses, up to 10 s.
func TestPauses(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]time.Duration{0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 6: 3200 * time.Millisecond, 8: longestWait, 1000: longestWait} {
		if got := pauseAfter(n); got != want {
			t.Errorf("after %d refusals: %v, want %v", n, got, want)
		}
	}
}
