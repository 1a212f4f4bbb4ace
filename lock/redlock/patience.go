package redlock

import "time"

const (
	// lateAlarm is how late a timer may fire before that shows that this process was late itself.
	lateAlarm = 5 * time.Millisecond
	// most bounds a patience: it lasts at most so many times its length.
	most = 2
)

// A patience bounds the wait for the nodes of a Locker. If its timer fires late, this process was paused, or its
// machine is loaded. Then requests may have been sent late, and answers may lie unread. So it lasts as long
// again, once.
type patience struct {
	length time.Duration
	timer  *time.Timer
	end    time.Time
	again  bool
}

func newPatience(length time.Duration) patience {
	return patience{length: length, timer: time.NewTimer(length), end: time.Now().Add(length)}
}

// begin starts a new wait.
func (p *patience) begin() {
	p.timer.Reset(p.length)
	p.end, p.again = time.Now().Add(p.length), false
}

// over is called when the timer has fired. It reports whether the wait is over.
func (p *patience) over() bool { return p.overAt(time.Now()) }

func (p *patience) overAt(now time.Time) bool {
	if p.again || now.Sub(p.end) < lateAlarm {
		return true
	}
	p.again = true
	p.timer.Reset(p.length)
	return false
}

func (p *patience) stop() { p.timer.Stop() }
