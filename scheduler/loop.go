package scheduler

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

const (
	tickTimeout   = 2 * time.Second  // of a call for ticks or for the time
	callsAtOnce   = 4                // calls for ticks in flight, per queue
	ticksPerCall  = 250              // the maximum
	bytesPerCall  = 1 << 20          // the maximum size of the jobs in a call; a single larger job is still sent
	plansPerCall  = 500              // entries in one call that registers plans
	clockLifetime = 10 * time.Second // after this time the server's clock is read again
	jumpLifetime  = time.Second      // the same while the server's clock shows another time
	longestSleep  = 2 * time.Second  // since a timer may stand still while the machine is suspended
)

// A loop runs the entries of one queue. One goroutine owns all of its state. Other goroutines make the calls to
// Redis. Each sends back a function, which the owner runs to handle the outcome.
type loop struct {
	s      *Scheduler
	queue  string
	server tickServer
	outage *outage

	mu    sync.Mutex
	given []*entry      // not yet taken over
	stale bool          // entries were removed
	added chan struct{} // takes one value: there are new entries

	done   chan func() // takes a function for the outcome of each call
	flying int         // goroutines that make calls

	clock    reckoning
	reading  bool      // a call for the time is in flight
	heard    time.Time // when the server's time last came, by our clock
	doubtful bool      // a call failed: the server's time must be read before the next calls
	retries  int       // failed readings in a row
	retryAt  time.Time // earliest next reading, by our clock

	fresh    []*ticking // entries whose last tick is not known yet
	all      []*ticking // entries that were fresh before
	due      []*ticking // those of them whose plans are still to be registered in this round
	round    time.Time  // when the next round begins, by our clock
	asking   bool       // a call that registers plans is in flight
	asked    int        // failed calls of that kind in a row
	askAt    time.Time  // earliest next such call, by our clock
	agenda   agenda
	notices  notices
	clearing clearing
	era      int         // changes when the reckoning is set back
	turns    int64       // ticks that were enqueued by any process
	calls    int         // calls for ticks that are in flight or to be repeated
	again    []*tickCall // to be repeated
	lanes    []*store.Lane
	missed   missedReport
	reset    time.Time // when the log last said that a new reckoning was replaced

	misfit layoutMisfit
	waits  time.Time // since when fresh has entries; zero: it has none
	fails  time.Time // since when calls for ticks fail; zero: the last one had an outcome, or failed long ago and is not made again
	failed time.Time // when the last one failed
	pulse  pulse
}

// ticking is an entry with the state of its next tick.
type ticking struct {
	*entry
	next       time.Time // the next tick, by the server's clock
	notBefore  time.Time // earliest next try, by the server's clock
	tick       *tick     // the job of that tick; nil before the first try
	served     int64     // the value of loop.turns after any process enqueued the entry's last tick
	refusals   int       // tries that Redis ran without a decision
	missed     int       // ticks skipped since any process enqueued one
	paused     bool      // the last tick of which this process knows passed without a job
	overlapped bool      // so it did, since a job of the entry was live
	era        int       // the loop's era when next was chosen
	owed       time.Time // ticks up to this time are made up for, however late they are
	born       time.Time // when the plan was new, as Redis said at its first registration
	dormant    bool      // another plan of the entry is in force; its ticks are not in the agenda
}

func newLoop(s *Scheduler, queue string, server tickServer, o *outage) *loop {
	l := &loop{
		s: s, queue: queue, server: server, outage: o,
		added: make(chan struct{}, 1), done: make(chan func()),
	}
	l.missed.loop = l
	return l
}

// give hands entries to the loop. None means that some were removed.
func (l *loop) give(entries []*entry) {
	l.mu.Lock()
	l.given = append(l.given, entries...)
	l.stale = l.stale || len(entries) == 0
	l.mu.Unlock()
	select {
	case l.added <- struct{}{}:
	default:
	}
}

func (l *loop) run(ctx context.Context) {
	calls := context.WithoutCancel(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		l.adopt()
		wait := l.step(calls)
		l.beat()
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-l.added:
		case outcome := <-l.done:
			outcome()
		case <-timer.C:
		}
	}
	for l.flying > 0 {
		(<-l.done)()
	}
	for _, c := range l.again {
		l.dissolve(c)
	}
	for _, e := range l.agenda.take() {
		l.giveUp(e, nil)
	}
}

// adopt takes over new entries. Each process begins with a random order, so that not all processes try the same
// ticks first.
func (l *loop) adopt() {
	l.mu.Lock()
	given, stale := l.given, l.stale
	l.given, l.stale = nil, false
	l.mu.Unlock()
	if stale {
		l.purge()
	}
	for _, e := range given {
		l.fresh = append(l.fresh, &ticking{entry: e, served: -rand.Int64()})
	}
}

