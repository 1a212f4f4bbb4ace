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

	completion *store.Completion // the call makes it, and claims nothing; nil: it is a claim
	fates      string            // of its follow-ups
}

// A claimer makes the calls that claim and settle. Each of its lanes is a goroutine, which is that of work, and has one call under way. The queue's mu
// guards all its fields but q.
type claimer struct {
	q      *queue
	spares [][]store.Settlement // empty: their room is for those that come; each lane gives one back while it fills another

	asked   uint64    // calls that wanted jobs
	stoodBy uint64    // what asked was when another worker was last woken
	onCall  bool      // a timer looks whether that one made a call
	waiting time.Time // since when renewals say that jobs wait which it could take, and no claim was answered; zero: it isn't so
	noting  bool      // a timer looks for notes to send

	early  map[string]int64 // cancelled deliveries that no call has come back with yet: tokens by job ID
	unsure bool             // a call that is under way may come back with a cancelled delivery of which no message was heard
}

// next waits for something to settle or to claim. It returns nil when the lane may end. over is the lane's last call, which
// nobody uses any more, or nil.
func (cl *claimer) next(over *call) *call {
	cl.q.mu.Lock()
	defer cl.q.mu.Unlock()
	if over != nil && cap(over.Settle) > 0 && over.completion == nil && len(cl.spares) <= lanes {
		clear(over.Settle)
		cl.spares = append(cl.spares, over.Settle[:0])
	}
	for {
		if !cl.q.dispatch.callable() {
			cl.q.dispatch.rest()
			if cl.q.drain.done {
				return nil
			}
			cl.q.dispatch.changed.Wait()
			continue
		}
		// Let handlers that are about to return do so: their settlements go with this call.
		cl.q.mu.Unlock()
		runtime.Gosched()
		cl.q.mu.Lock()
		if c := cl.prepare(); c != nil {
			return c
		}
	}
}

// unsettled returns a session with settlements to send, the current one last. The queue's mu is held.
func (cl *claimer) unsettled() *session {
	for _, s := range cl.q.sessions {
		if len(s.completed)+len(s.others)+len(s.thens) > 0 {
			return s
		}
	}
	return nil
}

// prepare takes what there is to settle and reserves slots. It returns nil if the other lane was first, or the bound has no
// room. The queue's mu is held.
func (cl *claimer) prepare() *call {
	d := cl.q.dispatch
	if cl.q.session != nil && !d.stopping && cl.q.session.over() {
		cl.q.keeper.lose(cl.q.session) // Redis may think otherwise, but nothing can run under it
	}
	if !d.callable() {
		return nil
	}
	s := cl.unsettled()
	if s == nil {
		s = cl.q.session
	} else if len(s.thens) > 0 {
		return cl.completing(s)
	}
	c := &call{session: s, hints: d.hints, last: d.stopping}
	c.Session = s.id
	c.Settle = s.take(&cl.spares)
	if s == cl.q.session && !d.stopping {
		c.slots = d.reserve()
		c.Want = len(c.slots)
		if c.Want > 0 {
			cl.asked++
			if !cl.q.orders.withheld.Away() {
				c.Address = s.address
			}
		}
		c.Suspects, c.Apart = !s.barred && c.Want > 0, store.Apart(cl.q.w.cfg.SessionTTL)
	}
	if c.Want == 0 && len(c.Settle) == 0 && !d.probe {
		return nil // the bound has no room
	}
	if c.last && s == cl.q.session {
		c.Address, c.Leaving = s.address, true
		s.address = ""
	}
	if c.Notes = s.notes(); len(s.unnoted) > 0 {
		cl.noteSoon()
	}
	s.calls++
	d.began(len(c.Settle), s == cl.q.session)
	return c
}

// work is a lane: it makes one call after another.
func (cl *claimer) work(ctx context.Context, lane *store.Lane, wait *wait) {
	for c := cl.next(nil); c != nil; c = cl.next(c) {
		lane.Next()
		reply, err := cl.claim(ctx, lane, wait, c)
		switch {
		case c.completion != nil:
			cl.completed(c, reply, err)
		case err != nil:
			cl.giveUp(c, err)
		default:
			cl.apply(c, reply)
		}
	}
}

