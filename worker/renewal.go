package worker

import (
	"context"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// renewAll renews every session that has deliveries, and opens one if none claims. It
// reports whether all went well.
func (k *keeper) renewAll(ctx context.Context, ttl time.Duration) bool {
	k.q.mu.Lock()
	sessions := append([]*session(nil), k.q.sessions...)
	current := k.q.session
	k.q.mu.Unlock()

	ok, times := true, k.takeTimes()
	for _, s := range sessions {
		r := renewal{keeper: k, session: s}
		r.send(ctx, ttl, times)
		switch {
		case r.err != nil:
			r.failed(ctx)
			ok = false
		case !r.alive:
			r.refused()
		default:
			times, k.times = nil, nil // they came with it
			r.done(ctx, ttl)
		}
		k.q.mu.Lock()
		if s == current && s.over() && !k.q.dispatch.stopping { // a shutdown ends it as well
			k.lose(s) // Redis may still keep it for what runs under it
		}
		k.q.mu.Unlock()
	}
	k.q.mu.Lock()
	wanted := k.q.session == nil && !k.q.dispatch.stopping
	k.q.mu.Unlock()
	if wanted {
		ok = k.open(ctx, ttl) && ok
	}
	k.aside(ctx, k.sweep)
	return ok
}

// A renewal is a call that renews a session, and its reply.
type renewal struct {
	keeper  *keeper
	session *session
	address string        // where the session waits for wake-ups; "": it doesn't
	start   lease.Instant // when the call was sent
	began   time.Time     // the same, by the wall clock
	alive   bool
	hints   store.Hints
	err     error
}

// send makes the call, and takes the times along. It notes what the reply says of the way to Redis.
func (r *renewal) send(ctx context.Context, ttl time.Duration, times *store.Times) {
	q := r.keeper.q
	q.mu.Lock()
	r.address = r.session.address
	q.mu.Unlock()
	r.start, r.began = lease.Now(), time.Now()
	q.contact.waits[lanes].begin(q, r.began)
	r.alive, r.hints, r.err = q.own.Taking(times).Sessions().Renew(ctx, r.session.id, ttl, r.address)
	q.contact.waits[lanes].end()
	if r.err == nil && r.alive { // else it wrote nothing, and Redis may refuse to
		q.contact.answered(r.began)
	} else {
		q.contact.slow(r.began, time.Now())
	}
}

// failed notes that the call failed, unless ctx has ended.
func (r *renewal) failed(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	q, s := r.keeper.q, r.session
	q.contact.failed("renew", r.began, r.err)
	q.mu.Lock()
	s.failure = r.err
	if !s.failing && !s.lost { // once an outage
		s.failing = true
		q.tell(telemetry.EventRenewFailed, s)
	}
	q.mu.Unlock()
}

// refused ends the session: Redis says that it is over, or doesn't know it.
func (r *renewal) refused() {
	q := r.keeper.q
	q.memory.recall(r.session, &store.ClaimReply{Hints: r.hints})
	q.mu.Lock()
	q.keeper.lose(r.session)
	q.mu.Unlock()
}

// done acts on the reply of a call that has renewed the session.
func (r *renewal) done(ctx context.Context, ttl time.Duration) {
	k := r.keeper
	r.prolong(ttl)
	k.noteClock(r.hints.At, r.start, lease.Now())
	k.q.claimer.expect(r.hints.More)
	k.follow(r.hints, r.began)
	r.relisten()
	if r.hints.Cancels {
		k.lookForCancels()
	}
	k.aside(ctx, func(ctx context.Context) { k.writeStuck(ctx, r.session) })
	k.keepProgress(ctx, r.session)
}

// prolong lets the session live for ttl from the call on.
func (r *renewal) prolong(ttl time.Duration) {
	q, s := r.keeper.q, r.session
	q.mu.Lock()
	s.prolong(time.Now())
	s.written = r.hints.At
	s.failing, s.failure = false, nil
	q.contact.accepted("renew")
	q.mu.Unlock()
	s.validity.Extend(r.start, ttl)
	q.w.leases.LeaseRenewed(q.base, q.store.Name())
}

// relisten acts on what the reply says of the session's wake-ups, which it expects at the address: whether anybody hears them, and
// whether it is registered for one. Redis may have forgotten either in a failover.
func (r *renewal) relisten() {
	k, s := r.keeper, r.session
	if r.address == "" {
		return
	}
	if !r.hints.Heard {
		k.q.listener.distrust(s)
	}
	k.q.mu.Lock()
	forgotten := !r.hints.Idle && k.q.idle() && s == k.q.session && !k.q.orders.withheld.Away()
	k.q.mu.Unlock()
	if forgotten {
		k.q.hint(false)
	}
}
