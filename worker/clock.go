package worker

import (
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
)

const (
	// steppedBy is from when on a difference between two clocks is a step.
	steppedBy = time.Second
	// steppedFor is how long a step is reported.
	steppedFor = 5 * time.Minute
	// clockDrift is how far two clocks may drift apart: one part in a thousand.
	clockDrift = 1000
)

// A serverClock notices when the clock of Redis is set: between two replies it goes on by another time than this process's own
// clock. The zero value has seen no reply.
type serverClock struct {
	at           time.Time     // what the clock showed in the last reply
	asked, heard time.Duration // between these, by our clock
	read         time.Time     // the same as heard

	stepped time.Time     // when the last step was seen; zero: there was none
	by      time.Duration // its size; below 0: the clock was set back
}

// take adds a reply to a call that was made at asked and answered at heard, by our clock. It returns by how much the clock was set
// since the last reply, or 0.
func (c *serverClock) take(at time.Time, asked, heard time.Duration) (by time.Duration) {
	if !c.at.IsZero() {
		least, most, showed := asked-c.heard, heard-c.asked, at.Sub(c.at)
		tolerance := steppedBy + most/clockDrift
		switch {
		case showed > most+tolerance:
			by = showed - most
		case showed < least-tolerance:
			by = showed - least
		}
	}
	c.at, c.asked, c.heard = at, asked, heard
	return by
}

// server returns the time by Redis's clock at a time by ours.
func (c *serverClock) server(t time.Time) time.Time { return c.at.Add(t.Sub(c.read)) }

// began is from when on the worker's own clock counts for a serverClock.
var began = lease.Now()

// since returns the time from began to an instant, with that of suspends.
func since(i lease.Instant) time.Duration {
	return i.Time().Sub(began.Time()) + max(i.SleptSince(began), 0) // below 0: the system doesn't report suspends
}

// noteClock looks whether the clock of Redis was set, by the time in a reply to a call that was made between asked and heard. Only the
// keeper calls it.
func (k *keeper) noteClock(at time.Time, asked, heard lease.Instant) {
	k.q.mu.Lock()
	by := k.clock.take(at, since(asked), since(heard))
	k.clock.read = heard.Time()
	if by != 0 {
		k.clock.stepped, k.clock.by = heard.Time(), by
	}
	k.q.mu.Unlock()
	if by != 0 {
		k.q.log.Warn("signalbox: the clock of Redis was set, or another server has become the master: leases and scheduled jobs go by it", "by", by.Round(time.Millisecond).String())
	}
}
