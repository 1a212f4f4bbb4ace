package worker

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A StuckPolicy says what becomes of the slot of a handler that goes on though its context has ended.
type StuckPolicy int

// The policies.
const (
	// KeepSlot, the default: the handler keeps its slot until it returns.
	KeepSlot StuckPolicy = iota
	// FreeSlot: the worker takes another job in its place, after Config.StuckAfter. The handler goes on, and its job stays its own: the
	// worker renews the lease until the handler returns, so no second copy of the job runs meanwhile. At most as many handlers as the queue has slots go on
	// beside their slots, and with Config.Concurrency at most so many over all queues. The next ones keep theirs.
	FreeSlot
)

// WhenStuck sets what becomes of the slots of this kind's stuck handlers. Default: Config.WhenStuck.
func WhenStuck(p StuckPolicy) Option { return func(k *kind) { k.whenStuck = &p } }

// whenStuck returns the policy of a kind. k is nil if the kind has no handler.
func (w *Worker) whenStuck(k *kind) StuckPolicy {
	if k != nil && k.whenStuck != nil {
		return *k.whenStuck
	}
	return w.cfg.WhenStuck
}

// stuckHandlers are the handlers of a queue that ignore the end of their contexts.
type stuckHandlers struct {
	handlers int
	since    time.Time // when the first of their contexts ended
	allKept  time.Time // since when they keep all slots, or those of all queues all of the bound's room; zero: they don't

	looked time.Time     // when the guard has last looked
	idle   time.Duration // for how long since allKept they may have waited for Redis
}

// A late counts deliveries that last longer than their contexts.
type late struct {
	kinds   map[string]int
	longest time.Duration
	first   *delivery // that lasts longest
	freed   int       // slots that were freed
}

func (l *late) add(d *delivery, lasts time.Duration) {
	if l.kinds == nil {
		l.kinds = make(map[string]int)
	}
	l.kinds[d.kind]++
	if l.first == nil || lasts > l.longest {
		l.first, l.longest = d, lasts
	}
	if d.slot.left {
		l.freed++
	}
}

// reportStuck warns of deliveries that last longer than their contexts. It reports handlers that still run: in the log, in metrics,
// and to Redis for package inspect. It frees their slots if the policy says so. It reports middleware
// separately, which runs before its handler is called or after the handler has returned.
func (g *guard) reportStuck() {
	ended := g.ended()
	now, allKept := time.Now(), time.Time{}
	var handlers, others late
	var fresh []*delivery
	kept := 0
	_, _, away := g.q.w.link.absence(g.q)
	g.q.mu.Lock()
	news := g.unstick(ended)
	for _, d := range ended {
		if d.returned || d.slot.now != d {
			continue
		}
		if d.over.IsZero() {
			d.over = now
		}
		lasts := now.Sub(d.over)
		if lasts < g.q.w.cfg.StuckAfter {
			continue
		}
		k := g.q.w.kinds.of(d.kind)
		if !d.isInside(k, g.q.w) {
			others.add(d, lasts)
			continue
		}
		if !d.stuck {
			fresh, news = append(fresh, d), true
			g.setStuck(d, true)
		}
		if !d.slot.left && g.q.w.whenStuck(k) == FreeSlot && g.freeSlot(d.slot) {
			news = true
		}
		handlers.add(d, lasts)
		if !d.slot.left {
			kept++
			if d.over.After(allKept) {
				allKept = d.over
			}
		}
	}
	before := g.stuck
	g.stuck = stuckHandlers{since: now.Add(-handlers.longest), looked: now}
	for _, n := range handlers.kinds {
		g.stuck.handlers += n
	}
	g.stuck.allKept = g.q.dispatch.bound.keep(g.q.dispatch, keep{kept, allKept})
	if kept > 0 && kept == len(g.q.slots.all) {
		g.stuck.allKept = allKept
	}
	g.stuck.idle = g.idled(&before, now, away)
	g.q.mu.Unlock()
	if len(fresh) > 0 {
		g.takeStacks(fresh)
	}
	if news {
		g.q.keeper.tellStuck()
	}
	g.warnStuck(&handlers, &others)
}

// idled returns for how long of the time since stuck handlers keep all slots they may have waited for Redis: it was away, or the lease had
// ended. That is measured from one look of the guard to the next, and the time before the first look counts. before is what the guard saw last. The queue's mu is held.
func (g *guard) idled(before *stuckHandlers, now time.Time, away bool) time.Duration {
	st := &g.stuck
	switch {
	case st.allKept.IsZero():
		return 0
	case !st.allKept.Equal(before.allKept):
		return now.Sub(st.allKept)
	case !g.served(away):
		return before.idle + now.Sub(before.looked)
	}
	return before.idle
}

// served reports whether handlers that wait for Redis would go on. away says whether it is. The queue's mu is held.
func (g *guard) served(away bool) bool { return !away && g.q.session != nil && !g.q.session.over() }

