package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/baggage"

	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// errLate means that Redis refused a tick because it was late.
var errLate = fmt.Errorf("the tick reached Redis more than %v after its time", Grace)

// A tick is the job of one tick, which is the same in each try, and the result of the tries.
type tick struct {
	item  store.Item
	ctx   context.Context // with the spans
	spans tickSpans
	err   error // of the last try that failed
	doubt bool  // a try that failed may have been run, or may still be run
}

// A tickCall enqueues ticks. Every try is the same call, since an earlier try may have been run and its reply lost.
type tickCall struct {
	lane    *store.Lane
	entries []*ticking
	items   []store.Item
	skew    time.Duration // the clock skew that the last try assumed
	last    bool          // it was too late when it was last sent, so it is not repeated
	retries int
	retryAt time.Time // by our clock
}

// gather returns a call with the ticks that are due, as many as go into one call. It returns nil if there are none.
func (l *loop) gather(ctx context.Context, server time.Time) *tickCall {
	c := &tickCall{}
	size := 0
	for len(c.entries) < ticksPerCall {
		e := l.agenda.first()
		if e == nil || e.at().After(server) {
			break
		}
		if e.gone.Load() { // the loop is told soon
			l.agenda.pop()
			l.giveUp(e, nil)
			continue
		}
		if server.Sub(e.next) > Grace && !e.owes() {
			l.agenda.pop()
			l.giveUp(e, nil)
			l.skip(e, e.next, server, missedLate)
			l.place(e)
			continue
		}
		if e.tick == nil && !l.prepare(ctx, e) {
			l.agenda.pop()
			l.advance(e, server)
			l.place(e)
			continue
		}
		size += e.tick.item.Size()
		if len(c.entries) > 0 && size > bytesPerCall {
			break
		}
		c.entries = append(c.entries, l.agenda.pop())
		c.items = append(c.items, e.tick.item)
	}
	if len(c.entries) == 0 {
		return nil
	}
	c.lane = l.lane()
	return c
}

// lane returns a lane without a call in flight, with a new call number.
func (l *loop) lane() *store.Lane {
	var lane *store.Lane
	if n := len(l.lanes); n > 0 {
		lane, l.lanes = l.lanes[n-1], l.lanes[:n-1]
	} else {
		lane = l.server.NewLane()
	}
	lane.Next()
	return lane
}

// prepare makes the job of the entry's tick. It reports whether it succeeded.
func (l *loop) prepare(ctx context.Context, e *ticking) bool {
	job := e.job
	job.ID = store.NewID()
	job.Effect = store.TickEffect(job.Namespace, job.Queue, e.name, e.next)
	ctx = baggage.ContextWithoutBaggage(ctx) // the baggage belongs to Run
	var item store.Item
	args, payload, err := e.argsOf(e.next, l.s.codec)
	job.Payload = payload
	ctx, spans := l.s.trace.startTick(ctx, e.name, e.next, e.missed, &job)
	job.Headers = l.s.trace.inject(ctx, job.Headers, e.mode)
	when := store.When{At: e.next, Entry: e.name, Plan: e.plan.Digest, Overlap: e.overlap}
	if e.owes() {
		when.Late = e.lateness
	}
	if err == nil {
		item, err = l.s.pack(&job, args, when)
	}
	e.tick = &tick{item: item, ctx: ctx, spans: spans, err: err}
	if err != nil {
		l.s.log.Error("scheduler: cron: tick skipped", "entry", e.name, "queue", l.queue, "tick", e.next, "error", err)
		e.missed++
		l.giveUp(e, nil)
	}
	return err == nil
}

// send makes the call for the first time or again.
func (l *loop) send(ctx context.Context, c *tickCall, now time.Time) {
	c.skew = l.clock.skew(now)
	c.last = c.tooLate(l.clock.now(now))
	r := store.Reckoning{Known: l.clock.settled(now), Skew: c.skew}
	l.call(ctx, func(ctx context.Context) func() {
		watch := l.s.watch()
		sent := l.s.now()
		fates, err := l.server.EnqueueTicks(ctx, c.lane, c.items, r)
		got := l.s.now()
		return func() {
			if err != nil {
				watch.took(context.Background(), l.queue, err)
				l.lost(c, got, err)
				return
			}
			l.calls--
			l.fails = time.Time{}
			l.lanes = append(l.lanes, c.lane)
			l.hear(reading{fates.Now, sent, got})
			l.fits()
			l.settle(c, fates, got, watch)
		}
	})
}

