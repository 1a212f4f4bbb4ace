package worker

import "time"

// An alarm calls ring at a set time: when a job is due or a session expires. An earlier time replaces a later one. The queue's mu
// guards it.
type alarm struct {
	mu    *mutex
	ring  func() // called without mu
	timer *time.Timer
	at    time.Time // when it rings; zero if it isn't set
}

// set makes the alarm ring at a time, or at once if that has passed. If it is set to ring earlier, nothing changes. mu is held.
func (a *alarm) set(at time.Time) {
	if !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), a.rings)
		return
	}
	a.timer.Reset(time.Until(at))
}

func (a *alarm) rings() {
	a.mu.Lock()
	a.at = time.Time{}
	a.mu.Unlock()
	a.ring()
}

// stop ends the alarm. mu is held.
func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
