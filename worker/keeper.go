package worker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A keeper keeps what a queue has in Redis for as long as the worker lives: it opens the session and renews it, and does what is to be done every
// minute. Its goroutine is that of keep. Others ask the goroutine for something by the channels: these have room for one request, and are never waited
// for. Lanes close sessions of which they have settled the last job. After the goroutine has ended, the one of queue.run closes the last sessions.
type keeper struct {
	q        *queue
	settings teller
	tender   tender

	vacant       chan struct{} // the session is over: open another
	marked       chan struct{} // look which of the jobs that run were cancelled
	stuckNews    chan struct{} // write which handlers are stuck
	progressNews chan struct{} // write how far jobs are
	settingsNews chan struct{} // read what becomes of jobs that have ended

	// The goroutine of keep uses these alone, and then that of queue.run.
	begun     bool         // there was a session
	swept     time.Time    // when terminal jobs were last swept out
	looked    bool         // whether anybody uses the queue was looked at
	times     *store.Times // the batch that was sent, until Redis has confirmed it
	timesLane *store.Lane  // of the batches

	// The queue's mu guards these.
	clock     serverClock
	opened    bool            // there was a session that claims
	reporting bool            // progress is to be written soon
	vacated   time.Time       // when the last session that claimed was lost
	waited    facts.Histogram // how long deliveries waited that are in no batch yet
	ran       facts.Histogram // how long they ran
}

func newKeeper(q *queue) keeper {
	return keeper{
		q:            q,
		settings:     teller{q: q},
		tender:       tender{q: q, news: make(chan struct{}, 1)},
		vacant:       make(chan struct{}, 1),
		marked:       make(chan struct{}, 1),
		stuckNews:    make(chan struct{}, 1),
		progressNews: make(chan struct{}, 1),
		settingsNews: make(chan struct{}, 1),
		timesLane:    q.store.NewLane(),
	}
}

// keep opens the queue's session, renews it every third of its TTL, and opens another when it
// is lost. It goes on while the queue drains: handlers that ignore their end keep their jobs.
func (k *keeper) keep(ctx context.Context) {
	ttl := k.q.w.cfg.SessionTTL
	retry := newBackoff(ttl)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.marked:
			k.aside(ctx, func(ctx context.Context) {
				if !k.endCancelled(ctx) {
					timer.Reset(retry.NextBackOff()) // a renewal says whether there are any
				}
			})
			continue
		case <-k.stuckNews:
			k.aside(ctx, k.writeAllStuck)
			continue
		case <-k.progressNews:
			k.writeAllProgress(ctx)
			continue
		case <-k.settingsNews:
			k.aside(ctx, k.settings.readEnding)
			continue
		case <-k.vacant:
		case <-timer.C:
		}
		if k.renewAll(ctx, ttl) {
			retry.Reset()
			timer.Reset(ttl / 3)
		} else {
			timer.Reset(retry.NextBackOff())
		}
	}
}

// errAside ends what the keeper does beside its renewals when it takes too long.
var errAside = errors.New("the next renewal of the lease is due")

// aside does what is no renewal, and ends its calls when it takes too long: one that hangs, on a client that waits long for a reply, holds up the
// renewals by a sixth of the TTL, or a second. A call that failed for that has failed: see ended.
func (k *keeper) aside(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithTimeoutCause(ctx, max(k.q.w.cfg.SessionTTL/6, time.Second), errAside)
	defer cancel()
	do(ctx)
}

// ended reports whether the keeper's context has ended, and not only the time for what it does aside.
func ended(ctx context.Context) bool { return ctx.Err() != nil && context.Cause(ctx) != errAside }

// open opens a new session.
func (k *keeper) open(ctx context.Context, ttl time.Duration) bool {
	s := &session{queue: k.q, id: store.NewSession(k.q.w.id), validity: lease.NewValidity(k.q.base)}
	told := false
	k.aside(ctx, func(ctx context.Context) { told = k.settings.tell(ctx, "open") })
	if !told { // before the first job starts, also after Redis has lost it
		return false
	}
	start, began := lease.Now(), time.Now()
	k.q.contact.waits[lanes].begin(k.q, began)
	alive, hints, err := k.q.own.Taking(k.takeTimes()).Sessions().Open(ctx, s.id, ttl)
	k.q.contact.waits[lanes].end()
	if err != nil {
		if ctx.Err() == nil {
			k.q.contact.failed("open", began, err)
		}
		return false
	}
	k.q.contact.answered(began)
	if !alive || !s.validity.Extend(start, ttl) {
		return false
	}
	k.noteClock(hints.At, start, lease.Now())
	k.q.mu.Lock()
	k.q.contact.accepted("open")
	k.q.contact.accepted("renew") // another session is renewed from now on
	s.prolong(time.Now())
	s.opened, s.written = hints.At, hints.At
	k.claimUnder(s)
	k.q.sessions = append(k.q.sessions, s)
	k.q.mu.Unlock()
	k.times = nil // they came with it
	k.follow(hints, began)
	k.q.hint(false)
	k.q.listener.update()
	if !k.begun {
		k.begun = true
		k.q.w.link.open()
	}
	k.aside(ctx, k.register) // also after Redis has lost its memory
	return true
}

