package worker

import (
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/lock"
)

// errForgotten is the cause, a lock.ErrLost, for a session that Redis has forgotten.
var errForgotten = fmt.Errorf("%w: Redis has lost its memory of it", lock.ErrLost)

// A memory notes what of a queue Redis has forgotten that it had answered to this worker. The queue's mu guards it.
type memory struct {
	q         *queue
	forgotten time.Time // when Redis gave the latest of the answers that it has forgotten, by its clock; zero: none is known
	missed    time.Time // when the latest loss was seen, by Redis's clock
}

// recall checks whether a reply to a call for the session shows that Redis has lost memory. Of a reply to a renewal it looks only at
// At and Alive. Redis has lost memory if it doesn't know something that it has answered to this worker:
//
//   - a session: it is not alive, but it has not expired yet
//   - a call of the lane
//   - a delivery of a session that is alive: no other worker takes the jobs of such a session
//
// All these times are of Redis's clock. So a worker that stood still, or whose clock is wrong, sees no loss where there is none. The
// log reports each loss once, and at most one a minute.
//
// recall returns true if Redis has forgotten the session or deliveries of it. Then, if the session is not alive, its contexts end.
func (m *memory) recall(s *session, r *store.ClaimReply) (forgotten bool) {
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	what, answered := "a call", r.Forgot
	early := r.At.Before(s.written.Add(m.q.w.cfg.SessionTTL)) && slices.Contains(m.q.sessions, s) // otherwise this worker may have closed it
	if !r.Alive && early && s.written.After(answered) {
		what, answered = "a lease", s.written
	}
	if r.Alive && len(r.Refused) > 0 && s.opened.After(answered) {
		what, answered = "a delivery", s.opened // this time or later
	}
	if answered.After(m.missed) { // otherwise it is part of the last loss that was seen
		m.missed = r.At
		if sayAgain(m.q.throttled, "memory") {
			m.q.mu.later(func() { m.logLostMemory(what, answered) })
		}
	}
	if answered.After(m.forgotten) {
		m.forgotten = answered
	}
	shown := !answered.IsZero() && !s.opened.After(answered) // this reply shows the loss
	// If the session was renewed after the worker saw a loss, that loss did not end it.
	forgotten = shown || !s.opened.After(m.forgotten) && !s.written.After(m.missed)
	if !r.Alive {
		s.failure = errSessionOver
		if forgotten {
			s.failure = errForgotten
			s.end(errForgotten)
			if slices.Contains(m.q.sessions, s) {
				m.q.keeper.lose(s) // now, since handlers are about to return
			}
		}
	}
	return forgotten
}

func (m *memory) logLostMemory(what string, answered time.Time) {
	m.q.log.Error("signalbox: Redis has lost memory: it does not know what it had answered to this worker. It was flushed, restored from an older copy, "+
		"failed over before it had replicated, or evicts keys. Jobs may be lost, and jobs that were done may run again: "+
		`see "When Redis loses memory" in docs/operations.md`, "forgotten", what, "answered", answered.UTC())
}