// step starts all calls that are due. It returns the time until the next one. Work that depends on a call in flight
// is not counted: the outcome of the call leads to the next step.
func (l *loop) step(ctx context.Context) time.Duration {
	now, wait := l.s.now(), longestSleep
	if !l.reading {
		if due := l.readDue(now); due > 0 {
			wait = min(wait, due)
		} else {
			l.read(ctx)
		}
	}
	if l.doubtful || !l.clock.known {
		return wait
	}
	l.missed.begin()
	wait = min(wait, l.ask(ctx, now), l.repeat(ctx, now), l.fire(ctx, now), l.announce(ctx, now), l.clear(ctx, now))
	l.missed.flush()
	return wait
}

// readDue returns the time until the server's clock must be read.
func (l *loop) readDue(now time.Time) time.Duration {
	switch {
	case l.doubtful || !l.clock.known:
		return l.retryAt.Sub(now)
	case l.clock.jumped:
		return jumpLifetime - now.Sub(l.heard)
	}
	return clockLifetime - now.Sub(l.heard)
}

// read asks for the server's time.
func (l *loop) read(ctx context.Context) {
	l.reading = true
	l.call(ctx, func(ctx context.Context) func() {
		sent := l.s.now()
		t, err := l.server.Now(ctx)
		got := l.s.now()
		return func() {
			l.reading = false
			if err != nil {
				l.doubtful = true
				l.retryAt = got.Add(backoff(l.retries))
				l.retries++
				l.outage.begin(l.queue, got, err)
				return
			}
			l.hear(reading{t, sent, got})
		}
	})
}

// ask registers the plans of new entries, which brings their last ticks. From time to time it registers those of all
// entries again. It returns the time until it can do so.
func (l *loop) ask(ctx context.Context, now time.Time) time.Duration {
	if l.asking {
		return longestSleep
	}
	if due := l.askAt.Sub(now); due > 0 {
		return due
	}
	if l.round.IsZero() {
		l.round = now.Add(store.NoticeEvery)
	}
	if l.round.Sub(now) <= 0 {
		l.due, l.round = l.all, now.Add(store.NoticeEvery)
	}
	list := &l.fresh
	if len(l.fresh) == 0 {
		list = &l.due
	}
	if len(*list) == 0 {
		return l.round.Sub(now)
	}
	l.asking = true
	n := min(len(*list), plansPerCall)
	some := (*list)[:n:n]
	fresh := list == &l.fresh
	*list = (*list)[n:]
	plans := make([]store.Registration, n)
	for i, e := range some {
		plans[i] = e.registration(&l.clock)
	}
	l.call(ctx, func(ctx context.Context) func() {
		planned, err := l.server.RegisterPlans(ctx, plans)
		got := l.s.now()
		return func() {
			l.asking = false
			if err != nil {
				l.unplanned(some, fresh, got, err)
				return
			}
			l.asked = 0
			l.missed.begin()
			for i, e := range some {
				e.newest.Store(max(e.newest.Load(), planned[i].Born.UnixMicro()))
				if e.gone.Load() {
					continue
				}
				if fresh {
					l.all = append(l.all, e)
					l.notices.add(e.notice)
				}
				if fresh || planned[i].Born.After(e.born) { // another process may have set the plan again
					e.born = planned[i].Born
				}
				if fresh || e.dormant {
					l.begin(e, planned[i], l.clock.now(got))
				}
			}
			l.missed.flush()
		}
	})
	return longestSleep
}

// unplanned handles a call that registers plans and failed.
func (l *loop) unplanned(some []*ticking, fresh bool, at time.Time, err error) {
	if l.asked == 0 && fresh {
		l.s.log.Warn("scheduler: cron: the last ticks could not be read; no tick of these entries is enqueued until they can",
			"queue", l.queue, "entries", len(some), "error", explain(err))
	}
	l.askAt = at.Add(backoff(l.asked))
	l.asked++
	if fresh {
		l.fresh = append(l.fresh, withoutGone(some)...)
		l.doubt(at)
	} else {
		l.due = slices.Concat(withoutGone(some), l.due)
	}
}

// call makes a call in its own goroutine. f returns a function that handles the outcome in the loop.
func (l *loop) call(ctx context.Context, f func(ctx context.Context) func()) {
	l.flying++
	go func() {
		ctx, cancel := context.WithTimeout(ctx, tickTimeout)
		defer cancel()
		outcome := f(ctx)
		l.done <- func() {
			l.flying--
			outcome()
		}
	}()
}

// doubt makes the loop read the server's time before it goes on. It is called after a failed call, which may have
// taken long.
func (l *loop) doubt(at time.Time) { l.doubtful, l.retryAt = true, at }

// hear takes the server's time from a reply.
func (l *loop) hear(r reading) {
	l.heard, l.doubtful, l.retries = r.got, false, 0
	l.outage.end(l.queue, r.got)
	event, by := l.clock.take(r)
	l.tell(event, by, r.got)
	if by < 0 && (event == clockFollowed || event == clockReplaced) {
		l.rewind(r.got)
	}
}