// claim makes the call, and makes it again until its outcome is known: Redis recognises it by the lane's number. When
// the queue drains, claim gives up if there is nothing to settle, or if the session has ended: then the jobs belong to
// others. A queue that stops uses the worker's own client, which is closed when the time to stop is over.
func (cl *claimer) claim(ctx context.Context, lane *store.Lane, wait *wait, c *call) (*store.ClaimReply, error) {
	b := newBackoff(cl.q.w.cfg.SessionTTL)
	from := cl.q.store
	if c.last {
		from = cl.q.own
	}
	why := errSilent // or why the last try failed
	for {
		start := time.Now()
		c.began = start
		wait.begin(cl.q, start)
		reply, err := c.send(ctx, from, lane)
		wait.end()
		if err == nil {
			cl.q.contact.answered(start)
			return reply, nil
		}
		if ctx.Err() == nil {
			if c.completion != nil && isFinal(err) {
				cl.refusedForGood(start, err)
				return nil, err
			}
			cl.q.contact.failed("claim", start, err)
			why = err
		}
		select {
		case <-time.After(b.NextBackOff()):
		case <-ctx.Done():
			return nil, why
		}
		stopping, lost := cl.pastSaving(&c.ClaimRequest)
		if lost || errors.Is(err, redis.ErrClosed) {
			return nil, why
		}
		if stopping {
			from = cl.q.own
		}
	}
}

// send sends the call, once.
func (c *call) send(ctx context.Context, q *store.Queue, lane *store.Lane) (*store.ClaimReply, error) {
	if c.completion != nil {
		return c.complete(ctx, q, lane)
	}
	return q.Sessions().Claim(ctx, lane, &c.ClaimRequest)
}

// pastSaving reports whether the queue drains, and whether making the call again is of no use then.
func (cl *claimer) pastSaving(req *store.ClaimRequest) (stopping, lost bool) {
	cl.q.mu.Lock()
	defer cl.q.mu.Unlock()
	if !cl.q.dispatch.stopping {
		return false, false
	}
	if len(req.Settle) == 0 {
		return true, true
	}
	for _, s := range cl.q.sessions {
		if s.id == req.Session {
			return true, time.Now().After(s.renewedUntil)
		}
	}
	return true, true
}

// apply acts on what a call came back with.
func (cl *claimer) apply(c *call, reply *store.ClaimReply) {
	cl.heedLosses(c, reply)
	deliveries, suspects := c.deliver(reply)
	watching := cl.q.w.watches()

	cl.q.mu.Lock()
	cl.take(c, deliveries, suspects, watching)
	cl.heed(c, reply)
	over := cl.finished(c)
	copies := cl.q.copier.on
	cl.q.dispatch.summon()
	cl.q.mu.Unlock()

	for i := range deliveries {
		cl.q.slots.start(&deliveries[i])
	}
	cl.passOn(c, reply, copies)
	if over {
		cl.q.keeper.closeSession(c.session, false)
	}
}

// deliver gives the jobs of the reply to the slots that were reserved for the call. It returns their deliveries, and how many of them are suspects.
func (c *call) deliver(reply *store.ClaimReply) (deliveries []delivery, suspects int) {
	now := time.Now()
	deliveries = make([]delivery, min(len(reply.Deliveries), len(c.slots)))
	for i := range deliveries {
		d := &deliveries[i]
		d.begin(c.session, c.slots[i], reply.Deliveries[i], now)
		if d.claimed.Job.Crashes >= store.SuspectAt {
			suspects++
		}
	}
	return deliveries, suspects
}

