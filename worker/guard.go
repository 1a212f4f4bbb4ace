package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// hungAfter is how long a call may wait for its answer before the log says that Redis is away. An answer to another call of the queue
// meanwhile prevents that. If the session TTL is shorter, the TTL counts instead.
const hungAfter = 2 * time.Second

func hangLimit(ttl time.Duration) time.Duration { return min(ttl, hungAfter) }

// guardRounds is how often the guard looks in the time that a call may wait.
const guardRounds = 4

// A guard looks after one queue, in the worker's goroutine of that name. It alone finds stuck handlers; the queue's mu guards what is known of them.
type guard struct {
	q     *queue
	stuck stuckHandlers
}

// guard runs until ctx ends. It notices what the goroutines that call Redis can't see while a call hangs: the hanging call itself, and
// the end of leases and of handlers' contexts.
func (w *Worker) guard(ctx context.Context, queues []*queue) {
	limit := hangLimit(w.cfg.SessionTTL)
	tick := time.NewTicker(w.pace.usual)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		w.pace.guarded(lease.Now(), true)
		for _, q := range queues {
			q.contact.reportHang(limit)
			q.guard.noticeLoss()
			q.guard.reportStuck()
		}
		w.pace.guarded(lease.Now(), false)
	}
}

// reportHang notes that Redis is away if a call has waited for limit. A later answer to the call ends the outage.
func (ct *contact) reportHang(limit time.Duration) {
	now := time.Since(ct.born)
	for i := range ct.waits {
		began := ct.waits[i].began.Load()
		if began == 0 {
			continue
		}
		began = int64(ct.q.w.pace.awake(ct.born.Add(time.Duration(began))).Sub(ct.born)) // nobody read an answer before
		if now-time.Duration(began) < limit || ct.heardAt.Load() > began {
			continue
		}
		if _, _, gone := ct.q.w.link.absence(ct.q); gone {
			continue
		}
		what := "claim"
		if i == lanes {
			what = "renew"
		}
		ct.disturbed()
		ct.gone(what, ct.born.Add(time.Duration(began)), fmt.Errorf("no answer for %v", limit))
		if ct.heardAt.Load() > began && ct.away.CompareAndSwap(true, false) {
			ct.q.w.link.back(ct.q) // the call was answered meanwhile
		}
	}
}

// noticeLoss loses the session that claims if its validity has ended.
func (g *guard) noticeLoss() {
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	if g.q.session != nil && !g.q.dispatch.stopping && g.q.session.over() {
		g.q.keeper.lose(g.q.session)
	}
}
