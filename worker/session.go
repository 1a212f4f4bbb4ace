package worker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A session is the lease under which a worker holds the jobs of a queue. The queue's mu guards all fields but queue, id
// and validity.
type session struct {
	queue    *queue
	id       string
	validity *lease.Validity

	renewedUntil time.Time          // Redis keeps it at least until then, by its last reply
	opened       time.Time          // by Redis's clock
	written      time.Time          // when it was last renewed, by Redis's clock
	running      int                // deliveries whose handlers run
	completed    []store.Settlement // to be sent: jobs that are done
	others       []store.Settlement // and those that ended otherwise
	unconfirmed  int                // settlements that Redis hasn't confirmed, sent or not
	calls        int                // calls under way
	suspects     int                // suspects that run, or whose settlements were not sent yet
	barred       bool               // claims ask for no suspects: some run, and the last claim that asked got none
	lost         bool               // its loss is in metrics and traces
	failing      bool               // that it can't be renewed is in traces
	failure      error              // why it was not renewed, by the last call; nil: no call has failed

	toldStuck bool // Redis has a list of its stuck handlers

	address string      // where its wake-ups are heard; "": nowhere yet
	unnoted []*delivery // those whose notes Redis doesn't have yet
}

// take takes as many settlements as go in one call, completed ones first. It leaves the next ones the room of a spare.
func (s *session) take(spares *[][]store.Settlement) []store.Settlement {
	batch := s.completed
	s.completed = nil
	if last := len(*spares) - 1; last >= 0 {
		s.completed, *spares = (*spares)[last], (*spares)[:last]
	}
	if n := store.Fit(batch); n < len(batch) {
		batch, s.completed = batch[:n:n], batch[n:]
	} else if len(s.others) > 0 {
		all := append(batch, s.others...)
		n = store.Fit(all)
		batch, s.others = all[:n:n], s.others[n-len(batch):]
		clear(all[n:]) // copies
	}
	for i := range batch {
		if batch[i].Suspect {
			s.suspects--
			s.barred = false // it is settled before this call claims
		}
	}
	return batch
}

// keep opens the queue's session, renews it every third of its TTL, and opens another when it
// is lost. It goes on while the queue drains: handlers that ignore their end keep their jobs.
func (q *queue) keep(ctx context.Context) {
	ttl := q.w.cfg.SessionTTL
	retry := newBackoff(ttl)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.marked:
			if !q.endCancelled(ctx) {
				timer.Reset(retry.NextBackOff()) // a renewal says whether there are any
			}
			continue
		case <-q.stuckNews:
			q.writeAllStuck(ctx)
			continue
		case <-q.settingsNews:
			q.readEnding(ctx)
			continue
		case <-q.vacant:
		case <-timer.C:
		}
		if q.renewAll(ctx, ttl) {
			retry.Reset()
			timer.Reset(ttl / 3)
		} else {
			timer.Reset(retry.NextBackOff())
		}
	}
}

// renewAll renews every session that has deliveries, and opens one if none claims. It
// reports whether all went well.
func (q *queue) renewAll(ctx context.Context, ttl time.Duration) bool {
	q.mu.Lock()
	sessions := append([]*session(nil), q.sessions...)
	current := q.session
	q.mu.Unlock()

	ok, times := true, q.takeTimes()
	for _, s := range sessions {
		q.mu.Lock()
		address := s.address
		q.mu.Unlock()
		start, began := lease.Now(), time.Now()
		q.waits[lanes].begin(q, began)
		alive, hints, err := q.own.Taking(times).Renew(ctx, s.id, ttl, address)
		q.waits[lanes].end()
		if err == nil && alive { // else it wrote nothing, and Redis may refuse to
			q.answered(began)
		} else {
			q.slow(began, time.Now())
		}
		switch {
		case err != nil:
			if ctx.Err() == nil {
				q.failed("renew", began, err)
				q.mu.Lock()
				s.failure = err
				if !s.failing && !s.lost { // once an outage
					s.failing = true
					q.tell(telemetry.EventRenewFailed, s)
				}
				q.mu.Unlock()
			}
			ok = false
		case !alive:
			q.recall(s, &store.ClaimReply{Hints: hints})
			q.mu.Lock()
			q.lose(s)
			q.mu.Unlock()
		default:
			q.renewed(s, start, hints.At, ttl)
			times, q.times = nil, nil
			q.noteClock(hints.At, start, lease.Now())
			q.expect(hints.More)
			q.follow(hints, began)
			q.relisten(s, hints, address)
			if hints.Cancels {
				q.lookForCancels()
			}
			q.writeStuck(ctx, s)
		}
		q.mu.Lock()
		if s == current && s.over() && !q.dispatch.stopping { // a shutdown ends it as well
			q.lose(s) // Redis may still keep it for what runs under it
		}
		q.mu.Unlock()
	}
	q.mu.Lock()
	wanted := q.session == nil && !q.dispatch.stopping
	q.mu.Unlock()
	if wanted {
		ok = q.open(ctx, ttl) && ok
	}
	q.sweep(ctx)
	return ok
}

