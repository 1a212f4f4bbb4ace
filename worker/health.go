package worker

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

const (
	// notClaimingAfter is how long a queue may take no jobs, though some wait and it has free slots, before it is unready.
	notClaimingAfter = 10 * time.Second
	// brokenAfter is how long a state must last from which only a restart helps.
	brokenAfter = time.Minute
)

// Health returns what keeps the worker from its work: package health has the list. It calls nobody, and may be called at any time and
// often, before Run and after it, too. See [health.Live] and [health.Ready] for probes.
//
// A queue that is paused, and a worker that is quiet, are as somebody wants them: these are no problems.
func (w *Worker) Health() health.Report {
	now := time.Now()
	run := w.life.now()
	var r health.Report
	add := func(code health.Code, s health.Severity, since time.Time, detail string) {
		r.Problems = append(r.Problems, health.Problem{Part: part, Code: code, Severity: s, Since: since, Detail: detail})
	}
	switch {
	case run.failed:
		add(health.Ended, health.Broken, run.since, "Run has returned an error")
	case !run.running:
		add(health.NotRunning, health.Unready, run.since, "Run was not called, or has returned")
	case run.queues == nil:
		add(health.Starting, health.Unready, run.since, "Run waits for an answer of Redis")
	}
	if draining := drainingSince(run.queues); !draining.IsZero() {
		add(health.Draining, health.Unready, draining, "the worker ends")
	}
	for _, q := range run.queues {
		r.Problems = append(r.Problems, q.problems(run.link, now)...)
	}
	if run.link != nil {
		found := run.link.found.Load()
		if len(found.Wrong) > 0 {
			add(health.RedisUnfit, health.Unready, found.WrongSince, strings.Join(found.Wrong, "; "))
		}
		if len(found.Doubts) > 0 {
			add(health.RedisDoubtful, health.Degraded, found.DoubtsSince, strings.Join(found.Doubts, "; "))
		}
	}
	return health.Join(r)
}

// part is the name of workers in reports.
const part = "worker"

// A life says how far Run is.
type life struct {
	mu sync.Mutex
	stage
}

// A stage is a part of a life.
type stage struct {
	since   time.Time // when it began
	running bool
	failed  bool     // Run has returned an error, and nobody had asked it to end
	queues  []*queue // that Run works; nil until Redis has answered
	link    *link    // the same
}

// begin notes that Run was called.
func (l *life) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage = stage{since: time.Now(), running: true}
}

// serve notes that Run works the queues from now on.
func (l *life) serve(queues []*queue, link *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queues, l.link = queues, link
}

// end notes that Run returns.
func (l *life) end(failed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stage = stage{since: time.Now(), failed: failed}
}

func (l *life) now() stage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stage
}

