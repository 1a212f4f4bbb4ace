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
	settled    *sync.Cond // a delivery came to its end: the drain waits
	slots      *slots
	configured int       // how many, by Config
	dispatch   *dispatch // when a lane makes a call
	keeper     keeper
	alarm      alarm         // for the next due job, or the next session that may expire
	session    *session      // the one that claims; nil while there is none
	sessions   []*session    // all that have deliveries, or may get some
	draining   chan struct{} // closed when it stops; the handlers' sign
	drained    bool          // nothing is left to settle: the lanes end
	abandoned  int           // settlements that never reached Redis
	returned   time.Time     // when a handler last returned, since stopping
	leave      func()        // ends the calls under way

	stopping   time.Time          // when it began to drain
	waiting    time.Time          // since when renewals say that jobs wait which it could take, and no claim was answered; zero: it isn't so
	refusals   map[string]refused // kinds of calls that Redis refuses
	stoodSince time.Time          // when Redis first said what standing is, by our clock
	stuck      stuckHandlers
	labels     labels // of its handlers, for the profiler

	standing store.Standing // what Redis last said of the queue
	stood    time.Time      // when it did, by its clock
	stoodAt  time.Time      // when its reply was taken, by our clock
	noting   bool           // a timer looks for notes to send

	early  map[string]int64 // cancelled deliveries that no call has come back with yet: tokens by job ID
	unsure bool             // a call that is under way may come back with a cancelled delivery of which no message was heard

	expired   chan []string        // sessions to reclaim
	outage    time.Time            // when Redis was last known not to be there in time
	forgotten time.Time            // when Redis gave the latest of the answers that it has forgotten, by its clock; zero: none is known
	missed    time.Time            // when the latest loss was seen, by Redis's clock
	spares    [][]store.Settlement // empty: their room is for those that come; each lane gives one back while it fills another
	away      atomic.Bool          // the last call was not served
	born      time.Time            // what heardAt and waits count from, in ns
	heardAt   atomic.Int64         // when a call was last answered
	waits     [lanes + 1]wait
	keeps     atomic.Bool // completed jobs are kept
	copier    copier
	listener  *listener
	asked     uint64               // calls that wanted jobs
	stoodBy   uint64               // what asked was when another worker was last woken
	onCall    bool                 // a timer looks whether that one made a call
	throttled map[string]time.Time // warnings by what they are about
}

func newQueue(w *Worker, s, own *store.Queue, concurrency int, b *bound) *queue {
	q := &queue{
		w: w, store: s, own: own, configured: concurrency,
		log:       w.log.With("queue", s.Name()),
		draining:  make(chan struct{}),
		born:      time.Now(),
		early:     make(map[string]int64),
		expired:   make(chan []string, 1),
		throttled: make(map[string]time.Time),
		copier:    newCopier(),
	}
	q.keeper = newKeeper(q)
	q.slots = newSlots(concurrency, q.deliver)
	q.dispatch = newDispatch(&q.mu, q.slots, b)
	q.alarm = alarm{mu: &q.mu, ring: func() { q.hint(true) }}
	q.settled = sync.NewCond(&q.mu)
	return q
}

// run works the queue until ctx ended and its handlers returned. Their contexts end with halted.
func (q *queue) run(ctx, halted context.Context) error {
	// Calls go on after ctx has ended, to report outcomes. Handlers run in the trace of their job and have its
	// baggage, not Run's own.
	base := trace.ContextWithSpanContext(baggage.ContextWithoutBaggage(context.WithoutCancel(ctx)), trace.SpanContext{})
	q.base = signalbox.WithHoldBack(signalbox.WithDraining(base, q.draining), q.holdBack)
	q.labels = newLabels(q.base, q.store.Name(), q.w.kinds)
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
	wg.Go(func() { q.keeper.keep(calls) })
	wg.Go(func() { q.reclaim(calls) })
	wg.Go(func() { q.copyDead(calls) })

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
	if q.session != nil {
		q.session.barred = false // one that kept others out may have run long enough
	}
	q.dispatch.hint(probe)
	q.mu.Unlock()
}

// idle reports whether the queue waits to be woken. q.mu is held.
func (q *queue) idle() bool { return q.dispatch.idle() }

// claimUnder makes s the session that claims; nil: there is none. q.mu is held.
func (q *queue) claimUnder(s *session) {
	if s != nil {
		q.keeper.opened = true
	} else {
		q.keeper.vacated = time.Now()
	}
	q.session = s
	q.dispatch.open = s != nil
}

// armTimer has a lane look again when next has passed since from: a job is due, or a session expires. For what a reply says, from is when its
// call was sent. The call that the alarm leads to needs about as long to get to Redis, so it comes when it is time, not a round trip later. One that
// comes too early is told how long it still is. q.mu is held.
func (q *queue) armTimer(from time.Time, next time.Duration) {
	if next >= 0 && !q.dispatch.stopping {
		q.alarm.set(from.Add(next))
	}
}
