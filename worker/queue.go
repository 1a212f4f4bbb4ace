package worker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A queue works one queue. Its state is guarded by mu; goroutines of their own call Redis:
// the lanes claim and settle, the keeper renews the session, the reclaimer takes back the
// jobs of others' sessions. Each handler runs in a goroutine of its own, one a slot.
type queue struct {
	w     *Worker
	store *store.Queue // on the caller's client
	own   *store.Queue // on the worker's, whose connections no claim keeps busy
	log   *slog.Logger
	base  context.Context // Run's, without its end

	mu         mutex
	changed    *sync.Cond // there may be a call to make: a lane waits
	settled    *sync.Cond // a delivery came to its end: the drain waits
	slots      *slots
	configured int           // how many, by Config
	bound      *bound        // of the worker; nil: there is none
	granted    int           // room of the bound for the next call
	inLine     bool          // it is in the bound's line
	session    *session      // the one that claims; nil while there is none
	sessions   []*session    // all that have deliveries, or may get some
	stopping   bool          // claim nothing more
	draining   chan struct{} // closed when it stops; the handlers' sign
	drained    bool          // nothing is left to settle: the lanes end
	abandoned  int           // settlements that never reached Redis
	returned   time.Time     // when a handler last returned, since stopping
	leave      func()        // ends the calls under way

	// A hint that there may be work counts one up; a claim that came back with less than it
	// asked for sets emptied to what hints was when it began.
	hints, emptied uint64
	standing       store.Standing // what Redis last said of the queue
	stood          time.Time      // when it did, by its clock
	stoodAt        time.Time      // when its reply was taken, by our clock
	probe          bool           // make a call even if no slot is free
	marking        bool           // a timer looks for marks to send
	calls          int            // under way
	summoned       bool           // a lane was woken and hasn't looked yet
	timer          *time.Timer
	timerAt        time.Time // when the timer is set for; zero: it isn't

	vacant    chan struct{}      // the session is over: the keeper opens another
	expired   chan []string      // sessions to reclaim
	outage    time.Time          // when Redis was last known not to be there in time
	forgotten time.Time          // when Redis gave the latest of the answers that it has forgotten, by its clock; zero: none is known
	missed    time.Time          // when the latest loss was seen, by Redis's clock
	spare     []store.Settlement // empty: its room is for those that come
	away      atomic.Bool        // the last call was not served
	born      time.Time          // what heardAt and waits count from, in ns
	heardAt   atomic.Int64       // when a call was last answered
	waits     [lanes + 1]wait
	begun     bool                // it had a session; the keeper's
	swept     time.Time           // when terminal jobs were last swept out; the keeper's
	looked    bool                // whether anybody uses the queue was looked at; the keeper's
	kept      signalbox.Retention // what its settings said last; the keeper's
	listener  *listener
	asked     uint64               // calls that wanted jobs
	stoodBy   uint64               // what asked was when another worker was last woken
	onCall    bool                 // a timer looks whether that one made a call
	throttled map[string]time.Time // warnings by what they are about
}

