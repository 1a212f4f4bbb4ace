package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/baggage"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// Grace is how late, by the clock of Redis, a tick of a cron entry may be and still be enqueued.
// Later it is skipped.
const Grace = 5 * time.Second

const (
	tickTimeout   = 2 * time.Second // of a call for a tick, or for the time
	ticksAtOnce   = 4               // calls for ticks in flight, per queue
	clockLifetime = time.Minute     // after which the server's clock is read again
	clockStep     = time.Second     // wall and monotonic clock apart by this: we were suspended
	maxCounted    = 1000            // skipped ticks are counted so far, each time
)

// Run enqueues the ticks of the entries given to [Scheduler.Cron], before and after. It blocks until ctx
// ends, and returns nil then, after the calls that are on their way: within a few seconds,
// as the client's timeouts allow. While Redis is away it waits for it, and the log says
// so at the start and at the end. It returns an error at once if it runs already.
func (s *Scheduler) Run(ctx context.Context) error {
	if !s.cron.start() {
		return errors.New("scheduler: Run was called while it runs; one per scheduler does for all entries")
	}
	defer s.cron.stop()
	newLoop(s, func(queue string) tickServer { return store.New(s.rdb, queue) }).run(ctx)
	return nil
}

// tickServer is what the loop needs of a queue.
type tickServer interface {
	Now(ctx context.Context) (time.Time, error)
	NewLane() *store.Lane
	EnqueueTick(ctx context.Context, lane *store.Lane, entry string, tick time.Time, item store.Item) (store.TickOutcome, time.Time, error)
}

// A loop runs entries. One goroutine owns all of its state; calls to Redis are made by others,
// which hand back what is to be done with the outcome.
type loop struct {
	s    *Scheduler
	open func(queue string) tickServer

	queues    map[string]*tickQueue
	entries   []*ticking
	calls     int         // in flight
	done      chan func() // takes the outcome of each
	downSince time.Time   // when the log said that Redis is away
}

// tickQueue is what is known of a queue's server.
type tickQueue struct {
	server  tickServer
	time    time.Time // the server's
	readAt  time.Time // when we got it, by our clock
	known   bool
	reading bool
	retries int
	retryAt time.Time // earliest next reading
	calls   int       // for ticks, in flight
}

// ticking is an entry under way.
type ticking struct {
	*entry
	queue   *tickQueue
	lane    *store.Lane
	next    time.Time // the tick at hand; zero before the first
	call    *tickCall // of that tick, once it was tried
	busy    bool      // the call is in flight
	over    bool      // no tick will come
	missed  int       // ticks skipped since one was enqueued, by whomever
	retries int
	retryAt time.Time
}

// A tickCall is a tick on its way. Each time it is the same call, in case that an earlier one
// was run and its reply lost.
type tickCall struct {
	item  store.Item
	ctx   context.Context // of the spans
	spans tickSpans
	err   error // of the last try that failed
	doubt bool  // a try that failed may have been run, or may be yet
}

func newLoop(s *Scheduler, open func(queue string) tickServer) *loop {
	return &loop{s: s, open: open, queues: make(map[string]*tickQueue), done: make(chan func())}
}

func (l *loop) run(ctx context.Context) {
	calls := context.WithoutCancel(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.adopt()
		timer.Reset(l.step(calls))
		select {
		case <-ctx.Done():
		case <-l.s.cron.added:
		case outcome := <-l.done:
			outcome()
		case <-timer.C:
		}
	}
	for l.calls > 0 {
		(<-l.done)()
	}
	for _, e := range l.entries {
		l.giveUp(e)
	}
}

// adopt takes over the entries that were registered since.
func (l *loop) adopt() {
	for _, e := range l.s.cron.from(len(l.entries)) {
		q := l.queues[e.job.Queue]
		if q == nil {
			q = &tickQueue{server: l.open(e.job.Queue)}
			l.queues[e.job.Queue] = q
		}
		l.entries = append(l.entries, &ticking{entry: e, queue: q, lane: q.server.NewLane()})
	}
}