// tooLate reports whether a try at this time is the last one. Ticks that are made up for have time. But if the call has
// only those, they go into another call after some tries, with ticks that have become due.
func (c *tickCall) tooLate(server time.Time) bool {
	for _, e := range c.entries {
		if !e.owes() {
			return server.Sub(e.next) > Grace
		}
	}
	return c.retries >= triesOfOwed
}

// lost handles a try that failed.
func (l *loop) lost(c *tickCall, at time.Time, err error) {
	if l.fails.IsZero() {
		l.fails = time.Now()
	}
	l.failed = time.Now()
	if layout := misfit(err); layout != nil {
		l.fitsNot(layout)
		l.refused(c, at, err)
		return
	}
	if c.retries == 0 {
		e := c.entries[0]
		l.s.log.Warn("scheduler: cron: call for ticks failed; it is made again while they are not too late",
			"queue", l.queue, "ticks", len(c.entries), "entry", e.name, "tick", e.next, "error", explain(err))
	}
	for _, e := range c.entries {
		e.tick.fail(err)
	}
	if errors.Is(err, store.ErrStale) { // another client wrote to the lane's key
		c.lane = l.server.NewLane()
		c.lane.Next()
	}
	l.doubt(at)
	if c.last {
		l.dissolve(c)
		return
	}
	c.retryAt = at.Add(backoff(c.retries))
	c.retries++
	l.again = append(l.again, c)
}

// refused gives up the ticks of a call. The queue's layout isn't one of this release, and another try would end alike. Newer schedulers may enqueue these
// ticks. So they aren't logged as missed.
func (l *loop) refused(c *tickCall, at time.Time, err error) {
	l.calls--
	l.lanes = append(l.lanes, c.lane)
	for _, e := range c.entries {
		e.tick.fail(err)
		l.giveUp(e, nil)
		e.missed++ // set to 0 if another process enqueues a later tick before this one does
		l.advance(e, l.clock.now(at))
		l.place(e)
	}
}

// dissolve gives a call up. Its entries go back to the agenda. Ticks that are too late are skipped there.
func (l *loop) dissolve(c *tickCall) {
	l.calls--
	l.lanes = append(l.lanes, c.lane) // the lane's next call keeps Redis from running this one later
	for _, e := range c.entries {
		if e.era != l.era { // next is the time of a clock that was set back
			l.giveUp(e, nil)
			l.advance(e, l.clock.now(l.s.now()))
		}
		l.place(e)
	}
}