func newQueue(w *Worker, s, own *store.Queue, concurrency int, b *bound) *queue {
	q := &queue{
		w: w, store: s, own: own, bound: b, configured: concurrency,
		log:       w.log.With("queue", s.Name()),
		hints:     1, // there may be work from the beginning
		draining:  make(chan struct{}),
		born:      time.Now(),
		vacant:    make(chan struct{}, 1),
		expired:   make(chan []string, 1),
		throttled: make(map[string]time.Time),
	}
	q.slots = newSlots(concurrency, q.deliver)
	q.changed, q.settled = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

// run works the queue until ctx ended and its handlers returned. Their contexts end with halted.
func (q *queue) run(ctx, halted context.Context) error {
	// Calls go on after ctx has ended, to report outcomes. Handlers run in the trace of their job and have its
	// baggage, not Run's own.
	base := trace.ContextWithSpanContext(baggage.ContextWithoutBaggage(context.WithoutCancel(ctx)), trace.SpanContext{})
	q.base = signalbox.WithDraining(base, q.draining)
	calls, stop := context.WithCancel(q.base)
	defer stop()
	q.mu.Lock()
	q.leave = stop
	q.mu.Unlock()

	var wg sync.WaitGroup
	laneIDs := make([]*store.Lane, lanes)
	var working sync.WaitGroup
	for i := range laneIDs {
		laneIDs[i] = q.store.NewLane()
		working.Go(func() { q.work(calls, laneIDs[i], &q.waits[i]) })
	}
	wg.Go(func() { q.keep(calls) })
	wg.Go(func() { q.reclaim(calls) })

	<-ctx.Done()
	err := q.drain(halted)
	working.Wait()
	q.slots.close()
	<-q.listener.done
	stop()
	wg.Wait()        // no session is opened from here on
	q.close(laneIDs) // passes on a wake-up that the listener has heard
	return err
}

// hint makes a lane look for work. With probe it looks even when no slot is free, to promote
// what is due and wake another worker for it.
func (q *queue) hint(probe bool) {
	q.mu.Lock()
	q.hints++
	q.probe = q.probe || probe
	if q.session != nil {
		q.session.barred = false // one that kept others out may have run long enough
	}
	q.summon()
	q.mu.Unlock()
}

// summon wakes a lane if there is a call to make. q.mu is held.
func (q *queue) summon() {
	if !q.summoned && q.callable() {
		q.summoned = true
		q.changed.Signal()
	}
}

// callable reports whether a lane should make a call now. What comes while a call is under way is
// collected for the next one; only when a quarter of the slots wait does a second call join it. So
// nothing waits when there is little to do, and batches are large when there is much. q.mu is
// held.
func (q *queue) callable() bool {
	if q.probe && q.session != nil {
		return true
	}
	n := 0
	for _, s := range q.sessions {
		n += len(s.completed) + len(s.others)
	}
	most := q.slots.size
	if q.bound != nil {
		most = min(most, q.bound.most)
	}
	if q.hungry() {
		n = max(n, q.claimable())
	}
	return n > 0 && (q.calls == 0 || n >= (most+3)/4)
}

// claimable returns how many jobs a claim could ask for. Where the bound has no room it is 1, so that a lane puts the queue into
// the bound's line, and then 0. q.mu is held.
func (q *queue) claimable() int {
	switch {
	case q.bound == nil:
		return q.slots.free()
	case q.granted > 0:
		return min(q.slots.free(), q.granted)
	case q.inLine:
		return 0
	}
	return max(1, min(q.slots.free(), q.bound.free()))
}

// reserve takes slots for the jobs of a claim, and room for them. q.mu is held.
func (q *queue) reserve() []*slot {
	n := min(q.slots.free(), store.MaxBatch)
	if q.bound != nil {
		taken := q.granted
		if taken == 0 {
			taken = q.bound.take(q, n, q.hungry())
			q.mu.later(q.bound.serve) // others may have come before it
		}
		q.granted = 0
		if n = min(n, taken); n < taken {
			q.putRoom(taken - n)
		}
	}
	return q.slots.take(n)
}

// putRoom gives room back to the bound, which serves those that wait for it when q.mu is unlocked. q.mu is held.
func (q *queue) putRoom(n int) {
	if q.bound != nil && n > 0 {
		q.bound.put(n)
		q.mu.later(q.bound.serve)
	}
}

// release frees slots. q.mu is held.
func (q *queue) release(slots ...*slot) {
	for _, sl := range slots {
		q.slots.put(sl)
	}
	q.putRoom(len(slots))
}

// hungry reports whether there may be work for a free slot. q.mu is held.
func (q *queue) hungry() bool {
	return q.hints > q.emptied && q.slots.free() > 0 && q.session != nil && !q.stopping
}

// idle reports whether the queue waits to be woken: nothing was left when it last asked for more than it got. q.mu is held.
func (q *queue) idle() bool { return q.hints == q.emptied && q.session != nil && !q.stopping }

// armTimer sees to it that a lane looks again when a job is due or a session expires.
// q.mu is held.
func (q *queue) armTimer(now time.Time, next time.Duration) {
	if next < 0 || q.stopping {
		return
	}
	at := now.Add(next)
	if !q.timerAt.IsZero() && !at.Before(q.timerAt) {
		return // it goes off in time
	}
	q.timerAt = at
	if q.timer == nil {
		q.timer = time.AfterFunc(next, func() {
			q.mu.Lock()
			q.timerAt = time.Time{}
			q.mu.Unlock()
			q.hint(true)
		})
		return
	}
	q.timer.Reset(next)
}