// register lists the queue for people and their tools. If that fails, a sweep tries again.
func (k *keeper) register(ctx context.Context) { _ = k.q.own.Presence().Register(ctx) }

// closeSession ends a session that has no deliveries left, here and in Redis. ends says that the worker ends. Then the call takes the last
// times along. It is made again if a batch is left after it: one that was sent before, and then the times since. Lanes call closeSession while the worker
// goes on, and the goroutine of queue.run when it ends.
func (k *keeper) closeSession(s *session, ends bool, lanes ...*store.Lane) {
	s.end(context.Canceled)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.q.base), 5*time.Second)
	defer cancel()
	k.writeStuck(ctx, s)    // none
	k.writeProgress(ctx, s) // none
	var times *store.Times
	if ends {
		times = k.takeTimes()
	}
	for {
		_, err := k.q.own.Taking(times).Sessions().Close(ctx, s.id, ends, lanes...)
		if errors.Is(err, redis.ErrClosed) { // hurry has closed the worker's own client
			err = k.q.drain.why()
		}
		if err != nil {
			k.q.log.Warn("signalbox: a session was not closed, and ends with its TTL", "error", err)
		}
		if times == nil || err != nil {
			return
		}
		k.times = nil
		if times = k.takeTimes(); times == nil {
			return
		}
	}
}

// errSilent is the error of a call that was given up at the end of a drain.
var errSilent = errors.New("no answer from Redis before the end of the drain")

// sweepEvery is how often terminal jobs that have been kept long enough are dropped.
const sweepEvery = time.Minute

// maxSweeps is how many calls a sweep makes at most. Each call drops up to 500 jobs of each terminal state, 500 windows of unique keys that are over, and 500
// old receipts of moves.
const maxSweeps = 200

// sweep drops terminal jobs that have been kept long enough. Only the keeper calls it.
func (k *keeper) sweep(ctx context.Context) {
	first := k.swept.IsZero()
	if !first && time.Since(k.swept) < sweepEvery {
		return
	}
	k.swept = time.Now()
	if !first && !k.looked {
		k.lookForProducers(ctx)
	}
	if !first { // open has just done it
		k.register(ctx)
	}
	if !k.settings.tell(ctx, "sweep") { // a sweep might drop more than Config says
		k.q.hint(true) // a lane's call says when Redis is back
		return
	}
	for range maxSweeps {
		began := time.Now()
		dropped, err := k.q.own.Sessions().Sweep(ctx)
		if err != nil && !ended(ctx) {
			k.q.contact.failed("sweep", began, err)
			k.q.hint(true) // a lane's call says when Redis is back
		}
		if dropped == 0 || time.Since(k.swept) > k.q.w.cfg.SessionTTL/6 { // a renewal is due
			return
		}
	}
}

// follow acts on the hints of a call's reply.
func (k *keeper) follow(h store.Hints, began time.Time) {
	if h.More {
		k.q.hint(false)
	}
	k.q.mu.Lock()
	k.q.orders.heed(h, began)
	k.q.armTimer(began, h.Next)
	k.q.mu.Unlock()
	if len(h.Expired) > 0 {
		k.q.reclaimer.offer(h.Expired)
	}
}

// claimUnder makes s the session that claims; nil: there is none. The queue's mu is held.
func (k *keeper) claimUnder(s *session) {
	if s != nil {
		k.opened = true
	} else {
		k.vacated = time.Now()
	}
	k.q.session = s
	k.q.dispatch.opens(s != nil)
}

// errSessionOver says that Redis refused to renew a session.
var errSessionOver = errors.New("the session is over in Redis, or unknown to it")

// errNotRenewed says that a session has ended by the worker's clock.
var errNotRenewed = errors.New("no renewal was answered in time")

// lose ends the contexts of the session's handlers, and says so in traces, metrics and the log, once. If the session is the one that
// claims, lose has another one opened. The queue's mu is held.
func (k *keeper) lose(s *session) {
	s.end(lock.ErrLost)
	if s == k.q.session {
		k.claimUnder(nil)
		k.q.contact.outage = time.Now() // others' sessions may have ended for the same reason
		if s.calls == 0 && s.running == 0 && s.unconfirmed == 0 {
			k.q.sessions = without(k.q.sessions, s)
		}
		select {
		case k.vacant <- struct{}{}:
		default: // the keeper knows
		}
	}
	if s.lost {
		return
	}
	s.lost = true
	k.q.tell(telemetry.EventLeaseLost, s)
	jobs, cause := s.running, cmp.Or(s.failure, errNotRenewed)
	ttl := k.q.w.cfg.SessionTTL
	if d := k.q.w.pace.stoodSince(s.renewedUntil.Add(-ttl)); d >= ttl/2 { // else it was something else for longer
		cause = errStoodStill(d)
	}
	k.q.mu.later(func() {
		k.q.w.leases.LeaseLost(k.q.base, k.q.store.Name(), telemetry.LostExpired)
		if jobs > 0 {
			k.q.log.Warn("signalbox: the lease was lost; the handlers' contexts have ended", "jobs", jobs, "cause", cause)
		}
	})
}