// take counts the call's deliveries among those that run, and gives the other slots back. The queue's mu is held.
func (cl *claimer) take(c *call, deliveries []delivery, suspects int, watching bool) {
	s := c.session
	s.suspects += suspects
	if c.Suspects {
		s.barred = suspects == 0 && s.suspects > 0
	}
	s.running += len(deliveries)
	for i := range deliveries {
		d := &deliveries[i]
		if d.claimed.Err == nil {
			cl.q.keeper.waited.Add(d.claimed.Job.ClaimedAt.Sub(d.claimed.Job.ScheduledAt))
		}
		d.slot.now = d
		if watching {
			cl.q.watch(d)
			if cl.q.dispatch.stopping { // the call was under way when the drain began
				d.watch.Event(telemetry.EventShutdown)
			}
		}
	}
	if cl.unsure || len(cl.early) > 0 {
		cl.cancelEarly(deliveries)
	}
	cl.q.dispatch.got(c.slots, len(deliveries))
}

// heed acts on what the reply says of the session and of the queue: whether there is more, whether the session lives, and when to come again. The queue's mu is held.
func (cl *claimer) heed(c *call, reply *store.ClaimReply) {
	s := c.session
	cl.q.dispatch.answered(c.hints, reply.More, s == cl.q.session && !reply.CutShort) // if not cut short, Redis has registered the session to be woken for more
	if cl.q.dispatch.stopping && !c.last && s == cl.q.session && c.Address != "" {
		s.address, cl.q.dispatch.probe = c.Address, true // another call takes that back
	}
	if s == cl.q.session && !reply.Alive {
		cl.q.keeper.lose(s)
	}
	cl.q.orders.heed(reply.Hints, c.began)
	cl.q.armTimer(c.began, reply.Next)
	if c.Want > 0 {
		cl.waiting = time.Time{}
	}
	cl.q.contact.accepted("claim")
}

// passOn tells the other parts what the reply says: of sessions that have expired, and of jobs that have ended. copies says whether dead jobs are copied.
func (cl *claimer) passOn(c *call, reply *store.ClaimReply, copies bool) {
	if len(reply.Expired) > 0 {
		cl.q.reclaimer.offer(reply.Expired)
	}
	if len(reply.Late) > 0 {
		cl.q.tooLate(reply.Late)
	}
	if len(reply.Overruled) > 0 {
		cl.q.overruled(c.Settle, reply.Overruled)
	}
	cl.q.tellSettled(c.Settle, reply.Refused, reply.Overruled, false)
	if copies {
		cl.q.copier.diedOf(c.Settle)
	}
	if t := &cl.q.keeper.tender; t.failing.Load() > 0 {
		t.failed(c.Settle)
	}
}

// heedLosses looks in a reply for what Redis has forgotten, and logs which settlements were refused.
func (cl *claimer) heedLosses(c *call, reply *store.ClaimReply) {
	why := "the job has been taken over"
	if !reply.Alive || !reply.Forgot.IsZero() || len(reply.Refused) > 0 {
		if cl.q.memory.recall(c.session, reply) {
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
		cl.q.log.Warn("signalbox: a superseded delivery was refused: "+why, about...)
	}
}

// finished counts a call's settlements as confirmed. It reports whether the call's session can be closed: it no
// longer claims, and has no deliveries and no calls left. The queue's mu is held.
func (cl *claimer) finished(c *call) bool {
	s := c.session
	s.calls--
	cl.q.dispatch.calls--
	if cl.unsure || len(cl.early) > 0 {
		cl.forgetEarly()
	}
	s.unconfirmed -= len(c.Settle)
	cl.q.drain.settled.Broadcast()
	if s == cl.q.session || s.calls > 0 || s.running > 0 || s.unconfirmed > 0 {
		return false
	}
	cl.q.sessions = slices.DeleteFunc(cl.q.sessions, func(x *session) bool { return x == s })
	return true
}

// giveUp forgets a call whose outcome will stay unknown.
func (cl *claimer) giveUp(c *call, err error) {
	cl.q.mu.Lock()
	cl.q.dispatch.got(c.slots, 0)
	if len(c.Settle) > 0 {
		cl.q.drain.abandoned += len(c.Settle)
		cl.q.drain.failure = err
	}
	cl.finished(c)
	cl.q.mu.Unlock()
	cl.q.tellSettled(c.Settle, nil, nil, true)
	if len(c.Settle) > 0 {
		cl.q.log.Error("signalbox: outcomes were not delivered; these jobs run again", "jobs", len(c.Settle), "error", err)
	}
}