// relisten acts on what a renewal says of the session's wake-ups, which it expects at the address: whether anybody hears them, and
// whether it is registered for one. Redis may have forgotten either in a failover.
func (q *queue) relisten(s *session, h store.Hints, address string) {
	if address == "" {
		return
	}
	if !h.Heard {
		q.listener.distrust(s)
	}
	q.mu.Lock()
	forgotten := !h.Idle && q.idle() && s == q.session && !q.standing.Away()
	q.mu.Unlock()
	if forgotten {
		q.hint(false)
	}
}

// over reports whether the session's promised validity has ended.
func (s *session) over() bool { return s.validity.Err() != nil }

// late reports whether the session's last renewal is more than half of its TTL ago: one is due each third of it. The queue's mu is held.
func (s *session) late(now time.Time) bool {
	return now.After(s.renewedUntil.Add(-s.queue.w.cfg.SessionTTL / 2))
}

// prolong notes that Redis has renewed the session just now, or has opened it. If that was late, others may have been late, too. The queue's mu is
// held.
func (s *session) prolong(now time.Time) {
	q := s.queue
	if s.late(now) && (q.opened || !q.outage.IsZero()) { // else it is the first one, at the first try
		q.outage = now
	}
	s.renewedUntil = now.Add(q.w.cfg.SessionTTL)
}

// open opens a new session.
func (q *queue) open(ctx context.Context, ttl time.Duration) bool {
	s := &session{queue: q, id: store.NewSession(q.w.id), validity: lease.NewValidity(q.base)}
	if !q.seed(ctx, "open") { // before the first job starts, also after Redis has lost it
		return false
	}
	start, began := lease.Now(), time.Now()
	q.waits[lanes].begin(q, began)
	alive, hints, err := q.own.Taking(q.takeTimes()).Open(ctx, s.id, ttl)
	q.waits[lanes].end()
	if err != nil {
		if ctx.Err() == nil {
			q.failed("open", began, err)
		}
		return false
	}
	q.answered(began)
	if !alive || !s.validity.Extend(start, ttl) {
		return false
	}
	q.noteClock(hints.At, start, lease.Now())
	q.mu.Lock()
	delete(q.refusals, "open")
	delete(q.refusals, "renew") // another session is renewed from now on
	s.prolong(time.Now())
	s.opened, s.written = hints.At, hints.At
	q.claimUnder(s)
	q.sessions = append(q.sessions, s)
	q.mu.Unlock()
	q.times = nil // they came with it
	q.follow(hints, began)
	q.hint(false)
	q.listener.update()
	if !q.begun {
		q.begun = true
		q.w.link.open()
	}
	_ = q.own.Register(ctx) // for people and their tools, also after Redis has lost its memory; a sweep tries again
	return true
}

func (q *queue) renewed(s *session, start lease.Instant, at time.Time, ttl time.Duration) {
	q.mu.Lock()
	s.prolong(time.Now())
	s.written = at
	s.failing, s.failure = false, nil
	delete(q.refusals, "renew")
	q.mu.Unlock()
	s.validity.Extend(start, ttl)
	q.w.leases.LeaseRenewed(q.base, q.store.Name())
}

// errSessionOver says that Redis refused to renew a session.
var errSessionOver = errors.New("the session is over in Redis, or unknown to it")

