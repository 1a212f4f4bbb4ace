package worker

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// lanes is how many calls of a queue are under way at the most: while Redis runs one, the other
// is on its way or being acted on.
const lanes = 2

// A call is one claim: what is asked, and what it was based on.
type call struct {
	store.ClaimRequest
	session *session
	slots   []int // reserved for the jobs wanted
	hints   uint64
}

// next waits for something to settle or to claim. It returns nil when the lane may end.
func (q *queue) next() *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		if !q.callable() {
			q.summoned = false
			if q.drained {
				return nil
			}
			q.changed.Wait()
			continue
		}
		// Let handlers that are about to return do so: their settlements go with this call.
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		c, lost := q.prepare()
		if lost != nil {
			q.mu.Unlock()
			q.tellLoss(lost)
			q.mu.Lock()
		}
		if c != nil {
			q.summoned = false
			q.summon()
			return c
		}
	}
}

// unsettled returns a session with settlements to send, the current one last. q.mu is held.
func (q *queue) unsettled() *session {
	for _, s := range q.sessions {
		if len(s.completed)+len(s.others) > 0 {
			return s
		}
	}
	return nil
}

// prepare takes what there is to settle and reserves slots. It returns nil if the other lane was
// first. lost is to be told, if it saw that the lease is lost. q.mu is held.
func (q *queue) prepare() (c *call, lost *loss) {
	if q.session != nil && !q.stopping && q.session.over() {
		lost = q.loseSession() // Redis may think otherwise, but nothing can run under it
	}
	if !q.callable() {
		return nil, lost
	}
	s := q.unsettled()
	if s == nil {
		s = q.session
	}
	c = &call{session: s, hints: q.hints}
	c.Session = s.id
	c.Settle = s.take(store.MaxBatch)
	if c.Marks = s.marks(); len(s.unmarked) > 0 {
		q.markSoon()
	}
	if s == q.session && !q.stopping {
		want := min(len(q.free), store.MaxBatch)
		c.slots = append(c.slots, q.free[len(q.free)-want:]...)
		q.free = q.free[:len(q.free)-want]
		c.Want = want
		c.Suspects = !s.suspect && want > 0
		s.suspect = s.suspect || c.Suspects // no other lane may ask meanwhile
	}
	if s == q.session {
		q.probe = false
	}
	s.calls++
	q.calls++
	return c, lost
}

// work is a lane: it makes one call after another.
func (q *queue) work(ctx context.Context, lane *store.Lane) {
	for c := q.next(); c != nil; c = q.next() {
		lane.Next()
		reply, err := q.claim(ctx, lane, &c.ClaimRequest)
		if err != nil {
			q.giveUp(c, err)
			continue
		}
		q.apply(c, reply)
	}
}

// claim makes the call, and makes it again until its outcome is known: Redis recognises it by
// the lane's number. When the queue drains it gives up if there is nothing to settle, or if nobody
// could know better any more, since the session has ended.
func (q *queue) claim(ctx context.Context, lane *store.Lane, req *store.ClaimRequest) (*store.ClaimReply, error) {
	b := newBackoff(q.w.cfg.SessionTTL)
	for {
		start := time.Now()
		reply, err := q.store.Claim(ctx, lane, req)
		if err == nil {
			q.answered(start)
			return reply, nil
		}
		q.failed("claim", err)
		select {
		case <-time.After(b.NextBackOff()):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if q.pastSaving(req) {
			return nil, err
		}
	}
}

// pastSaving reports whether the queue drains and making the call again is of no use.
func (q *queue) pastSaving(req *store.ClaimRequest) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stopping {
		return false
	}
	if len(req.Settle) == 0 {
		return true
	}
	for _, s := range q.sessions {
		if s.id == req.Session {
			return time.Now().After(s.renewedUntil)
		}
	}
	return true
}

// apply acts on what a call came back with.
func (q *queue) apply(c *call, reply *store.ClaimReply) {
	s := c.session
	for _, i := range reply.Refused {
		d := &c.Settle[i]
		about := []any{"job", d.ID, "token", d.Token, "outcome", d.Outcome}
		if d.Kind != "" { // it could be read
			about = append(about, "kind", d.Kind, "attempt", d.Attempt)
		}
		if v, ok := d.Ref.(*watch); ok {
			about = append(about, telemetry.SpanLogAttrs(v.SpanContext())...)
		}
		q.log.Warn("signalbox: a superseded delivery was refused: the job has been taken over", about...)
	}
	watching := q.w.watches()

	q.mu.Lock()
	reply.Deliveries = reply.Deliveries[:min(len(reply.Deliveries), len(c.slots))]
	suspect := false
	for _, d := range reply.Deliveries {
		suspect = suspect || d.Job.Crashes >= store.SuspectAt
	}
	if c.Suspects {
		s.suspect = suspect
	}
	s.running += len(reply.Deliveries)
	taken := c.slots[:len(reply.Deliveries)]
	now := time.Now()
	var watches []*watch
	if watching {
		watches = make([]*watch, len(reply.Deliveries))
	}
	for i := range reply.Deliveries {
		d := &reply.Deliveries[i]
		sl := &q.slots[taken[i]]
		sl.session, sl.kind, sl.since = s, d.Job.Kind, now
		if watching {
			watches[i] = q.watch(s, d, now)
			sl.watch = watches[i]
			if q.stopping { // the call was under way when the drain began
				sl.watch.Event(telemetry.EventShutdown)
			}
		}
	}
	q.free = append(q.free, c.slots[len(taken):]...)
	switch {
	case reply.More:
		q.hints++
	case s == q.session:
		q.emptied = max(q.emptied, c.hints)
	}
	var lost *loss
	if s == q.session && !reply.Alive {
		lost = q.loseSession()
	}
	q.armTimer(now, reply.Next)
	over := q.finished(c)
	q.summon()
	stirred := q.idle() != q.heard
	q.mu.Unlock()

	for i, d := range reply.Deliveries {
		started := delivery{Delivery: d, session: s}
		if watching {
			started.watch = watches[i]
		}
		q.start(taken[i], started)
	}
	if stirred {
		q.listener.update()
	}
	q.offer(reply.Expired)
	settled(c.Settle, reply.Refused, false)
	q.tellLoss(lost)
	if over {
		q.closeSession(s)
	}
}

// start hands a delivery to its slot, which is reserved for it.
func (q *queue) start(place int, d delivery) {
	sl := &q.slots[place]
	if sl.work == nil {
		sl.work = make(chan delivery, 1)
		q.handlers.Go(func() { q.serve(place) })
	}
	sl.work <- d
}

// finished counts a call's settlements as told, and reports whether its session is over: it is
// no longer the one that claims, and nothing of it is left. q.mu is held.
func (q *queue) finished(c *call) bool {
	s := c.session
	s.calls--
	q.calls--
	s.unconfirmed -= len(c.Settle)
	q.settled.Broadcast()
	if s == q.session || s.calls > 0 || s.running > 0 || s.unconfirmed > 0 {
		return false
	}
	q.sessions = slices.DeleteFunc(q.sessions, func(x *session) bool { return x == s })
	return true
}

// giveUp forgets a call whose outcome nobody will know.
func (q *queue) giveUp(c *call, err error) {
	q.mu.Lock()
	q.free = append(q.free, c.slots...)
	q.abandoned += len(c.Settle)
	q.finished(c)
	q.mu.Unlock()
	settled(c.Settle, nil, true)
	if len(c.Settle) > 0 {
		q.log.Error("signalbox: outcomes were not delivered; these jobs run again", "jobs", len(c.Settle), "error", err)
	}
}