// drainingSince returns when the first of the queues began to drain, or zero.
func drainingSince(queues []*queue) (since time.Time) {
	for _, q := range queues {
		q.mu.Lock()
		at := q.drain.since
		q.mu.Unlock()
		if !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}

// problems returns what keeps the queue from its work. A queue that drains has only what concerns the jobs that it still has.
func (q *queue) problems(link *link, now time.Time) []health.Problem {
	var all []health.Problem
	add := func(code health.Code, s health.Severity, since time.Time, format string, args ...any) {
		all = append(all, health.Problem{Part: part, Code: code, Severity: s, Queue: q.store.Name(), Since: since, Detail: fmt.Sprintf(format, args...)})
	}
	away, why, gone := link.absence(q)
	if gone {
		add(health.RedisAway, health.Unready, away, "%s", why)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.guard.report(add, now, gone)
	q.keeper.clock.report(add, now)
	if !q.drain.since.IsZero() {
		for i := range all {
			all[i].Severity = min(all[i].Severity, health.Unready) // it ends anyway
		}
		return all
	}
	q.keeper.report(add, now)
	q.contact.report(add)
	q.orders.report(add)
	if !gone {
		q.claimer.report(add, now)
	}
	return all
}

// An adder adds a problem to a report.
type adder func(code health.Code, s health.Severity, since time.Time, format string, args ...any)

// report reports stuck handlers. gone says that Redis is away. The queue's mu is held.
func (g *guard) report(add adder, now time.Time, gone bool) {
	st := &g.stuck
	if st.handlers == 0 {
		return
	}
	severity := health.Degraded
	// Handlers may wait for Redis, which no restart brings back.
	if !st.allKept.IsZero() && g.served(gone) && now.Sub(st.allKept)-st.idle >= brokenAfter {
		severity = health.Broken
	}
	add(health.HandlersStuck, severity, st.since, "%d handlers go on though their contexts have ended; %d of %d slots are free", st.handlers, g.q.slots.free(), g.q.slots.size)
}

// report reports that the clock was set. The queue's mu is held.
func (c *serverClock) report(add adder, now time.Time) {
	if !c.stepped.IsZero() && now.Sub(c.stepped) < steppedFor {
		add(health.ClockStepped, health.Degraded, c.stepped, "the clock of Redis was set by %v", c.by.Round(time.Millisecond))
	}
}

// report reports that there is no lease, or one that is late. The queue's mu is held.
func (k *keeper) report(add adder, now time.Time) {
	switch s := k.q.session; {
	case s == nil && !k.opened:
		add(health.Starting, health.Unready, k.q.contact.born, "no lease was granted yet")
	case s == nil:
		add(health.NoLease, health.Unready, k.vacated, "the lease has ended, and there is no other one yet")
	case s.over():
		since := s.renewedUntil
		if since.After(now) { // the worker trusts it for a little less time than Redis keeps it
			since = now
		}
		add(health.NoLease, health.Unready, since, "the lease has ended, and there is no other one yet")
	case s.late(now):
		ttl := k.q.w.cfg.SessionTTL
		add(health.LeaseLate, health.Degraded, s.renewedUntil.Add(-ttl/2), "no renewal for more than half of the lease's %v; %v are left",
			ttl, s.renewedUntil.Sub(now).Round(time.Millisecond))
	}
}

// report reports the kinds of calls that Redis refuses. The queue's mu is held.
func (ct *contact) report(add adder) {
	for call, r := range ct.refusals {
		add(health.Refused, health.Unready, r.since, "call %s: %s", call, r.why)
	}
}

// report reports that the queue's layout is none of this release. The queue's mu is held.
func (o *orders) report(add adder) {
	if number := o.withheld.Layout; number > 0 {
		misfit := layout.Error{Layout: number}
		add(health.Outdated, health.Unready, o.since, "%s", misfit.Reason())
	}
}

// report reports that no claim is answered though jobs wait. It is called if Redis isn't away. The queue's mu is held.
func (cl *claimer) report(add adder, now time.Time) {
	since := cl.waiting
	if since.IsZero() || now.Sub(since) < notClaimingAfter || !cl.canClaim() || cl.q.contact.refuses("claim") {
		return
	}
	severity := health.Unready
	if now.Sub(since) >= brokenAfter {
		severity = health.Broken
	}
	add(health.NotClaiming, severity, since, "jobs wait and %d slots are free, and no claim was answered: does the client's pool have a free connection?", cl.q.slots.free()+cl.q.slots.reserved())
}

// later returns the later one of two times.
func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// expect notes whether a renewal says that jobs wait, which this queue could take. The queue's mu is not held.
func (cl *claimer) expect(more bool) {
	cl.q.mu.Lock()
	defer cl.q.mu.Unlock()
	switch {
	case !more || !cl.canClaim():
		cl.waiting = time.Time{}
	case cl.waiting.IsZero():
		cl.waiting = time.Now()
	}
}

// canClaim reports whether nothing keeps the queue from claiming a job, or a claim is under way, which may hang. The queue's mu is held.
func (cl *claimer) canClaim() bool {
	d := cl.q.dispatch
	room := d.slots.free() > 0 && (d.bound == nil || d.bound.free() > 0 && !d.inLine) // in the line it waits for its turn
	return d.open && !d.stopping && (room || d.slots.reserved() > 0) && !cl.q.orders.withheld.Paused && !cl.q.orders.withheld.Away()
}

// A refused call has Redis's answer to a kind of call, until one of the kind succeeds.
type refused struct {
	since time.Time
	why   string
}

// publicReason says why a call failed, in words that have no address, no name and no secret.
func publicReason(err error) string {
	var answer redis.Error
	if errors.As(err, &answer) {
		word, _, _ := strings.Cut(answer.Error(), " ")
		if len(word) <= 20 && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			return "Redis answers " + word
		}
		return "Redis answers with an error"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return "timeout"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return "no answer"
}
