package batch

import (
	"sync/atomic"
	"time"
)

// clockAge is how long an estimate of the server's clock is kept when later ones are lower.
const clockAge = time.Minute

// begun is the zero of the monotonic times below.
var begun = time.Now()

// A Clock estimates the server's clock from the times in its replies. The estimate may be late, by at most the
// round trip, or by the difference between the clocks of a Cluster's nodes. It follows a step ahead with the next
// reply, and a step back within a minute of use.
type Clock struct {
	Ahead atomic.Int64 // how far it is ahead of our monotonic time, µs; 0: unknown
	taken atomic.Int64 // when that was found, by our monotonic time, µs
}

// Saw notes that the server's clock showed now (µs since 1970) in the answer to a call that was sent at sent.
func (c *Clock) Saw(now int64, sent time.Time) {
	if now <= 0 {
		return
	}
	ours := sent.Sub(begun).Microseconds()
	ahead := now - ours
	if old := c.Ahead.Load(); old == 0 || ahead > old || ours-c.taken.Load() > clockAge.Microseconds() {
		c.Ahead.Store(ahead)
		c.taken.Store(ours)
	}
}

// At returns about what the server's clock shows at t, µs; 0: unknown.
func (c *Clock) At(t time.Time) int64 {
	ahead := c.Ahead.Load()
	if ahead == 0 {
		return 0
	}
	return ahead + t.Sub(begun).Microseconds()
}

// Due stands for the last argument of a call that must not run late. The Caller replaces it by the last moment at
// which the script may run, by the server's clock, µs; 0: that clock is unknown.
var Due any = dueArg{}

type dueArg struct{}
