package scheduler

import (
	"sync"
	"time"
)

// An outage is a time in which Redis doesn't answer for some queues. The log has one record when
// it begins and one when it is over, for all queues together.
type outage struct {
	s     *Scheduler
	mu    sync.Mutex      // is held while a record is logged
	down  map[string]lack // by queue; changed with mu and show held, read with either
	since time.Time
	over  chan struct{} // takes one value: an outage is over

	show sync.Mutex // is never held while a record is logged: reports don't wait for the log
}

// A lack is that of Redis for a queue.
type lack struct {
	since time.Time // by our clock
	why   string    // by the last call that failed; without address and secret
}

func newOutage(s *Scheduler) *outage {
	return &outage{s: s, down: make(map[string]lack), over: make(chan struct{}, 1)}
}

// begin records that a call for the queue failed.
func (o *outage) begin(queue string, at time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := len(o.down) == 0
	since := at
	if old, ok := o.down[queue]; ok {
		since = old.since
	}
	o.show.Lock()
	o.down[queue] = lack{since, publicReason(err)}
	o.show.Unlock()
	if !first {
		return
	}
	o.since = at
	attrs := []any{"error", explain(err)}
	if queue != "" { // "" means that no queue has answered at the start
		attrs = append(attrs, "queue", queue)
	}
	o.s.log.Warn("scheduler: cron: waiting for Redis; no tick is enqueued by this process until it answers", attrs...)
}

// end records that Redis answered for the queue.
func (o *outage) end(queue string, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, down := o.down[queue]; !down {
		return
	}
	o.show.Lock()
	delete(o.down, queue)
	o.show.Unlock()
	if len(o.down) > 0 {
		return
	}
	select {
	case o.over <- struct{}{}:
	default:
	}
	o.s.log.Info("scheduler: cron: Redis is back", "after", at.Sub(o.since).Round(time.Millisecond).String())
}