// unstick forgets the ends of contexts after which middleware has called the handler again with another context, that goes on. It
// reports whether such a handler was stuck. The queue's mu is held.
func (g *guard) unstick(ended []*delivery) (news bool) {
	var over map[*delivery]bool
	for d := range g.q.slots.running() {
		if d.over.IsZero() || d.returned {
			continue
		}
		if over == nil {
			over = make(map[*delivery]bool, len(ended))
			for _, d := range ended {
				over[d] = true
			}
		}
		if !over[d] {
			news = news || d.stuck
			g.setStuck(d, false)
			d.over, d.stack = time.Time{}, ""
		}
	}
	return news
}

// ended returns the running deliveries whose handlers' contexts have ended. These may be the user's: they are asked without the queue's mu.
func (g *guard) ended() []*delivery {
	var over, ask []*delivery
	g.q.mu.Lock()
	for d := range g.q.slots.running() {
		switch {
		case d.Err() != nil:
			over = append(over, d)
		case d.inner.Load() != nil:
			ask = append(ask, d)
		}
	}
	g.q.mu.Unlock()
	for _, d := range ask {
		if ctx := d.inner.Load(); ctx != nil && (*ctx).Err() != nil {
			over = append(over, d)
		}
	}
	return over
}

// isInside reports whether the delivery's handler runs, not the middleware around it.
func (d *delivery) isInside(k *kind, w *Worker) bool {
	plain := k == nil || len(k.middleware)+len(w.middleware) == 0
	return plain || d.inner.Load() != nil || d.phase.Load() == inside
}

// setStuck notes whether the delivery's handler is stuck. The queue's mu is held.
func (g *guard) setStuck(d *delivery, stuck bool) {
	if d.stuck == stuck {
		return
	}
	d.stuck = stuck
	n := int64(1)
	if !stuck {
		n = -1
	}
	g.q.mu.later(func() { g.q.w.consumer.Stuck(g.q.base, g.q.store.Name(), g.q.w.kinds.metric(&d.claimed), n) })
}

// freeSlot has another job take the place of a handler that doesn't return, unless as many handlers as there are slots go on beside
// theirs, or as many as the bound allows over all queues, or the queue drains. It reports whether it did. The queue's mu is held.
func (g *guard) freeSlot(sl *slot) bool {
	if g.q.dispatch.stopping || len(g.q.slots.left) >= g.q.slots.size || !g.q.dispatch.bound.leave() {
		return false
	}
	g.q.slots.leave(sl)
	g.q.dispatch.putRoom(1)
	g.q.dispatch.summon()
	return true
}

// warnStuck logs what reportStuck has found.
func (g *guard) warnStuck(handlers, others *late) {
	if d := handlers.first; d != nil {
		g.q.mu.Lock()
		stack := d.stack
		g.q.mu.Unlock()
		g.q.warn("stuck", "signalbox: handlers ignore that their context has ended, and keep their slots",
			"kinds", handlers.kinds, "longest", handlers.longest.Round(time.Millisecond).String(), "freed", handlers.freed,
			"job", d.id, "token", d.token, "stack", stack)
	}
	if others.first != nil {
		g.q.warn("stuck:middleware", "signalbox: middleware goes on though its context has ended, and keeps slots; handlers do not run: does a named lock wait for Redis?",
			"kinds", others.kinds, "longest", others.longest.Round(time.Millisecond).String())
	}
}

// takeStacks keeps with the deliveries the stacks of their handlers' goroutines.
func (g *guard) takeStacks(deliveries []*delivery) {
	stacks := stacksOf(deliveries)
	g.q.mu.Lock()
	defer g.q.mu.Unlock()
	for _, d := range deliveries {
		d.stack = stacks[d.slot.goroutine.Load()]
	}
}

// tellStuck has the keeper write to Redis which handlers are stuck. It doesn't wait.
func (k *keeper) tellStuck() {
	select {
	case k.stuckNews <- struct{}{}:
	default: // it is about to
	}
}

// writeStuck writes to Redis which handlers of a session are stuck, for as long as the session lasts without another renewal. Nothing
// depends on that: if it fails, the next renewal does it again.
func (k *keeper) writeStuck(ctx context.Context, s *session) {
	k.q.mu.Lock()
	var jobs []store.Stuck
	for d := range k.q.slots.running() {
		if d.session == s && d.stuck && !d.returned {
			jobs = append(jobs, store.Stuck{ID: d.id, Kind: d.kind, Token: d.token, Since: k.clock.server(d.over), Stack: d.stack, Freed: d.slot.left})
		}
	}
	needed := len(jobs) > 0 || s.toldStuck
	s.toldStuck = len(jobs) > 0
	k.q.mu.Unlock()
	if needed {
		_ = k.q.own.Sessions().WriteStuck(ctx, s.id, k.q.w.cfg.SessionTTL, jobs)
	}
}

// writeAllStuck does so for all sessions.
func (k *keeper) writeAllStuck(ctx context.Context) {
	k.q.mu.Lock()
	sessions := append([]*session(nil), k.q.sessions...)
	k.q.mu.Unlock()
	for _, s := range sessions {
		k.writeStuck(ctx, s)
	}
}
