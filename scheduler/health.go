package scheduler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/health"
)

const (
	// failureCounts is how long a failed enqueue, or call for ticks, counts, unless another call is made. A process that gets no requests since it isn't
	// ready must become ready again, to find out.
	failureCounts = 30 * time.Second
	// enqueueHangs is how long a call may wait for its answer.
	enqueueHangs = 2 * time.Second
	// cronSilentAfter is how long a tick may be overdue. It is longer than Grace.
	cronSilentAfter = 2 * Grace
	// cronBrokenAfter is how long the loop of a queue may do nothing. It looks every longestSleep.
	cronBrokenAfter = time.Minute
)

// Health returns what keeps the scheduler from its work: package health has the list. It waits for nobody, and may be called at any time and
// often. See [health.Live] and [health.Ready] for probes.
//
// A scheduler without cron entries needs no [Scheduler.Run]. Its health is that of the last enqueue to each queue. If Redis didn't answer that one, or
// takes no writes at all, Health asks Redis in the background, twice a second, whether it takes writes again. That ends 10 s after the last call of Health. If Redis says so and the next
// enqueue gets no answer either, writes are not what fails, and such an answer no longer counts.
func (s *Scheduler) Health() health.Report {
	now := time.Now()
	r := s.cron.health()
	s.mu.RLock()
	queues := make([]*combiner, 0, len(s.queues))
	for _, c := range s.queues {
		queues = append(queues, c)
	}
	s.mu.RUnlock()
	for _, c := range queues {
		c.ask(now)
		if p, ok := c.problem(now); ok {
			r.Problems = append(r.Problems, p)
		}
	}
	return health.Join(r)
}

// problem returns a problem of a queue. queue is "" if it concerns all.
func problem(code health.Code, s health.Severity, queue string, since time.Time, format string, args ...any) health.Problem {
	return health.Problem{Part: "scheduler", Code: code, Severity: s, Queue: queue, Since: since, Detail: fmt.Sprintf(format, args...)}
}

// publicReason says why a call failed, in words that have no address, no name and no secret.
func publicReason(err error) string {
	if word := errorType(err); word != "" {
		return word
	}
	return "no answer"
}

const (
	askEvery = 500 * time.Millisecond
	askFor   = 10 * time.Second // the usual time between two probes
)

// ask finds out whether Redis takes writes again, while the queue's last call failed for want of that. So a process that gets no requests since it isn't ready becomes ready as soon as
// Redis is back. It asks until then, or for askFor after the latest call of ask.
func (c *combiner) ask(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.fails.away || now.Sub(c.fails.last) >= failureCounts {
		return
	}
	c.askUntil = now.Add(askFor)
	if !c.asking {
		c.asking = true
		go c.asks()
	}
}

// asks asks until there is nothing to ask for.
func (c *combiner) asks() {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), enqueueHangs)
		began := time.Now()
		err := c.queue.TakesWrites(ctx)
		cancel()
		c.mu.Lock()
		c.fails.answered(err, began)
		if c.asking = c.fails.away && time.Now().Before(c.askUntil) && !errors.Is(err, redis.ErrClosed); !c.asking {
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		time.Sleep(askEvery)
	}
}

// problem returns what is wrong with enqueues to the queue.
func (c *combiner) problem(now time.Time) (p health.Problem, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, hangs := c.queue.Name(), len(c.lanes) > len(c.idle) && now.Sub(c.began) >= enqueueHangs
	switch f := &c.fails; {
	case !f.since.IsZero() && f.outdated && now.Sub(f.last) < failureCounts:
		return problem(health.Outdated, health.Unready, name, f.since, "%s", f.why), true
	case !f.since.IsZero() && (hangs || now.Sub(f.last) < failureCounts):
		return problem(health.EnqueueFailing, health.Unready, name, f.since, "%s", f.why), true
	case hangs:
		return problem(health.EnqueueFailing, health.Unready, name, c.began, "no answer yet"), true
	}
	return health.Problem{}, false
}

// health returns what keeps cron entries from being fired.
func (c *crontab) health() health.Report {
	c.mu.Lock()
	entries, running, since, r := len(c.entries), c.running, c.since, c.runner
	c.mu.Unlock()
	var all []health.Problem
	switch {
	case !running && entries > 0:
		all = append(all, problem(health.NotRunning, health.Unready, "", since, "there are %d cron entries, and Run was not called, or has returned", entries))
	case running && r == nil:
		all = append(all, problem(health.Starting, health.Unready, "", since, "Run waits for an answer of Redis"))
	case r != nil:
		all = r.problems(all)
	}
	return health.Report{Problems: all}
}

