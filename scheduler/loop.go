package scheduler

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

const (
	tickTimeout   = 2 * time.Second  // of a call for ticks, or for the time
	callsAtOnce   = 4                // calls for ticks in flight, per queue
	ticksPerCall  = 250              // at most
	bytesPerCall  = 1 << 20          // of jobs in a call, unless it is a single job
	namesPerCall  = 1000             // entries whose last tick is asked for
	clockLifetime = 10 * time.Second // after which the server's clock is read again
	jumpLifetime  = time.Second      // the same while its clock is in another place
	longestSleep  = 2 * time.Second  // a timer may stand still while the machine is suspended
)

// A loop runs the entries of one queue. One goroutine owns all of its state; calls to Redis are made by
// others, which hand back what is to be done with the outcome.
type loop struct {
	s      *Scheduler
	queue  string
	server tickServer
	outage *outage

	mu    sync.Mutex
	given []*entry      // not taken over yet
	added chan struct{} // takes one value: some were given

	done   chan func() // takes the outcome of each call
	flying int         // goroutines that make calls

	clock    reckoning
	reading  bool      // a call asks for the time
	heard    time.Time // when the server told its time last, by our clock
	doubtful bool      // a call failed: the server must tell its time before the next ones
	retries  int       // failed readings in a row
	retryAt  time.Time // earliest next reading, by our clock

	fresh  []*ticking // entries whose last tick is not known yet
	asking bool       // a call asks for some
	asked  int        // failed calls of that kind in a row
	askAt  time.Time  // earliest next one, by our clock
	agenda agenda
	era    int         // changes when the reckoning goes back
	turns  int64       // ticks that were enqueued, by whomever
	calls  int         // calls for ticks, in flight or to be made again
	again  []*tickCall // to be made again
	lanes  []*store.Lane
	missed missedReport
	reset  time.Time // when the log said last that a new reckoning was replaced

	outdated bool // the log has said that this scheduler is too old for the queue
}

// ticking is an entry under way.
type ticking struct {
	*entry
	next      time.Time // the tick at hand, by the server's clock
	notBefore time.Time // earliest next try, by the server's clock
	tick      *tick     // the job of that tick, once it was to be tried
	served    int64     // when its last tick was enqueued, by whomever: the number of that turn
	refusals  int       // tries that Redis ran, and that decided nothing
	missed    int       // ticks skipped since one was enqueued, by whomever
	era       int       // of the loop, when next was chosen
}

func newLoop(s *Scheduler, queue string, server tickServer, o *outage) *loop {
	l := &loop{
		s: s, queue: queue, server: server, outage: o,
		added: make(chan struct{}, 1), done: make(chan func()),
	}
	l.missed.loop = l
	return l
}

// give hands entries to the loop.
func (l *loop) give(entries []*entry) {
	l.mu.Lock()
	l.given = append(l.given, entries...)
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
		timer.Reset(l.step(calls))
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

// adopt takes over the entries that were given since. Each process begins with an order of its own, so
// that they don't all try the same ticks first.
func (l *loop) adopt() {
	l.mu.Lock()
	given := l.given
	l.given = nil
	l.mu.Unlock()
	for _, e := range given {
		l.fresh = append(l.fresh, &ticking{entry: e, served: -rand.Int64()})
	}
}

// step starts what is due and returns the time until there is more to do. What waits for a
// call's outcome is looked at again when that comes.
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
	wait = min(wait, l.ask(ctx, now), l.repeat(ctx, now), l.fire(ctx, now))
	l.missed.flush()
	return wait
}

// readDue returns how long the server's clock needs no reading.
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

// ask asks for the last ticks of entries that are new here. It returns the time until it can do so.
func (l *loop) ask(ctx context.Context, now time.Time) time.Duration {
	if l.asking || len(l.fresh) == 0 {
		return longestSleep
	}
	if due := l.askAt.Sub(now); due > 0 {
		return due
	}
	l.asking = true
	n := min(len(l.fresh), namesPerCall)
	some := l.fresh[:n:n]
	l.fresh = l.fresh[n:]
	names := make([]string, n)
	for i, e := range some {
		names[i] = e.name
	}
	l.call(ctx, func(ctx context.Context) func() {
		last, err := l.server.LastTicks(ctx, names)
		got := l.s.now()
		return func() {
			l.asking = false
			if err != nil {
				if l.asked == 0 {
					l.s.log.Warn("scheduler: cron: the last ticks could not be read; no tick of these entries is enqueued until they can",
						"queue", l.queue, "entries", n, "error", explain(err))
				}
				l.askAt = got.Add(backoff(l.asked))
				l.asked++
				l.fresh = append(l.fresh, some...)
				l.doubt(got)
				return
			}
			l.asked = 0
			l.missed.begin()
			for i, e := range some {
				l.begin(e, last[i], l.clock.now(got))
			}
			l.missed.flush()
		}
	})
	return longestSleep
}

// call makes a call in a goroutine of its own. f returns what the loop is to do with its outcome.
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

// doubt makes the loop ask for the server's time before it goes on: a call failed, and it is for
// the server to say how late it is by then.
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

// tell logs what became of the server's clock.
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

// begin chooses the first tick of an entry. last is the last tick that was enqueued, or the zero time.
func (l *loop) begin(e *ticking, last, server time.Time) {
	switch {
	case last.IsZero():
		l.turn(e, e.schedule.Next(server))
	case last.Sub(server) > store.TickAhead:
		if l.missed.line() {
			l.s.log.Warn("scheduler: cron: the last tick of this entry in Redis is in the future; it is ignored when the clock has been watched for a while",
				"entry", e.name, "queue", l.queue, "last", last, "for", clockPatience.String())
		}
		l.turn(e, e.schedule.Next(server))
	default:
		first := e.schedule.Next(last)
		if first.IsZero() || server.Sub(first) <= Grace {
			l.turn(e, first)
			break
		}
		l.turn(e, l.missed.count(e, first, server, missedIdle))
	}
	l.place(e)
}

// turn turns to another tick. The zero time means that none will come.
func (l *loop) turn(e *ticking, next time.Time) {
	e.next, e.notBefore, e.tick, e.refusals, e.era = next, time.Time{}, nil, 0, l.era
}

// advance turns to the tick after the one at hand.
func (l *loop) advance(e *ticking, server time.Time) {
	after := e.next
	if e.era != l.era { // its time is of a clock that went back
		after = server
	}
	l.turn(e, e.schedule.Next(after))
}

// place puts an entry into the agenda, unless no tick will come.
func (l *loop) place(e *ticking) {
	if !e.next.IsZero() {
		l.agenda.push(e)
	}
}

// rewind chooses the ticks of all entries anew, after the reckoning went back.
func (l *loop) rewind(now time.Time) {
	l.era++
	server := l.clock.now(now)
	for _, e := range l.agenda.take() {
		l.giveUp(e, nil)
		l.advance(e, server)
		l.place(e)
	}
}

// repeat makes the calls again that failed, when it is time. It returns the time until the next one.
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
	if e == nil || l.calls == callsAtOnce { // then an outcome comes first
		return longestSleep
	}
	return max(e.at().Sub(server), 0)
}