// settle handles the results of a call's ticks.
func (l *loop) settle(c *tickCall, fates store.Fates, got time.Time, watch stopwatch) {
	server := l.clock.now(got)
	skew := l.clock.skew(got)
	// If the estimated time has changed since the call was sent, Redis may have decided by a wrong time. Then ask
	// again.
	apart := (skew - c.skew).Abs() > clockStep
	ctx, fired := context.Background(), false
	for i, e := range c.entries {
		switch fate := fates.Of(i); {
		case fate.In():
			if !fired { // the metric names the span of a tick that was enqueued: only that is sure to be exported
				ctx, fired = e.tick.ctx, true
			}
			l.fired(e, fates.Now.Add(skew), fate == store.PutInAnew)
			l.served(e)
			l.replaced(e)
			l.advance(e, server)
		case fate == store.Early || apart:
			if e.era != l.era { // next is the time of a clock that was set back
				l.giveUp(e, nil)
				l.advance(e, server)
				break
			}
			e.notBefore = server.Add(backoff(e.refusals))
			e.refusals++
		case fate == store.Passed:
			l.s.metrics.Tick(context.Background(), l.queue, telemetry.OutcomePaused, 1)
			if !e.paused {
				e.paused = true
				l.s.log.Info("scheduler: cron: the entry is paused; its ticks pass without jobs until it is resumed",
					"entry", e.name, "queue", l.queue, "tick", e.next)
			}
			e.missed = 0
			l.served(e)
			l.advance(e, server)
		case fate == store.Overlapped:
			l.s.metrics.Tick(context.Background(), l.queue, telemetry.OutcomeOverlapped, 1)
			if !e.overlapped {
				e.overlapped = true
				l.s.log.Info("scheduler: cron: a job of the entry is live; its ticks pass without jobs until it has ended",
					"entry", e.name, "queue", l.queue, "tick", e.next)
			}
			e.missed = 0
			l.served(e)
			l.advance(e, server)
		case fate == store.Superseded:
			l.s.metrics.Tick(context.Background(), l.queue, telemetry.OutcomeSkipped, 1)
			l.rest(e)
		case fate == store.Late:
			l.giveUp(e, errLate)
			if e.owes() || e.era != l.era {
				l.missed.add(e, e.next, 1, false, missedLate)
				l.advance(e, server)
				break
			}
			at := server
			if late := e.next.Add(Grace + 1); at.Before(late) { // by our estimate it was in time
				at = late
			}
			l.skip(e, e.next, at, missedLate)
		default: // another process enqueued it, and counts the ticks missed before
			l.s.metrics.Tick(context.Background(), l.queue, telemetry.OutcomeSkipped, 1)
			e.missed = 0
			l.served(e)
			l.replaced(e)
			l.advance(e, server)
		}
		l.place(e)
	}
	watch.took(ctx, l.queue, nil)
}

// served puts the entry behind those whose last tick was enqueued earlier.
func (l *loop) served(e *ticking) {
	l.turns++
	e.served = l.turns
}

// fired records in traces, metrics and the log that this process enqueued a tick. anew means that the last tick in
// Redis was in the future.
func (l *loop) fired(e *ticking, server time.Time, anew bool) {
	late := server.Sub(e.next)
	if e.paused {
		e.paused = false
		l.s.log.Info("scheduler: cron: the entry is paused no more", "entry", e.name, "queue", l.queue, "tick", e.next)
	}
	e.overlapped = false
	e.tick.spans.end(late)
	ctx := e.tick.ctx
	if m := l.s.metrics; !m.Silent() {
		m.Sent(ctx, l.queue, e.job.Kind, 1, nil, "")
		m.Tick(ctx, l.queue, telemetry.OutcomeFired, 1)
		m.Tick(ctx, l.queue, telemetry.OutcomeMissed, e.missed)
		if !e.owes() {
			m.Lag(ctx, l.queue, late)
		}
	}
	if e.owes() && l.missed.line() {
		l.s.log.Info("scheduler: cron: a missed tick was made up for", "entry", e.name, "queue", l.queue, "tick", e.next, "late", late.Round(time.Millisecond).String())
	}
	if l.s.log.Enabled(ctx, slog.LevelDebug) {
		l.s.log.With(e.tick.spans.logAttrs()...).Debug("scheduler: cron: tick enqueued",
			"entry", e.name, "queue", l.queue, "tick", e.next, "late", late.String())
	}
	if anew && l.missed.line() {
		l.s.log.Warn("scheduler: cron: the last tick of this entry in Redis was in the future; it was ignored, and replaced by this one",
			"entry", e.name, "queue", l.queue, "tick", e.next)
	}
	e.missed = 0
}

// fail records that a try failed. As with an Enqueue, only a refusal proves that it was not run.
func (t *tick) fail(err error) {
	t.err = explain(err)
	t.doubt = t.doubt || doubtful(err)
}

// giveUp records in traces and metrics that the current tick failed. It does nothing if no try failed and why is nil.
// If a try may have been run, its job is a child of the span that is ended here. why is the error of a tick whose tries
// did not fail.
func (l *loop) giveUp(e *ticking, why error) {
	t := e.tick
	if t == nil || t.err == nil && why == nil {
		return
	}
	err := t.err
	if err == nil {
		err = why
	}
	if t.doubt {
		err = uncertain(err)
	}
	l.s.metrics.Sent(t.ctx, l.queue, e.job.Kind, 1, err, errorType(err))
	t.spans.fail(err)
	e.tick = nil
}
