package scheduler

import "time"

const (
	// clockPatience is how long a jump of Redis' clock must last before it is followed. A process
	// that has watched the clock for less follows at once.
	clockPatience = 10 * time.Second
	// clockStep is the smallest jump. Less is followed at once.
	clockStep = time.Second
	// clockDrift is how far the two clocks may drift apart between two readings: a thousandth.
	clockDrift = 1000
)

// monotonic returns a clock that never steps and, on Linux, does not stop while the machine is
// suspended. Only differences of its times count.
func monotonic() func() time.Time {
	base, boot := time.Now(), uptime()
	if boot == 0 {
		return time.Now
	}
	return func() time.Time { return base.Add(uptime() - boot) }
}

// A reading is one look at the server's clock: it showed t at some moment from sent to got, which
// are times of our clock.
type reading struct{ t, sent, got time.Time }

// at returns the server's time at our time x. It may be behind, by the time that the reading took, and is never ahead.
func (r reading) at(x time.Time) time.Time { return r.t.Add(x.Sub(r.got)) }

// apart returns by how much a later reading is ahead of what r foretells; 0 if they agree.
func (r reading) apart(later reading) time.Duration {
	tolerance := clockStep + later.got.Sub(r.got).Abs()/clockDrift
	earliest, latest := r.at(later.got), r.at(later.got).Add(r.got.Sub(r.sent))
	switch {
	case later.t.Sub(latest) > tolerance:
		return later.t.Sub(earliest)
	case earliest.Sub(later.t.Add(later.got.Sub(later.sent))) > tolerance:
		return later.t.Sub(earliest)
	}
	return 0
}

// A reckoning is what this process takes for the server's time. Between readings it goes by our
// own clock. A jump of the server's clock against ours is followed when it has lasted for clockPatience;
// until then the old reckoning goes on. The zero value knows nothing.
type reckoning struct {
	known  bool
	trust  reading   // the reckoning goes by this one
	since  time.Time // since when all readings agreed, by our clock
	jumped bool      // the server's clock shows another time
	other  reading   // the latest of that time
	seen   time.Time // when the jump was first seen, by our clock
}

// A clockEvent is what a reading meant.
type clockEvent int

const (
	clockSteady   clockEvent = iota // nothing new
	clockJumped                     // the server's clock jumped; the old reckoning goes on
	clockBack                       // it shows the old time again
	clockFollowed                   // the jump has lasted long enough: the reckoning goes by the new time
	clockReplaced                   // it jumped while the reckoning was new: it goes by the new time at once
)

// take takes a reading. by is the size of the jump that the event is about.
func (c *reckoning) take(r reading) (event clockEvent, by time.Duration) {
	if !c.known {
		c.known, c.trust, c.since = true, r, r.got
		return clockSteady, 0
	}
	if c.jumped && r.sent.Before(c.seen) {
		return clockSteady, 0 // it may be from before the jump
	}
	by = c.trust.apart(r)
	switch {
	case by == 0:
		if c.jumped {
			event, by = clockBack, c.trust.apart(c.other)
		}
		c.trust, c.jumped = r, false
	case !c.settled(r.got):
		event = clockReplaced
		c.trust, c.since, c.jumped = r, r.got, false
	case !c.jumped || c.other.apart(r) != 0:
		event = clockJumped
		c.jumped, c.other, c.seen = true, r, r.got
	case r.got.Sub(c.seen) >= clockPatience:
		event = clockFollowed
		c.trust, c.since, c.jumped = r, c.seen, false
	default:
		c.other = r
	}
	return event, by
}

// now returns the server's time at our time x, as we reckon it.
func (c *reckoning) now(x time.Time) time.Time { return c.trust.at(x) }

// settled reports whether the clock was watched for long enough to trust the reckoning more than
// the server's clock, and more than ticks in Redis that are in the future.
func (c *reckoning) settled(x time.Time) bool {
	return c.known && x.Sub(c.since) >= clockPatience
}

// skew returns how far our reckoning is ahead of what the server's clock shows.
func (c *reckoning) skew(x time.Time) time.Duration {
	if !c.jumped {
		return 0
	}
	return c.trust.at(x).Sub(c.other.at(x))
}
