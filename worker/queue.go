package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A queue works one queue. Its state is guarded by mu; goroutines of their own call Redis:
// the lanes claim and settle, the keeper renews the session, the reclaimer takes back the
// jobs of others' sessions. Each handler runs in a goroutine of its own, one a slot.
type queue struct {
	w     *Worker
	store *store.Queue
	log   *slog.Logger
	base  context.Context // Run's, without its end

	mu        sync.Mutex
	changed   *sync.Cond // there may be a call to make: a lane waits
	settled   *sync.Cond // a delivery came to its end: the drain waits
	free      []int      // slots with nothing in them
	slots     []slot
	handlers  sync.WaitGroup // of the slots' goroutines
	session   *session       // the one that claims; nil while there is none
	sessions  []*session     // all that have deliveries, or may get some
	stopping  bool           // claim nothing more
	drained   bool           // and nothing is left to settle: the lanes end
	abandoned int            // settlements that Redis could not be told of

	// A hint that there may be work counts one up; a claim that came back with less than it
	// asked for sets emptied to what hints was when it began.
	hints, emptied uint64
	probe          bool // make a call even if no slot is free
	marking        bool // a timer looks for marks to send
	calls          int  // under way
	summoned       bool // a lane was woken and hasn't looked yet
	timer          *time.Timer
	timerAt        time.Time // when the timer is set for; zero: it isn't

	lost      chan struct{} // the session is over: the keeper opens another
	expired   chan []string // sessions to reclaim
	outage    time.Time     // when Redis was last known not to be there in time
	swept     time.Time     // when terminal jobs were last swept out; the keeper's
	listener  *listener
	heard     bool                 // whether the queue was idle when the listener last looked
	throttled map[string]time.Time // warnings by what they are about
}

// A slot runs one delivery at a time, in a goroutine that is started with its first delivery and
// ends with the queue: its stack has grown to what the handlers need.
type slot struct {
	session *session // nil: free
	watch   *watch   // of what runs; nil: nobody watches
	kind    string
	since   time.Time
	work    chan delivery // nil: not started
}

type delivery struct {
	store.Delivery
	session *session
	watch   *watch // nil: nobody watches
}

// about are the attributes of log records about a delivery of the job.
func (d *delivery) about(job *signalbox.Job, more ...any) []any {
	attrs := []any{"job", job.ID, "kind", job.Kind, "attempt", job.Attempt, "token", job.Token}
	if d.watch != nil {
		attrs = append(attrs, telemetry.SpanLogAttrs(d.watch.SpanContext())...)
	}
	return append(attrs, more...)
}

func newQueue(w *Worker, s *store.Queue, concurrency int) *queue {
	q := &queue{
		w: w, store: s,
		log:       w.log.With("queue", s.Name()),
		free:      make([]int, concurrency),
		slots:     make([]slot, concurrency),
		hints:     1, // there may be work from the beginning
		lost:      make(chan struct{}, 1),
		expired:   make(chan []string, 1),
		throttled: make(map[string]time.Time),
	}
	for i := range q.free {
		q.free[i] = concurrency - 1 - i
	}
	q.changed, q.settled = sync.NewCond(&q.mu), sync.NewCond(&q.mu)
	return q
}

// run works the queue until ctx ended and its handlers returned.
func (q *queue) run(ctx context.Context) error {
	// Redis is told how it ends after ctx did.
	// What handlers do is in the trace of their job, and has its baggage: neither is Run's own.
	q.base = trace.ContextWithSpanContext(baggage.ContextWithoutBaggage(context.WithoutCancel(ctx)), trace.SpanContext{})
	calls, stop := context.WithCancel(q.base)
	defer stop()

	var wg sync.WaitGroup
	laneIDs := make([]*store.Lane, lanes)
	var working sync.WaitGroup
	for i := range laneIDs {
		laneIDs[i] = q.store.NewLane()
		working.Go(func() { q.work(calls, laneIDs[i]) })
	}
	wg.Go(func() { q.keep(calls) })
	wg.Go(func() { q.reclaim(calls) })

	<-ctx.Done()
	err := q.drain()
	working.Wait()
	for i := range q.slots {
		if q.slots[i].work != nil {
			close(q.slots[i].work)
		}
	}
	q.handlers.Wait()
	<-q.listener.done
	stop()
	wg.Wait()        // no session is opened from here on
	q.close(laneIDs) // passes on a token that the listener popped
	return err
}

// hint makes a lane look for work. With probe it looks even when no slot is free, to promote
// what is due and wake another worker for it.
func (q *queue) hint(probe bool) {
	q.mu.Lock()
	q.hints++
	q.probe = q.probe || probe
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
	if q.hungry() {
		n = max(n, len(q.free))
	}
	return n > 0 && (q.calls == 0 || n >= (len(q.slots)+3)/4)
}

// hungry reports whether there may be work for a free slot. q.mu is held.
func (q *queue) hungry() bool {
	return q.hints > q.emptied && len(q.free) > 0 && q.session != nil && !q.stopping
}

// idle reports whether a wake-up token would be put to use. q.mu is held.
func (q *queue) idle() bool {
	return q.hints == q.emptied && len(q.free) > 0 && q.session != nil && !q.stopping
}

// armTimer sees to it that a lane looks again when a job is due or a session expires.
// BLPOP, whose timeouts are late, is not asked to. q.mu is held.
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