// errNotRenewed says that a session has ended by the worker's clock.
var errNotRenewed = errors.New("no renewal was answered in time")

// lose ends the contexts of the session's handlers, and says so in traces, metrics and the log, once. If the session is the one that
// claims, lose has another one opened. q.mu is held.
func (q *queue) lose(s *session) {
	s.end(lock.ErrLost)
	if s == q.session {
		q.claimUnder(nil)
		q.outage = time.Now() // others' sessions may have ended for the same reason
		if s.calls == 0 && s.running == 0 && s.unconfirmed == 0 {
			q.sessions = without(q.sessions, s)
		}
		select {
		case q.vacant <- struct{}{}:
		default: // the keeper knows
		}
	}
	if s.lost {
		return
	}
	s.lost = true
	q.tell(telemetry.EventLeaseLost, s)
	jobs, cause := s.running, cmp.Or(s.failure, errNotRenewed)
	q.mu.later(func() {
		q.w.leases.LeaseLost(q.base, q.store.Name(), telemetry.LostExpired)
		if jobs > 0 {
			q.log.Warn("signalbox: the lease was lost; the handlers' contexts have ended", "jobs", jobs, "cause", cause)
		}
	})
}

// end ends the contexts of the session's handlers.
func (s *session) end(cause error) { s.validity.End(cause) }

// errSilent is the error of a call that was given up at the end of a drain.
var errSilent = errors.New("no answer from Redis before the end of the drain")

// closeSession ends a session that has no deliveries left, here and in Redis. ends says that the worker ends. Then the call takes the last
// times along. It is made again if a batch is left after it: one that was sent before, and then the times since.
func (q *queue) closeSession(s *session, ends bool, lanes ...*store.Lane) {
	s.end(context.Canceled)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.base), 5*time.Second)
	defer cancel()
	q.writeStuck(ctx, s) // none
	var times *store.Times
	if ends {
		times = q.takeTimes()
	}
	for {
		_, err := q.own.Taking(times).Close(ctx, s.id, ends, lanes...)
		if errors.Is(err, redis.ErrClosed) { // hurry has closed the worker's own client
			err = errSilent
		}
		if err != nil {
			q.log.Warn("signalbox: a session was not closed, and ends with its TTL", "error", err)
		}
		if times == nil || err != nil {
			return
		}
		q.times = nil
		if times = q.takeTimes(); times == nil {
			return
		}
	}
}

// follow acts on the hints of a call's reply.
func (q *queue) follow(h store.Hints, began time.Time) {
	if h.More {
		q.hint(false)
	}
	q.mu.Lock()
	q.heed(h, began)
	q.armTimer(began, h.Next)
	q.mu.Unlock()
	q.offer(h.Expired)
}

// sweepEvery is how often terminal jobs that have been kept long enough are dropped.
const sweepEvery = time.Minute

// maxSweeps is how many calls a sweep makes at most. Each call drops up to 500 jobs of each terminal state, 500 windows of unique keys that are over, and 500
// old receipts of moves.
const maxSweeps = 200

// sweep drops terminal jobs that have been kept long enough. Only the keeper calls it.
func (q *queue) sweep(ctx context.Context) {
	first := q.swept.IsZero()
	if !first && time.Since(q.swept) < sweepEvery {
		return
	}
	q.swept = time.Now()
	if !first && !q.looked {
		q.lookForProducers(ctx)
	}
	if !first { // open has just done it
		_ = q.own.Register(ctx)
	}
	if !q.seed(ctx, "sweep") { // a sweep might drop more than Config says
		q.hint(true) // a lane's call says when Redis is back
		return
	}
	for range maxSweeps {
		began := time.Now()
		dropped, err := q.own.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			q.failed("sweep", began, err)
			q.hint(true) // a lane's call says when Redis is back
		}
		if dropped == 0 || time.Since(q.swept) > q.w.cfg.SessionTTL/6 { // a renewal is due
			return
		}
	}
}

// newBackoff spaces calls that are made again: from 10 ms to a tenth of the TTL, jittered.
func newBackoff(ttl time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(min(ttl/10, time.Second)),
		backoff.WithMaxElapsedTime(0))
}
