package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A watch is what tracing and metrics hear of one delivery.
type watch struct {
	telemetry.Delivery
	id       string
	token    int64
	how      telemetry.Settle
	returned time.Time // when the handler had
	over     bool      // and the settlement is on its way; guarded by the queue's mu
	lost     atomic.Bool
}

// Event tells of an event; of the loss of the lease once.
func (v *watch) Event(name string) {
	if name != telemetry.EventLeaseLost || v.Traced() && v.lost.CompareAndSwap(false, true) {
		v.Delivery.Event(name)
	}
}

// watches tells whether anybody would listen to a watch. Middleware of the user's may.
func (w *Worker) watches() bool {
	return w.middlemen || w.traces() || !telemetry.MetricsSilent(w.cfg.MeterProvider)
}

// traces tells whether there is anybody to make spans for by default.
func (w *Worker) traces() bool { return !telemetry.Silent(w.cfg.TracerProvider) }

// markAfter is how soon after a delivery began Redis is told of its span at the latest, so that
// who takes the job over after a crash can link to it. In a busy queue it goes with the next call.
const markAfter = 50 * time.Millisecond

// watch begins to watch a delivery of the session. q.mu is held.
func (q *queue) watch(s *session, d *store.Delivery) *watch {
	v := &watch{id: d.Job.ID, token: d.Job.Token}
	v.Previous = telemetry.ParseSpan(d.Span)
	if q.w.traces() && d.Err == nil && q.w.kinds[d.Job.Kind] != nil {
		s.unmarked = append(s.unmarked, v)
		q.markSoon()
	}
	return v
}

// markSoon has a lane make a call if there are marks to send by then, and none went with another.
// q.mu is held.
func (q *queue) markSoon() {
	if q.marking {
		return
	}
	q.marking = true
	time.AfterFunc(markAfter, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.marking = false
		for _, s := range q.sessions {
			for _, v := range s.unmarked {
				switch span := v.SpanContext(); {
				case v.over, span.IsValid() && !span.IsSampled():
				case span.IsValid():
					q.probe = true
					q.summon()
					return
				default: // its span is about to begin
					q.markSoon()
				}
			}
		}
	})
}

// marks are the spans of deliveries that run and that Redis hasn't heard of. q.mu is held.
func (s *session) marks() []store.Mark {
	var marks []store.Mark
	left := s.unmarked[:0]
	for _, v := range s.unmarked {
		span := v.SpanContext()
		switch {
		case v.over, span.IsValid() && !span.IsSampled():
		case !span.IsValid() || len(marks) == store.MaxBatch:
			left = append(left, v)
		default:
			marks = append(marks, store.Mark{ID: v.id, Token: v.token, Span: telemetry.FormatSpan(span)})
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
	if r.Outcome == store.Retry || r.Outcome == store.Delay {
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

// reclaimed makes the spans of deliveries that were taken back.
func (q *queue) reclaimed(lost []store.Delivery) {
	for i := range lost {
		job := lost[i].Job
		ctx, links := telemetry.Creator(q.base, telemetry.Propagator(q.w.cfg.Propagator), job.Headers,
			q.w.cfg.TraceMode.String(), time.Since(job.EnqueuedAt) <= q.w.cfg.ParentFor)
		if previous := telemetry.ParseSpan(lost[i].Span); previous.IsValid() {
			links = append(links, trace.Link{SpanContext: previous})
		}
		q.w.spans.StartReclaim(ctx, telemetry.Job{
			ID: job.ID, Kind: job.Kind, Queue: job.Queue, Attempt: job.Attempt, MaxAttempts: job.MaxAttempts,
		}, links).End()
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