// step starts what is due and returns the time until there is more to do. What is waiting for a
// call's outcome is looked at again when that comes.
func (l *loop) step(ctx context.Context) time.Duration {
	now, wait := l.s.now(), time.Hour
	for _, q := range l.queues {
		switch due := q.readDue(now); {
		case q.reading:
		case due <= 0:
			l.read(ctx, q)
		default:
			wait = min(wait, due)
		}
	}
	for _, e := range l.entries {
		if e.busy || e.over || e.queue.reading || !e.queue.known {
			continue
		}
		if due := l.due(e, now); due > 0 {
			wait = min(wait, due)
		} else if !e.over && e.queue.calls < ticksAtOnce && !l.fire(ctx, e) {
			wait = 0
		}
	}
	return wait
}

// readDue returns how long the queue's clock needs no reading.
func (q *tickQueue) readDue(now time.Time) time.Duration {
	if !q.known {
		return q.retryAt.Sub(now)
	}
	elapsed := now.Sub(q.readAt)
	wall := now.Round(0).Sub(q.readAt.Round(0))
	if (wall - elapsed).Abs() > clockStep {
		return 0
	}
	return clockLifetime - elapsed
}

// read asks for the server's time.
func (l *loop) read(ctx context.Context, q *tickQueue) {
	q.reading = true
	l.call(ctx, func(ctx context.Context) func() {
		t, err := q.server.Now(ctx)
		at := l.s.now()
		return func() {
			q.reading = false
			if err != nil {
				q.known = false
				q.retryAt = at.Add(backoff(q.retries))
				q.retries++
				l.down(at, err)
				return
			}
			q.retries = 0
			l.heard(q, t, at)
		}
	})
}

// call makes a call in a goroutine of its own. f returns what the loop is to do with its outcome.
func (l *loop) call(ctx context.Context, f func(ctx context.Context) func()) {
	l.calls++
	go func() {
		ctx, cancel := context.WithTimeout(ctx, tickTimeout)
		defer cancel()
		outcome := f(ctx)
		l.done <- func() {
			l.calls--
			outcome()
		}
	}()
}

// heard takes the server's time from a reply. The reply was made a little earlier, so that our
// estimate is never ahead.
func (l *loop) heard(q *tickQueue, t, at time.Time) {
	q.time, q.readAt, q.known = t, at, true
	if !l.downSince.IsZero() {
		l.s.log.Info("scheduler: cron: Redis is back", "after", at.Sub(l.downSince).Round(time.Millisecond))
		l.downSince = time.Time{}
	}
}

func (l *loop) down(at time.Time, err error) {
	if l.downSince.IsZero() {
		l.downSince = at
		l.s.log.Warn("scheduler: cron: waiting for Redis; no tick is enqueued by this process until it answers", "err", explain(err))
	}
}

// due returns the time until the entry's next tick is to be tried, after skipping those
// that are too late.
func (l *loop) due(e *ticking, now time.Time) time.Duration {
	server := e.queue.time.Add(now.Sub(e.queue.readAt))
	if e.next.IsZero() {
		e.turn(e.schedule.Next(server))
	} else if server.Sub(e.next) > Grace {
		l.skip(e, server)
	}
	return max(e.next.Sub(server), e.retryAt.Sub(now))
}

// turn turns to another tick.
func (e *ticking) turn(next time.Time) {
	e.next, e.over = next, next.IsZero()
	e.call, e.retries, e.retryAt = nil, 0, time.Time{}
}

// skip turns to the first tick that is not too late.
func (l *loop) skip(e *ticking, server time.Time) {
	first, count := e.next, 0
	next := e.next
	for oldest := server.Add(-Grace); !next.IsZero() && next.Before(oldest); count++ {
		if count == maxCounted {
			next = e.schedule.Next(oldest.Add(-1))
			break
		}
		next = e.schedule.Next(next)
	}
	l.s.log.Warn("scheduler: cron: ticks skipped: they could not be tried in time",
		"entry", e.name, "queue", e.job.Queue, "first", first, "count", count, "more", count == maxCounted)
	e.missed += count
	l.giveUp(e)
	e.turn(next)
}

