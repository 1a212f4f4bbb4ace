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
		if began == 0 || now-time.Duration(began) < limit || q.heardAt.Load() > began {
			continue
		}
		if _, _, gone := q.w.link.absence(q); gone {
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
