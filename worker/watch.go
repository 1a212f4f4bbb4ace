package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A watch passes the events of one delivery to traces and metrics.
type watch struct {
	telemetry.Delivery
	lost atomic.Bool
}

// Event adds an event to the delivery's span. It adds the loss of the lease only once.
func (v *watch) Event(name string) {
	if name != telemetry.EventLeaseLost || v.lost.CompareAndSwap(false, true) {
		v.Delivery.Event(name)
	}
}

// watches reports whether anything uses watches: a provider, or the user's middleware.
func (w *Worker) watches() bool {
	return w.middlemen || w.traces() || !telemetry.MetricsSilent(w.cfg.MeterProvider)
}

// traces reports whether the worker's provider records spans.
func (w *Worker) traces() bool { return !telemetry.Silent(w.cfg.TracerProvider) }

// watch begins to watch a delivery. q.mu is held.
func (q *queue) watch(d *delivery) {
	d.watch = &watch{}
	d.watch.Previous = telemetry.ParseSpan(d.claimed.Span)
	if q.w.traces() && d.claimed.Err == nil && q.w.kinds[d.kind] != nil {
		d.session.unnoted = append(d.session.unnoted, d)
		q.claimer.noteSoon()
	}
}

// tell adds an event to the spans of the session's running deliveries. If s is nil, it does so for all sessions. q.mu is held.
func (q *queue) tell(event string, s *session) {
	for d := range q.slots.running() {
		if d.watch != nil && (s == nil || d.session == s) {
			d.watch.Event(event)
		}
	}
}

// settling notes that the delivery is about to be settled. lease is the delivery's context.
func (v *watch) settling(lease context.Context, r *store.Settlement) {
	if v == nil {
		return
	}
	// If the handler returned nil, it still held the lease: middleware.Lock has just checked the time.
	if r.Outcome != store.Completed && errors.Is(context.Cause(lease), lock.ErrLost) {
		v.Event(telemetry.EventLeaseLost) // the clock says so, before any event did
	}
	again := r.Outcome == store.Retry || r.Outcome == store.Delay || r.Outcome == store.Return
	if span := v.SpanContext(); again && span.IsSampled() {
		r.Span = telemetry.FormatSpan(span)
	}
}

// workerID returns a name of the worker for people: the host, the process ID and some random letters. In a container each start may
// have the same host and process ID.
func workerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	printable := func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune("{}@", r) {
			return '_'
		}
		return r
	}
	return fmt.Sprintf("%.64s:%d:%s", strings.Map(printable, host), os.Getpid(), strings.ToLower(rand.Text()[:5]))
}
