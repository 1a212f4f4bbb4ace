package worker

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

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
	slots   []*slot // reserved for the jobs wanted
	hints   uint64
	began   time.Time
	last    bool // the queue is stopping
}

// next waits for something to settle or to claim. It returns nil when the lane may end. over is the lane's last call, which
// nobody uses any more, or nil.
func (q *queue) next(over *call) *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if over != nil && cap(over.Settle) > 0 && len(q.spares) <= lanes {
		clear(over.Settle)
		q.spares = append(q.spares, over.Settle[:0])
	}
	for {
		if !q.dispatch.callable() {
			q.dispatch.rest()
			if q.drain.done {
				return nil
			}
			q.dispatch.changed.Wait()
			continue
		}
		// Let handlers that are about to return do so: their settlements go with this call.
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
		if c := q.prepare(); c != nil {
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

// prepare takes what there is to settle and reserves slots. It returns nil if the other lane was first, or the bound has no
// room. q.mu is held.
func (q *queue) prepare() *call {
	d := q.dispatch
	if q.session != nil && !d.stopping && q.session.over() {
		q.lose(q.session) // Redis may think otherwise, but nothing can run under it
	}
	if !d.callable() {
		return nil
	}
	s := q.unsettled()
	if s == nil {
		s = q.session
	}
	c := &call{session: s, hints: d.hints, last: d.stopping}
	c.Session = s.id
	c.Settle = s.take(&q.spares)
	if s == q.session && !d.stopping {
		c.slots = d.reserve()
		c.Want = len(c.slots)
		if c.Want > 0 {
			q.asked++
			if !q.standing.now.Away() {
				c.Address = s.address
			}
		}
		c.Suspects, c.Hold = !s.barred && c.Want > 0, store.Apart(q.w.cfg.SessionTTL)
	}
	if c.Want == 0 && len(c.Settle) == 0 && !d.probe {
		return nil // the bound has no room
	}
	if c.last && s == q.session {
		c.Address, c.Leaving = s.address, true
		s.address = ""
	}
	if c.Notes = s.notes(); len(s.unnoted) > 0 {
		q.noteSoon()
	}
	s.calls++
	d.began(len(c.Settle), s == q.session)
	return c
}

// work is a lane: it makes one call after another.
func (q *queue) work(ctx context.Context, lane *store.Lane, wait *wait) {
	for c := q.next(nil); c != nil; c = q.next(c) {
		lane.Next()
		reply, err := q.claim(ctx, lane, wait, c)
		if err != nil {
			q.giveUp(c, err)
			continue
		}
		q.apply(c, reply)
	}
}

// claim makes the call, and makes it again until its outcome is known: Redis recognises it by the lane's number. When
// the queue drains, claim gives up if there is nothing to settle, or if the session has ended: then the jobs belong to
// others. A queue that stops uses the worker's own client, which is closed when the time to stop is over.
func (q *queue) claim(ctx context.Context, lane *store.Lane, wait *wait, c *call) (*store.ClaimReply, error) {
	b := newBackoff(q.w.cfg.SessionTTL)
	from := q.store
	if c.last {
		from = q.own
	}
	for {
		start := time.Now()
		c.began = start
		wait.begin(q, start)
		reply, err := from.Claim(ctx, lane, &c.ClaimRequest)
		wait.end()
		if err == nil {
			q.contact.answered(start)
			return reply, nil
		}
		if ctx.Err() == nil {
			q.contact.failed("claim", start, err)
		}
		select {
		case <-time.After(b.NextBackOff()):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		stopping, lost := q.pastSaving(&c.ClaimRequest)
		if lost || errors.Is(err, redis.ErrClosed) {
			return nil, err
		}
		if stopping {
			from = q.own
		}
	}
}

// pastSaving reports whether the queue drains, and whether making the call again is of no use then.
func (q *queue) pastSaving(req *store.ClaimRequest) (stopping, lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.dispatch.stopping {
		return false, false
	}
	if len(req.Settle) == 0 {
		return true, true
	}
	for _, s := range q.sessions {
		if s.id == req.Session {
			return true, time.Now().After(s.renewedUntil)
		}
	}
	return true, true
}

// apply acts on what a call came back with.
func (q *queue) apply(c *call, reply *store.ClaimReply) {
	s := c.session
	why := "the job has been taken over"
	if !reply.Alive || !reply.Forgot.IsZero() || len(reply.Refused) > 0 {
		if q.memory.recall(s, reply) {
			why = "Redis has lost its memory of it"
		}
	}
	for _, i := range reply.Refused {
		d := &c.Settle[i]
		about := []any{"job", d.ID, "token", d.Token, "outcome", d.Outcome}
		if d.Kind != "" { // it could be read
			about = append(about, "kind", d.Kind, "attempt", d.Attempt)
		}
		if e, ok := d.Ref.(*delivery); ok && e.watch != nil {
			about = append(about, telemetry.LogAttrs(e.watch.SpanContext())...)
		}
		q.log.Warn("signalbox: a superseded delivery was refused: "+why, about...)
	}
	now, suspects := time.Now(), 0
	deliveries := make([]delivery, min(len(reply.Deliveries), len(c.slots)))
	for i := range deliveries {
		d := &deliveries[i]
		d.begin(s, c.slots[i], reply.Deliveries[i], now)
		if d.claimed.Job.Crashes >= store.SuspectAt {
			suspects++
		}
	}
	watching := q.w.watches()

	q.mu.Lock()
	s.suspects += suspects
	if c.Suspects {
		s.barred = suspects == 0 && s.suspects > 0
	}
	s.running += len(deliveries)
	for i := range deliveries {
		d := &deliveries[i]
		if d.claimed.Err == nil {
			q.keeper.waited.Add(d.claimed.Job.ClaimedAt.Sub(d.claimed.Job.ScheduledAt))
		}
		d.slot.now = d
		if watching {
			q.watch(d)
			if q.dispatch.stopping { // the call was under way when the drain began
				d.watch.Event(telemetry.EventShutdown)
			}
		}
	}
	q.cancelEarly(deliveries)
	q.dispatch.release(c.slots[len(deliveries):]...)
	q.dispatch.answered(c.hints, reply.More, s == q.session && !reply.Full) // if not Full, Redis has registered the session to be woken for more
	if q.dispatch.stopping && !c.last && s == q.session && c.Address != "" {
		s.address, q.dispatch.probe = c.Address, true // another call takes that back
	}
	if s == q.session && !reply.Alive {
		q.lose(s)
	}
	q.standing.heed(reply.Hints, c.began)
	q.armTimer(c.began, reply.Next)
	if c.Want > 0 {
		q.waiting = time.Time{}
	}
	if len(q.contact.refusals) > 0 {
		delete(q.contact.refusals, "claim")
	}
	over := q.finished(c)
	copies := q.copier.on
	q.dispatch.summon()
	q.mu.Unlock()

	for i := range deliveries {
		q.slots.start(&deliveries[i])
	}
	q.offer(reply.Expired)
	if len(reply.Late) > 0 {
		q.tooLate(reply.Late)
	}
	q.overruled(c.Settle, reply.Overruled)
	q.tellSettled(c.Settle, reply.Refused, reply.Overruled, false)
	if copies {
		q.diedOf(c.Settle)
	}
	if over {
		q.keeper.closeSession(s, false)
	}
}

// finished counts a call's settlements as confirmed. It reports whether the call's session can be closed: it no
// longer claims, and has no deliveries and no calls left. q.mu is held.
func (q *queue) finished(c *call) bool {
	s := c.session
	s.calls--
	q.dispatch.calls--
	q.forgetEarly()
	s.unconfirmed -= len(c.Settle)
	q.drain.settled.Broadcast()
	if s == q.session || s.calls > 0 || s.running > 0 || s.unconfirmed > 0 {
		return false
	}
	q.sessions = slices.DeleteFunc(q.sessions, func(x *session) bool { return x == s })
	return true
}

// giveUp forgets a call whose outcome will stay unknown.
func (q *queue) giveUp(c *call, err error) {
	q.mu.Lock()
	q.dispatch.release(c.slots...)
	q.drain.abandoned += len(c.Settle)
	q.finished(c)
	q.mu.Unlock()
	q.tellSettled(c.Settle, nil, nil, true)
	if len(c.Settle) > 0 {
		q.log.Error("signalbox: outcomes were not delivered; these jobs run again", "jobs", len(c.Settle), "error", err)
	}
}