func (r *runner) problems(all []health.Problem) []health.Problem {
	found := r.found.Load()
	if len(found.Wrong) > 0 {
		all = append(all, problem(health.RedisUnfit, health.Unready, "", found.WrongSince, "%s", strings.Join(found.Wrong, "; ")))
	}
	if len(found.Doubts) > 0 {
		all = append(all, problem(health.RedisDoubtful, health.Degraded, "", found.DoubtsSince, "%s", strings.Join(found.Doubts, "; ")))
	}
	own, now := r.s.now(), time.Now()
	r.outage.show.Lock()
	for queue, l := range r.outage.down {
		all = append(all, problem(health.RedisAway, health.Unready, queue, now.Add(l.since.Sub(own)), "%s", l.why))
	}
	r.outage.show.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for queue, l := range r.loops {
		all = l.pulse.problems(all, queue, own, now)
	}
	return all
}

// A pulse is what a loop shows of its state.
type pulse struct {
	mu     sync.Mutex
	at     time.Time     // when the loop last did something; zero: it has not begun
	due    time.Time     // the earliest tick that was not decided, by our clock; zero: none is known
	waits  time.Time     // since when there are entries whose last tick isn't known; zero: there are none
	fails  time.Time     // since when calls for ticks fail; zero: they don't
	jumped time.Duration // by how much Redis's clock is apart from that by which the ticks go
	since  time.Time     // when that was noticed, by our clock; zero: it isn't so
	misfit layoutMisfit
}

// beat shows the loop's state. Its owner calls it after each step.
func (l *loop) beat() {
	switch {
	case len(l.fresh) == 0 && !l.asking:
		l.waits = time.Time{}
	case l.waits.IsZero():
		l.waits = time.Now()
	}
	var first time.Time // by Redis's clock
	earlier := func(e *ticking) {
		due := e.next
		if e.owes() { // it is late already
			due = e.at()
		}
		if first.IsZero() || due.Before(first) {
			first = due
		}
	}
	if e := l.agenda.first(); e != nil {
		earlier(e)
	}
	for _, c := range l.again {
		for _, e := range c.entries {
			earlier(e)
		}
	}
	if l.calls == 0 && time.Since(l.failed) >= failureCounts {
		l.fails = time.Time{} // the ticks were given up; the next one may be long off
	}
	own := l.s.now()
	p := &l.pulse
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.waits, p.fails, p.misfit = time.Now(), l.waits, l.fails, l.misfit
	p.due, p.since, p.jumped = time.Time{}, time.Time{}, 0
	if l.clock.known && !first.IsZero() {
		p.due = own.Add(first.Sub(l.clock.now(own)))
	}
	if l.clock.jumped {
		p.since, p.jumped = l.clock.seen, -l.clock.skew(own)
	}
}

// problems adds those of the loop. own is the time by the scheduler's clock, and now by the wall clock.
func (p *pulse) problems(all []health.Problem, queue string, own, now time.Time) []health.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() {
		return all
	}
	silent := func(s health.Severity, since time.Time, why string) {
		all = append(all, problem(health.CronSilent, s, queue, since, "%s", why))
	}
	switch {
	case now.Sub(p.at) >= cronBrokenAfter:
		silent(health.Broken, p.at, "the scheduler does nothing for the entries of this queue")
	case p.misfit.is():
		all = append(all, problem(health.Outdated, health.Unready, queue, p.misfit.since, "%s", p.misfit.err.Reason()))
	case !p.fails.IsZero() && now.Sub(p.fails) >= cronSilentAfter:
		silent(health.Unready, p.fails, "the calls for ticks fail")
	case !p.waits.IsZero() && now.Sub(p.waits) >= cronSilentAfter:
		silent(health.Unready, p.waits, "the last ticks of entries can't be read")
	case !p.due.IsZero() && own.Sub(p.due) >= cronSilentAfter:
		silent(health.Unready, now.Add(p.due.Sub(own)), "a tick is overdue")
	}
	if !p.since.IsZero() {
		all = append(all, problem(health.ClockStepped, health.Degraded, queue, now.Add(p.since.Sub(own)), "the clock of Redis jumped by %v; ticks go by the old time until that has lasted for %v",
			p.jumped.Round(time.Millisecond), clockPatience))
	}
	return all
}
