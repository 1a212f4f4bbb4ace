package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A queue works one queue. It has the state that its parts share, which mu guards, and the parts:
//
//	part       its goroutine          what it owns
//	claimer    the lanes, two         calls that claim and settle
//	handlers   the slots'             runs handlers, and decides what becomes of each job
//	keeper     one                    opens the session and renews it; sweeps; the settings
//	reclaimer  one                    takes back the jobs of others' sessions
//	copier     one                    copies dead jobs to another queue
//	tender     one                    looks after batches; the keeper's
//	guard      one for all queues     finds stuck handlers
//	drain      that of run            the end of the work
//	contact    of all that call       whether Redis answers
//	orders     the same               what Redis last said of the queue
//	memory     the same               what Redis has forgotten
//
// Each part says which of its fields mu guards. The others belong to its goroutine. Slots, dispatch and alarm know nothing of the queue, and are called
// with mu held.
type queue struct {
	w        *Worker
	store    *store.Queue // on the caller's client
	own      *store.Queue // on the worker's, whose connections no claim keeps busy
	log      *slog.Logger
	base     context.Context // Run's, without its end
	listener *listener       // the worker's

	mu        mutex
	slots     *slots               // the deliveries
	dispatch  *dispatch            // when a lane makes a call
	alarm     alarm                // for the next due job, or the next session that may expire
	session   *session             // the one that claims; nil while there is none
	sessions  []*session           // all that have deliveries, or may get some
	throttled map[string]time.Time // warnings by what they are about

	claimer   claimer
	handlers  handlers
	keeper    keeper
	reclaimer reclaimer
	copier    copier
	guard     guard
	drain     drain
	contact   contact
	orders    orders
	memory    memory
}

func newQueue(w *Worker, s, own *store.Queue, concurrency int, b *bound) *queue {
	q := &queue{w: w, store: s, own: own, log: w.log.With("queue", s.Name()), throttled: make(map[string]time.Time)}
	q.slots = newSlots(concurrency, q.handlers.deliver)
	q.dispatch = newDispatch(&q.mu, q.slots, b)
	q.alarm = alarm{mu: &q.mu, ring: func() { q.hint(true) }}

	q.claimer = claimer{q: q, early: make(map[string]int64)}
	q.handlers = handlers{q: q}
	q.keeper = newKeeper(q)
	q.reclaimer = reclaimer{q: q, expired: make(chan []string, 1)}
	q.copier = copier{q: q, news: make(chan struct{}, 1)}
	q.guard = guard{q: q}
	q.drain = newDrain(q)
	q.contact = contact{q: q, born: time.Now()}
	q.orders = orders{q: q}
	q.memory = memory{q: q}
	return q
}

// run works the queue until ctx ended and its handlers returned. Their contexts end with halted.
func (q *queue) run(ctx, halted context.Context) error {
	// Calls go on after ctx has ended, to report outcomes. Handlers run in the trace of their job and have its
	// baggage, not Run's own.
	base := trace.ContextWithSpanContext(baggage.ContextWithoutBaggage(context.WithoutCancel(ctx)), trace.SpanContext{})
	q.base = handlerctx.WithHold(handlerctx.WithDraining(base, q.drain.sign), q.handlers.holdBack)
	q.handlers.labels = newLabels(q.base, q.store.Name(), q.w.kinds.named)
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
		working.Go(func() { q.claimer.work(calls, laneIDs[i], &q.contact.waits[i]) })
	}
	wg.Go(func() { q.keeper.keep(calls) })
	wg.Go(func() { q.reclaimer.run(calls) })
	wg.Go(func() { q.copier.run(calls) })
	wg.Go(func() { q.keeper.tender.run(calls) })

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

// armTimer has a lane look again when next has passed since from: a job is due, or a session expires. For what a reply says, from is when its
// call was sent. The call that the alarm leads to needs about as long to get to Redis, so it comes when it is time, not a round trip later. One that
// comes too early is told how long it still is. q.mu is held.
func (q *queue) armTimer(from time.Time, next time.Duration) {
	if next >= 0 && !q.dispatch.stopping {
		q.alarm.set(from.Add(next))
	}
}

// A mutex can postpone function calls until it is unlocked. Logs, metrics and callbacks are the user's code and may take long, and
// other queues have their own mutexes. Code that holds the mutex passes such calls to later. Unlock makes them.
type mutex struct {
	sync.Mutex
	after []func()
}

// later postpones a call of f until the mutex is unlocked. The mutex is held.
func (m *mutex) later(f func()) { m.after = append(m.after, f) }

// Unlock unlocks the mutex and then calls what was passed to later, in order.
func (m *mutex) Unlock() {
	after := m.after
	m.after = nil
	m.Mutex.Unlock()
	for _, f := range after {
		f()
	}
}

// An alarm calls ring at a set time: when a job is due or a session expires. An earlier time replaces a later one. The queue's mu
// guards it.
type alarm struct {
	mu    *mutex
	ring  func() // called without mu
	timer *time.Timer
	at    time.Time // when it rings; zero if it isn't set
}

// set makes the alarm ring at a time, or at once if that has passed. If it is set to ring earlier, nothing changes. mu is held.
func (a *alarm) set(at time.Time) {
	if !a.at.IsZero() && !at.Before(a.at) {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), a.rings)
		return
	}
	a.timer.Reset(time.Until(at))
}

func (a *alarm) rings() {
	a.mu.Lock()
	a.at = time.Time{}
	a.mu.Unlock()
	a.ring()
}

// stop ends the alarm. mu is held.
func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