// fire tries the entry's tick. It returns false if there is no job to put in.
func (l *loop) fire(ctx context.Context, e *ticking) bool {
	if e.call == nil {
		e.call = l.prepare(ctx, e)
		if err := e.call.err; err != nil {
			l.s.log.Error("scheduler: cron: tick skipped", "entry", e.name, "tick", e.next, "err", err)
			e.missed++
			l.giveUp(e)
			e.turn(e.schedule.Next(e.next))
			return false
		}
		e.lane.Next()
	}
	e.busy = true
	e.queue.calls++
	q, lane, tick, item := e.queue, e.lane, e.next, e.call.item
	l.call(ctx, func(ctx context.Context) func() {
		watch := l.s.watch()
		outcome, t, err := q.server.EnqueueTick(ctx, lane, e.name, tick, item)
		at := l.s.now()
		return func() {
			e.busy = false
			q.calls--
			if err == nil {
				l.heard(q, t, at)
			}
			l.measure(e, watch, outcome, t, err)
			l.fired(e, outcome, t, at, err)
		}
	})
	return true
}

func (l *loop) prepare(ctx context.Context, e *ticking) *tickCall {
	job := e.job
	job.ID = store.NewID()
	ctx = baggage.ContextWithoutBaggage(ctx) // it is Run's own
	ctx, spans := l.s.trace.startTick(ctx, e.name, e.next, e.missed, &job)
	job.Headers = l.s.trace.inject(ctx, job.Headers, e.mode)
	item, err := store.NewItem(&job, store.When{At: e.next})
	return &tickCall{item: item, ctx: ctx, spans: spans, err: err}
}

// fired takes the outcome of a try.
func (l *loop) fired(e *ticking, outcome store.TickOutcome, t, at time.Time, err error) {
	log := l.s.log.With(slog.String("entry", e.name), slog.Time("tick", e.next))
	switch {
	case err != nil:
		if e.retries == 0 {
			log.Warn("scheduler: cron: tick failed; it is tried again while it is not too late", "err", explain(err))
		}
		e.call.fail(err)
		if errors.Is(err, store.ErrStale) { // somebody wrote to the lane's key
			e.lane = e.queue.server.NewLane()
			e.lane.Next()
		}
		e.retryAt = at.Add(backoff(e.retries))
		e.retries++
		e.queue.known = false // how late it is by then is for the server to say
	case outcome == store.TickEarly: // the same again when the server's clock is there
	case outcome == store.TickFired:
		e.call.spans.end(t.Sub(e.next))
		log.With(e.call.spans.logAttrs()...).Debug("scheduler: cron: tick enqueued", "late", t.Sub(e.next))
		e.missed = 0
		e.turn(e.schedule.Next(e.next))
	case outcome == store.TickTaken:
		e.missed = 0 // for who enqueued it to tell
		e.turn(e.schedule.Next(e.next))
	}
}

// fail notes that a try failed. As with an Enqueue, only a refusal says that it was not run.
func (c *tickCall) fail(err error) {
	c.err = explain(err)
	c.doubt = c.doubt || errors.Is(err, store.ErrStale) || judge(err) != refused
}

// giveUp tells of the tick at hand if tries of it failed and there are to be no more. If one may have been run,
// the job is a child of the span that is ended here.
func (l *loop) giveUp(e *ticking) {
	c := e.call
	if c == nil || c.err == nil {
		return
	}
	err := c.err
	if c.doubt {
		err = uncertain(err)
	}
	l.s.metrics.Sent(c.ctx, e.job.Queue, e.job.Kind, 1, err, errorType(err))
	c.spans.fail(err)
}

// measure counts the ticks that the outcome of a try tells of. Only what tells of a tick that was won
// does so in its span, which an exemplar may name: the others' may never be exported.
func (l *loop) measure(e *ticking, watch stopwatch, outcome store.TickOutcome, t time.Time, err error) {
	if l.s.metrics.Silent() {
		return
	}
	ctx, queue := context.Background(), e.job.Queue
	switch {
	case err != nil:
		watch.took(ctx, queue, err)
	case outcome == store.TickFired:
		ctx = e.call.ctx
		watch.took(ctx, queue, nil)
		watch.sent(ctx, queue, e.job.Kind, 1, nil)
		l.s.metrics.Tick(ctx, queue, telemetry.OutcomeFired, 1)
		l.s.metrics.Tick(ctx, queue, telemetry.OutcomeMissed, e.missed)
		l.s.metrics.Lag(ctx, queue, t.Sub(e.next))
	case outcome == store.TickTaken:
		l.s.metrics.Tick(ctx, queue, telemetry.OutcomeSkipped, 1)
	}
}
