package worker

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// A session is the lease under which a worker holds the jobs of a queue. All but id and
// validity is guarded by the queue's mu.
type session struct {
	id       string
	validity *lock.Validity

	renewedUntil time.Time          // Redis keeps it until then at least, as far as we know
	running      int                // deliveries whose handlers run
	completed    []store.Settlement // to be sent: jobs that are done
	others       []store.Settlement // and those that ended otherwise
	unconfirmed  int                // of both, with those that are being sent
	calls        int                // calls under way
	suspect      bool               // holds a suspect, or is asking for one
	lost         bool               // metrics and traces have heard of its loss
	failing      bool               // and that it can't be renewed

	unmarked []*watch // deliveries of whose spans Redis wasn't told yet
}

// take takes up to n settlements, completed ones first.
func (s *session) take(n int) []store.Settlement {
	batch := s.completed
	s.completed = nil
	if len(batch) > n {
		batch, s.completed = batch[:n:n], batch[n:]
	}
	if rest := min(n-len(batch), len(s.others)); rest > 0 {
		batch = append(batch, s.others[:rest]...)
		s.others = s.others[rest:]
	}
	for i := range batch {
		if batch[i].Suspect {
			s.suspect = false // it is settled before this call claims
		}
	}
	return batch
}

// A lease is the lease of one delivery, as its handler sees it.
type lease struct {
	queue, id string
	token     int64
	validity  *lock.Validity
}

func (l *lease) Key() string      { return l.queue + "/" + l.id }
func (l *lease) Token() int64     { return l.token }
func (l *lease) Until() time.Time { return l.validity.Until() }

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
		case <-q.lost:
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

	ok := true
	for _, s := range sessions {
		start, began := lock.Now(), time.Now()
		alive, hints, err := q.store.Renew(ctx, s.id, ttl)
		q.answered(began)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				q.failed("renew", err)
				q.mu.Lock()
				if !s.failing && !s.lost { // once an outage
					s.failing = true
					q.tell(telemetry.EventRenewFailed, s)
				}
				q.mu.Unlock()
			}
			ok = false
		case !alive:
			q.lose(s)
		default:
			q.renewed(s, start, ttl)
			q.follow(hints)
		}
		if s == current && s.over() && !q.isStopping() { // a shutdown ends it as well
			q.lose(s) // Redis may still keep it for what runs under it
		}
	}
	q.mu.Lock()
	wanted := q.session == nil && !q.stopping
	q.mu.Unlock()
	if wanted {
		ok = q.open(ctx, ttl) && ok
	}
	q.reportStuck()
	q.sweep(ctx)
	return ok
}

func (q *queue) isStopping() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stopping
}

// over reports whether the session's promised validity has ended.
func (s *session) over() bool { return s.validity.Context().Err() != nil }

// open opens a new session.
func (q *queue) open(ctx context.Context, ttl time.Duration) bool {
	s := &session{id: store.NewID(), validity: lock.NewValidity(q.base)}
	start := lock.Now()
	alive, hints, err := q.store.Open(ctx, s.id, ttl)
	if err != nil {
		if ctx.Err() == nil {
			q.failed("open", err)
		}
		return false
	}
	if !alive || !s.validity.Extend(start, ttl) {
		return false
	}
	q.mu.Lock()
	s.renewedUntil = time.Now().Add(ttl)
	q.session = s
	q.sessions = append(q.sessions, s)
	q.mu.Unlock()
	q.follow(hints)
	q.hint(false)
	q.listener.update()
	return true
}

func (q *queue) renewed(s *session, start lock.Instant, ttl time.Duration) {
	q.mu.Lock()
	s.renewedUntil = time.Now().Add(ttl)
	s.failing = false
	q.mu.Unlock()
	s.validity.Extend(start, ttl)
	q.w.leases.LeaseRenewed(q.base, q.store.Name())
}

