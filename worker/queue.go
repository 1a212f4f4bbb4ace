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

	mu       mutex
	slots    *slots
	dispatch *dispatch // when a lane makes a call
	keeper   keeper
	drain    drain
	contact  contact
	standing standing
	memory   memory
	guard    guard
	alarm    alarm      // for the next due job, or the next session that may expire
	session  *session   // the one that claims; nil while there is none
	sessions []*session // all that have deliveries, or may get some

	waiting time.Time // since when renewals say that jobs wait which it could take, and no claim was answered; zero: it isn't so
	labels  labels    // of its handlers, for the profiler

	noting bool // a timer looks for notes to send

	early  map[string]int64 // cancelled deliveries that no call has come back with yet: tokens by job ID
	unsure bool             // a call that is under way may come back with a cancelled delivery of which no message was heard

	expired   chan []string        // sessions to reclaim
	spares    [][]store.Settlement // empty: their room is for those that come; each lane gives one back while it fills another
	keeps     atomic.Bool          // completed jobs are kept
	copier    copier
	listener  *listener
	asked     uint64               // calls that wanted jobs
	stoodBy   uint64               // what asked was when another worker was last woken
	onCall    bool                 // a timer looks whether that one made a call
	throttled map[string]time.Time // warnings by what they are about
}

func newQueue(w *Worker, s, own *store.Queue, concurrency int, b *bound) *queue {
	q := &queue{
		w: w, store: s, own: own,
		log:       w.log.With("queue", s.Name()),
		early:     make(map[string]int64),
		expired:   make(chan []string, 1),
		throttled: make(map[string]time.Time),
		copier:    newCopier(),
	}
	q.keeper = newKeeper(q)
	q.drain = newDrain(q)
	q.contact = contact{q: q, born: time.Now()}
	q.standing, q.memory, q.guard = standing{q: q}, memory{q: q}, guard{q: q}
	q.slots = newSlots(concurrency, q.deliver)
	q.dispatch = newDispatch(&q.mu, q.slots, b)
	q.alarm = alarm{mu: &q.mu, ring: func() { q.hint(true) }}
	return q
}

// run works the queue until ctx ended and its handlers returned. Their contexts end with halted.
func (q *queue) run(ctx, halted context.Context) error {
	// Calls go on after ctx has ended, to report outcomes. Handlers run in the trace of their job and have its
	// baggage, not Run's own.
	base := trace.ContextWithSpanContext(baggage.ContextWithoutBaggage(context.WithoutCancel(ctx)), trace.SpanContext{})
	q.base = signalbox.WithHoldBack(signalbox.WithDraining(base, q.drain.sign), q.holdBack)
	q.labels = newLabels(q.base, q.store.Name(), q.w.kinds)
	calls, stop := context.WithCancel(q.base)
	defer stop()
	q.mu.Lock()
	q.drain.leave = stop
	q.mu.Unlock()

	var wg sync.WaitGroup
	laneIDs := make([]*store.Lane, lanes)
	var working sync.WaitGroup
	for i := range laneIDs {
		laneIDs[i] = q.store.NewLane()
		working.Go(func() { q.work(calls, laneIDs[i], &q.contact.waits[i]) })
	}
	wg.Go(func() { q.keeper.keep(calls) })
	wg.Go(func() { q.reclaim(calls) })
	wg.Go(func() { q.copyDead(calls) })

	<-ctx.Done()
	err := q.drain.run(halted)
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
