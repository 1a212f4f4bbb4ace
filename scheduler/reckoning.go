package scheduler

import "time"

const (
	// clockPatience is how long a jump of Redis' clock must last before it is followed. A process that has watched the
	// clock for a shorter time follows at once.
	clockPatience = 10 * time.Second
	// clockStep is the size from which a difference counts as a jump. A smaller one is followed at once.
	clockStep = time.Second
	// clockDrift is how far the two clocks may drift apart between two readings: one part in a thousand.
	clockDrift = 1000
)

// realTime is 2020. An earlier wall clock is no real one: a testing/synctest bubble begins in 2000.
var realTime = time.Date(2020, time.January, 1, 0, 0, 0, 0, time.UTC)

// monotonic returns a clock that never steps and, on Linux, doesn't stop while the machine is suspended. In a bubble of
// testing/synctest it is the bubble's clock. Use only differences of its times.
func monotonic() func() time.Time {
	base, boot := time.Now(), uptime()
	if boot == 0 || base.Before(realTime) {
		return time.Now
	}
	return func() time.Time { return base.Add(uptime() - boot) }
}

// A reading is one look at the server's clock. The clock showed t at some moment between sent and got, which are times
// of our clock.
type reading struct{ t, sent, got time.Time }

// at returns the server's time at our time x. It may be behind by the time that the reading took. It is never ahead.
func (r reading) at(x time.Time) time.Time { return r.t.Add(x.Sub(r.got)) }

// apart returns by how much a later reading is ahead of the time that r predicts. It returns 0 if they agree.
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

// A reckoning is this process's estimate of the server's time. Between readings it adds the progress of our own clock.
// If the server's clock jumps, the reckoning follows when the jump has lasted for clockPatience. Until then the old
// estimate goes on. The zero value has no estimate.
type reckoning struct {
	known  bool
	trust  reading   // the reading that the estimate is based on
	since  time.Time // all readings have agreed since then, by our clock
	jumped bool      // the server's clock shows another time
	other  reading   // the latest reading of that other time
	seen   time.Time // when the jump was first noticed, by our clock
}

// A clockEvent is what a reading shows about the server's clock.
type clockEvent int

const (
	clockSteady   clockEvent = iota // nothing new
	clockJumped                     // it jumped; the old estimate goes on
	clockBack                       // it shows the old time again
	clockFollowed                   // the jump has lasted long enough: the estimate now follows it
	clockReplaced                   // it jumped while the reckoning was new: the estimate follows at once
)

// take adds a reading. by is the size of the jump that the event is about.
func (c *reckoning) take(r reading) (event clockEvent, by time.Duration) {
	if !c.known {
		c.known, c.trust, c.since = true, r, r.got
		return clockSteady, 0
	}
	if c.jumped && r.sent.Before(c.seen) {
		return clockSteady, 0 // it may have been sent before the jump
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

// now returns the estimate of the server's time at our time x.
func (c *reckoning) now(x time.Time) time.Time { return c.trust.at(x) }

// settled reports whether the clock was watched for long enough. Then the estimate counts more than the server's
// clock, and more than last ticks in Redis that are in the future.
func (c *reckoning) settled(x time.Time) bool {
	return c.known && x.Sub(c.since) >= clockPatience
}

// skew returns by how much the estimate is ahead of the server's clock.
func (c *reckoning) skew(x time.Time) time.Duration {
	if !c.jumped {
		return 0
	}
	return c.trust.at(x).Sub(c.other.at(x))
}