// lose ends the contexts of the session's handlers; if it was the one that claims, another is
// opened.
func (q *queue) lose(s *session) {
	s.end(lock.ErrLost)
	q.mu.Lock()
	var l *loss
	if s == q.session {
		l = q.loseSession()
	} else {
		l = q.lossOf(s)
	}
	q.mu.Unlock()
	q.tellLoss(l)
}

// loseSession is lose of the session that claims, but for the telling: that is the caller's. q.mu
// is held.
func (q *queue) loseSession() *loss {
	s := q.session
	q.session = nil
	q.outage = time.Now() // others' sessions may have ended for the same reason
	s.end(lock.ErrLost)
	l := q.lossOf(s)
	if s.calls == 0 && s.running == 0 && s.unconfirmed == 0 {
		q.sessions = without(q.sessions, s)
	}
	select {
	case q.lost <- struct{}{}:
	default: // the keeper knows
	}
	return l
}

// A loss is what logs and metrics are to be told of a lost lease. They are the user's code and may take
// long, so nobody tells them who holds q.mu.
type loss struct {
	jobs int // that ran
}

// lossOf tells the session's deliveries that the lease is lost. It returns what is left to tell, once.
// q.mu is held.
func (q *queue) lossOf(s *session) *loss {
	if s.lost {
		return nil
	}
	s.lost = true
	q.tell(telemetry.EventLeaseLost, s)
	return &loss{s.running}
}

// tellLoss tells a loss, if there is one.
func (q *queue) tellLoss(l *loss) {
	if l == nil {
		return
	}
	q.w.leases.LeaseLost(q.base, q.store.Name(), telemetry.LostExpired)
	if l.jobs > 0 {
		q.log.Warn("signalbox: the lease was lost; the handlers' contexts have ended", "jobs", l.jobs)
	}
}

// end ends the contexts of the session's handlers.
func (s *session) end(cause error) { s.validity.End(cause) }

// closeSession ends a session of which nothing is left, in Redis too.
func (q *queue) closeSession(s *session, lanes ...*store.Lane) {
	s.end(context.Canceled)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(q.base), 5*time.Second)
	defer cancel()
	if _, err := q.store.Close(ctx, s.id, lanes...); err != nil {
		q.log.Warn("signalbox: a session was not closed, and ends with its TTL", "error", err)
	}
}

// follow acts on what a call said there is to do.
func (q *queue) follow(h store.Hints) {
	if h.More {
		q.hint(false)
	}
	q.mu.Lock()
	q.armTimer(time.Now(), h.Next)
	q.mu.Unlock()
	q.offer(h.Expired)
}

// sweepEvery is how often terminal jobs that have been kept long enough are dropped.
const sweepEvery = time.Minute

// sweep drops terminal jobs that have been kept long enough. Only the keeper calls it.
func (q *queue) sweep(ctx context.Context) {
	if !q.swept.IsZero() && time.Since(q.swept) < sweepEvery {
		return
	}
	q.swept = time.Now()
	if err := q.store.Sweep(ctx); err != nil && ctx.Err() == nil {
		q.failed("sweep", err)
	}
}

// reportStuck warns of handlers that run on though their contexts have ended.
func (q *queue) reportStuck() {
	kinds := make(map[string]int)
	longest := time.Duration(0)
	q.mu.Lock()
	ended := make(map[*session]bool)
	for _, s := range q.sessions {
		if s.over() {
			ended[s] = true
		}
	}
	for i := range q.slots {
		if s := &q.slots[i]; len(ended) > 0 && ended[s.session] {
			kinds[s.kind]++
			longest = max(longest, time.Since(s.since))
		}
	}
	q.mu.Unlock()
	if len(kinds) > 0 {
		q.warn("stuck", "signalbox: handlers ignore that their context has ended, and keep their slots", "kinds", kinds, "longest", longest)
	}
}

// newBackoff spaces calls that are made again: from 10 ms to a tenth of the TTL, jittered.
func newBackoff(ttl time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(10*time.Millisecond),
		backoff.WithMaxInterval(min(ttl/10, time.Second)),
		backoff.WithMaxElapsedTime(0))
}