// tell logs what happened to the server's clock.
func (l *loop) tell(event clockEvent, by time.Duration, at time.Time) {
	if event == clockSteady {
		return
	}
	log := l.s.log.With("queue", l.queue, "by", by.Round(time.Millisecond).String())
	switch event {
	case clockJumped:
		log.Warn("scheduler: cron: the clock of Redis jumped; ticks go by the old time until the new one has lasted", "for", clockPatience.String())
	case clockBack:
		log.Warn("scheduler: cron: the clock of Redis is back; ticks went by the old time all along", "after", at.Sub(l.clock.seen).Round(time.Millisecond).String())
	case clockFollowed:
		log.Warn("scheduler: cron: ticks go by the new time of Redis from now on; after a jump ahead those in between are missed, after one back some come again")
	case clockReplaced:
		if l.reset.IsZero() || at.Sub(l.reset) >= time.Minute {
			l.reset = at
			log.Warn("scheduler: cron: the clock of Redis jumped while it was new to this process; ticks go by the new time")
		}
	}
}

// begin chooses the first tick of an entry whose plan was registered.
func (l *loop) begin(e *ticking, p store.Planned, server time.Time) {
	if !p.InForce {
		l.rest(e)
		return
	}
	if e.dormant {
		e.dormant = false
		l.notices.fresh = append(l.notices.fresh, e.notice)
		l.s.log.Info("scheduler: cron: no scheduler has the newer version of the entry any more; this one enqueues its ticks again",
			"entry", e.name, "queue", l.queue)
	}
	l.replaced(e)                                                        // a scheduler may have ended after it enqueued the last tick
	if p.Since.After(p.Last) && p.Since.Sub(server) <= store.TickAhead { // else a wrong clock wrote it
		p.Last = p.Since
	}
	switch {
	case p.Last.IsZero():
		l.turn(e, e.schedule.Next(server))
	case p.Last.Sub(server) > store.TickAhead:
		if l.missed.line() {
			l.s.log.Warn("scheduler: cron: the last tick of this entry in Redis is in the future; it is ignored when the clock has been watched for a while",
				"entry", e.name, "queue", l.queue, "last", p.Last, "for", clockPatience.String())
		}
		l.turn(e, e.schedule.Next(server))
	default:
		first := e.schedule.Next(p.Last)
		if first.IsZero() || server.Sub(first) <= Grace {
			l.turn(e, first)
			break
		}
		l.skip(e, first, server, missedIdle)
	}
	l.place(e)
}

// rest takes an entry out of the agenda because another plan of it is in force.
func (l *loop) rest(e *ticking) {
	if !e.dormant {
		e.dormant = true
		l.s.log.Info("scheduler: cron: a newer version of the entry is in force; this process enqueues none of its ticks meanwhile",
			"entry", e.name, "queue", l.queue)
	}
	e.missed = 0
	l.turn(e, time.Time{})
}

// turn sets the entry's next tick. The zero time means that there is none.
func (l *loop) turn(e *ticking, next time.Time) {
	e.next, e.notBefore, e.tick, e.refusals, e.era = next, time.Time{}, nil, 0, l.era
	if !e.owes() {
		e.owed = time.Time{}
	}
}

// advance moves on to the tick after the current one.
func (l *loop) advance(e *ticking, server time.Time) {
	after := e.next
	if e.era != l.era { // next is the time of a clock that was set back
		after = server
	}
	l.turn(e, e.schedule.Next(after))
	if e.owes() {
		e.notBefore = server // behind the ticks that are due
	}
}

// place puts an entry into the agenda, unless it has no next tick, or was removed.
func (l *loop) place(e *ticking) {
	if !e.next.IsZero() && !e.gone.Load() {
		l.agenda.push(e)
	}
}

// rewind chooses the next ticks of all entries again, after the reckoning was set back.
func (l *loop) rewind(now time.Time) {
	l.era++
	server := l.clock.now(now)
	for _, e := range l.agenda.take() {
		l.giveUp(e, nil)
		l.advance(e, server)
		l.place(e)
	}
}

// repeat makes failed calls again when their time has come. It returns the time until the next one.
func (l *loop) repeat(ctx context.Context, now time.Time) time.Duration {
	wait := longestSleep
	rest := l.again[:0]
	for _, c := range l.again {
		if due := c.retryAt.Sub(now); due > 0 {
			wait = min(wait, due)
			rest = append(rest, c)
		} else {
			l.send(ctx, c, now)
		}
	}
	clear(l.again[len(rest):])
	l.again = rest
	return wait
}

// fire makes calls for the ticks that are due, as many as may be in flight. It returns the time until the next tick.
func (l *loop) fire(ctx context.Context, now time.Time) time.Duration {
	server := l.clock.now(now)
	for l.calls < callsAtOnce {
		c := l.gather(ctx, server)
		if c == nil {
			break
		}
		l.calls++
		l.send(ctx, c, now)
	}
	e := l.agenda.first()
	if e == nil || l.calls == callsAtOnce { // an outcome comes first
		return longestSleep
	}
	return max(e.at().Sub(server), 0)
}
