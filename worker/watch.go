package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A watch is what tracing and metrics hear of one delivery.
type watch struct {
	telemetry.Delivery
	id       string
	token    int64
	since    time.Time
	how      telemetry.Settle
	returned time.Time // when the handler had
	over     bool      // and the settlement is on its way; guarded by the queue's mu
	lost     atomic.Bool
}

// Event tells of an event; of the loss of the lease once.
func (v *watch) Event(name string) {
	if name != telemetry.EventLeaseLost || v.lost.CompareAndSwap(false, true) {
		v.Delivery.Event(name)
	}
}

// watches tells whether anybody would listen to a watch. Middleware of the user's may.
func (w *Worker) watches() bool {
	return w.middlemen || w.traces() || !telemetry.MetricsSilent(w.cfg.MeterProvider)
}

// traces tells whether there is anybody to make spans for by default.
func (w *Worker) traces() bool { return !telemetry.Silent(w.cfg.TracerProvider) }

// Redis is told of the span of a delivery that runs, so that who takes the job over after a crash can
// link to it: with the first call that a lane makes after markFrom, or with one of its own
// after markBy. Most deliveries of a busy queue are over by then.
const (
	markFrom = 10 * time.Millisecond
	markBy   = 50 * time.Millisecond
)

// watch begins to watch a delivery of the session. q.mu is held.
func (q *queue) watch(s *session, d *store.Delivery, now time.Time) *watch {
	v := &watch{id: d.Job.ID, token: d.Job.Token, since: now}
	v.Previous = telemetry.ParseSpan(d.Span)
	if q.w.traces() && d.Err == nil && q.w.kinds[d.Job.Kind] != nil {
		s.unmarked = append(s.unmarked, v)
		q.markSoon()
	}
	return v
}

// mark tells whether Redis is to hear of the span at a time, or later; neither: never. q.mu is held.
func (v *watch) mark(at time.Time) (now, later bool) {
	traced := v.Traced()
	switch {
	case v.over, traced && !v.SpanContext().IsSampled():
		return false, false
	case !traced, at.Sub(v.since) < markFrom: // !traced: it is about to begin
		return false, true
	}
	return true, false
}

// markSoon has a lane make a call if there are marks to send by then, and none went with another.
// q.mu is held.
func (q *queue) markSoon() {
	if q.marking {
		return
	}
	q.marking = true
	time.AfterFunc(markBy, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.marking = false
		at := time.Now()
		for _, s := range q.sessions {
			for _, v := range s.unmarked {
				switch now, later := v.mark(at); {
				case now:
					q.probe = true
					q.summon()
					return
				case later:
					q.markSoon()
				}
			}
		}
	})
}

// marks are the spans that Redis is to hear of with a call. q.mu is held.
func (s *session) marks() []store.Mark {
	if len(s.unmarked) == 0 {
		return nil
	}
	var marks []store.Mark
	left, at := s.unmarked[:0], time.Now()
	for _, v := range s.unmarked {
		switch now, later := v.mark(at); {
		case now && len(marks) < store.MaxBatch:
			marks = append(marks, store.Mark{ID: v.id, Token: v.token, Span: telemetry.FormatSpan(v.SpanContext())})
		case now, later:
			left = append(left, v)
		}
	}
	clear(s.unmarked[len(left):])
	s.unmarked = left
	return marks
}

// tell tells the watched deliveries of a session whose handlers run what happens to them; of all
// sessions if it is nil. q.mu is held.
func (q *queue) tell(event string, s *session) {
	for i := range q.slots {
		if sl := &q.slots[i]; sl.watch != nil && sl.session != nil && (s == nil || sl.session == s) {
			sl.watch.Event(event)
		}
	}
}

// settling tells the watch how its delivery is about to be settled. lease is the session's context.
func (v *watch) settling(lease context.Context, r *store.Settlement, snoozed bool) {
	if v == nil {
		return
	}
	v.returned = time.Now()
	// A handler that ended well held the lease: middleware.Lock has just looked at the clock.
	if r.Outcome != store.Completed && errors.Is(context.Cause(lease), lock.ErrLost) {
		v.Event(telemetry.EventLeaseLost) // by the clock, before anybody told
	}
	how, again := telemetry.SettleCompleted, true
	switch r.Outcome {
	case store.Completed:
		again = false
	case store.Retry:
		how = telemetry.SettleRetried
	case store.Delay:
		if how = telemetry.SettleReturned; snoozed {
			how = telemetry.SettleSnoozed
		}
	case store.Return:
		how = telemetry.SettleReturned
	case store.Dead:
		how, again = telemetry.SettleDead, false
	case store.Cancelled:
		how, again = telemetry.SettleCancelled, false
	}
	var next time.Time
	if (r.Outcome == store.Retry || r.Outcome == store.Delay) && r.Delay > 0 {
		next = v.returned.Add(r.Delay)
	}
	if span := v.SpanContext(); again && span.IsSampled() {
		r.Span = telemetry.FormatSpan(span)
	}
	v.how = how
	r.Ref = v
	v.Settling(how, next)
}

// settled tells the watches of settlements what came of telling Redis.
func settled(batch []store.Settlement, refused []int, unknown bool) {
	for i := range batch {
		if v, ok := batch[i].Ref.(*watch); ok {
			superseded := len(refused) > 0 && refused[0] == i
			v.Settled(telemetry.Settled{How: v.how, Took: time.Since(v.returned), Refused: superseded, Unknown: unknown})
		}
		for len(refused) > 0 && refused[0] <= i {
			refused = refused[1:]
		}
	}
}

// workers counts the workers of this process, so that each has a name of its own.
var workers atomic.Int64

// clientID names a worker to people.
func clientID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d:%d", host, os.Getpid(), workers.Add(1))
}
