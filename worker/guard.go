package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// hungAfter is how long a call may wait for its answer before the log says that Redis is away. An answer to another call of the queue
// meanwhile prevents that. If the session TTL is shorter, the TTL counts instead.
const hungAfter = 2 * time.Second

// stuckAfter is how long a delivery may last after the end of its context before the log reports it.
const stuckAfter = 2 * time.Second

// A wait records when the call under way of a lane, or of the keeper, began.
type wait struct{ began atomic.Int64 } // ns since the queue's born; 0 if no call is under way

func (w *wait) begin(q *queue, at time.Time) { w.began.Store(int64(at.Sub(q.born))) }
func (w *wait) end()                         { w.began.Store(0) }

// guard runs until ctx ends. It notices what the goroutines that call Redis can't see while a call hangs: the hanging call itself, and
// the end of leases and of handlers' contexts.
func (w *Worker) guard(ctx context.Context, queues []*queue) {
	limit := min(w.cfg.SessionTTL, hungAfter)
	tick := time.NewTicker(limit / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, q := range queues {
			q.reportHang(limit)
			q.noticeLoss()
			q.reportStuck()
		}
	}
}

// reportHang notes that Redis is away if a call has waited for limit. A later answer to the call ends the outage.
func (q *queue) reportHang(limit time.Duration) {
	now := time.Since(q.born)
	for i := range q.waits {
		began := q.waits[i].began.Load()
		if began == 0 || now-time.Duration(began) < limit || q.heardAt.Load() > began || q.away.Load() {
			continue
		}
		what := "claim"
		if i == lanes {
			what = "renew"
		}
		q.disturbed()
		q.gone(what, q.born.Add(time.Duration(began)), fmt.Errorf("no answer for %v", limit))
		if q.heardAt.Load() > began && q.away.CompareAndSwap(true, false) {
			q.w.link.back(q) // the call was answered meanwhile
		}
	}
}

// noticeLoss loses the session that claims if its validity has ended.
func (q *queue) noticeLoss() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.session != nil && !q.dispatch.stopping && q.session.over() {
		q.lose(q.session)
	}
}

// reportStuck warns of deliveries that last longer than their contexts. It reports handlers that still run. It reports middleware
// separately, which runs before its handler is called or after the handler has returned.
func (q *queue) reportStuck() {
	handlers, others := make(map[string]int), make(map[string]int)
	var inHandlers, inOthers time.Duration // the longest times since the contexts ended
	now := time.Now()
	q.mu.Lock()
	for _, sl := range q.slots.all {
		d := sl.now
		if d == nil || d.Err() == nil {
			continue
		}
		if d.over.IsZero() {
			d.over = now
		}
		lasts := now.Sub(d.over)
		if lasts < stuckAfter {
			continue
		}
		k := q.w.kinds[d.kind]
		if plain := k == nil || len(k.middleware)+len(q.w.middleware) == 0; plain || d.phase.Load() == inside {
			handlers[d.kind]++
			inHandlers = max(inHandlers, lasts)
		} else {
			others[d.kind]++
			inOthers = max(inOthers, lasts)
		}
	}
	q.mu.Unlock()
	if len(handlers) > 0 {
		q.warn("stuck", "signalbox: handlers ignore that their context has ended, and keep their slots",
			"kinds", handlers, "longest", inHandlers.Round(time.Millisecond).String())
	}
	if len(others) > 0 {
		q.warn("stuck:middleware", "signalbox: middleware goes on though its context has ended, and keeps slots; handlers do not run: does a named lock wait for Redis?",
			"kinds", others, "longest", inOthers.Round(time.Millisecond).String())
	}
}
