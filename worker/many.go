package worker

import (
	"context"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// An Each is one of the jobs in a call of the function of [HandleMany]: one delivery, with its own lease, context, attempt and outcome.
type Each[T signalbox.Args] struct {
	Job  *signalbox.Job
	Args T

	ctx  context.Context
	once sync.Once
	done chan struct{} // closed when err is its outcome
	err  error
}

// Context returns the context of this delivery, as a handler of its own would have it: with its lease, its job and its span. It ends when the job is
// cancelled, its lease is lost, its timeout is over, or the delivery has ended. What goes by a job's token, such as an effect or a lock, takes this context.
func (e *Each[T]) Context() context.Context { return e.ctx }

// Return ends this delivery with err, as if a handler of its own had returned it: nil completes the job, and so on. It does so at once: the
// others may take longer. The last job of a call ends with the function, which has a slot as long as it runs. Only the first Return of a job counts. It may be called
// by any goroutine, also when the function has returned; then it does nothing.
func (e *Each[T]) Return(err error) {
	e.once.Do(func() {
		e.err = err
		close(e.done)
	})
}

const (
	// DefaultMost and DefaultGather are what [HandleMany] has without [UpTo].
	DefaultMost   = 100
	DefaultGather = 50 * time.Millisecond

	maxMost   = 10_000
	maxGather = time.Minute
)

// UpTo says for [HandleMany] how many jobs a call has at most, 1 to 10,000, and for how long the first of them waits for others, more than 0 and at most a
// minute. Default: [DefaultMost] and [DefaultGather].
func UpTo(most int, gather time.Duration) Option {
	return func(k *kind) { k.many = &many{most, gather} }
}

// many is what UpTo has said.
type many struct {
	most   int
	gather time.Duration
}

// HandleMany registers fn for the jobs of T's kind, as [Handle] does, to be called with many of them at once: for one INSERT of 100 rows, or one request to a
// service that takes lists. Each is a delivery of its own, with a slot, a lease, retries, locks and middleware as with Handle; only the call is shared.
// So a call never has more jobs than the queue has slots. Redis knows nothing of it.
//
// A call begins when it has as many jobs as [UpTo] says, or as the queue has slots, when its first job has waited for as long as UpTo says, or when the
// worker shuts down. A job whose context ends before that is not in the call. Jobs of several queues are never in one call.
//
// What fn returns is the outcome of all jobs of the call for which it hasn't called [Each.Return]: nil completes them, an error is a failed attempt of
// each, and so for [signalbox.Snooze] and [signalbox.Cancel]. If fn panics, each of them has a [*signalbox.PanicError].
//
// ctx ends when the contexts of all jobs of the call have ended. It has no job and no lease: these are in [Each.Context]. If a delivery is traced, ctx has a span
// of the call, which is linked with those of its deliveries. A [Timeout] counts from when a job was claimed, so the wait for others is part of it.
//
// HandleMany panics as Handle does.
func HandleMany[T signalbox.Args](w *Worker, fn func(ctx context.Context, jobs []*Each[T]) error, opts ...Option) {
	if fn == nil {
		panic("worker: HandleMany of a nil function")
	}
	g := &gatherer[T]{fn: fn, calls: make(map[*queue]*shared[T])}
	h := newTyped(g.handle)
	k := w.register(kindOf[T](), h, append([]Option{UpTo(DefaultMost, DefaultGather)}, opts...))
	g.many = *k.many
	h.strict, h.codecs = k.strict || w.cfg.Strict, w.codecs
}

// validate panics if UpTo has said what can't be.
func (m *many) validate(kind string) {
	if m.most < 1 || m.most > maxMost || m.gather <= 0 || m.gather > maxGather {
		panic(fmt.Sprintf("worker: HandleMany with UpTo(%d, %v) for kind %s; 1 to %d jobs and more than 0 to %v are allowed", m.most, m.gather, kind, maxMost, maxGather))
	}
}

// A gatherer collects deliveries for the calls of one function. Each waits in its own goroutine, that of its slot, until it has an outcome.
type gatherer[T signalbox.Args] struct {
	many
	fn func(context.Context, []*Each[T]) error

	mu    sync.Mutex
	calls map[*queue]*shared[T] // that have not begun
}

// A shared is one call of the function. It begins once; from then on jobs doesn't change. Its goroutine ends with the function, and the last of its deliveries that has
// an outcome waits for that: so a worker's Run doesn't return before.
type shared[T signalbox.Args] struct {
	queue *queue // nil if no worker calls the handler
	kind  string
	jobs  []*Each[T]
	timer *time.Timer
	begun bool
	over  chan struct{} // closed when the function has ended

	left atomic.Int32 // deliveries of the call that have not ended
}

// handle is the handler of one delivery.
func (g *gatherer[T]) handle(ctx context.Context, job *signalbox.Job, args T) error {
	d, _ := ctx.Value(deliveryKey{}).(*delivery)
	e := &Each[T]{Job: job, Args: args, ctx: ctx, done: make(chan struct{})}
	c := g.join(e, d)
	over, draining := ctx.Done(), handlerctx.Draining(ctx)
	for {
		select {
		case <-e.done:
			if c.left.Add(-1) == 0 {
				<-c.over
			}
			if d != nil && d.slot != nil {
				d.slot.goroutine.Store(goroutineID())
			}
			return e.err
		case <-draining:
			g.begin(c)
			draining = nil
		case <-over:
			if g.leave(c, e) {
				return context.Cause(ctx)
			}
			over = nil // it is in the call, which is to see that
		}
	}
}

// join has a delivery join the call that is being collected, or a new one, and begins the call if it is full.
func (g *gatherer[T]) join(e *Each[T], d *delivery) *shared[T] {
	most := g.most
	var q *queue
	if d != nil {
		q = d.session.queue
		q.mu.Lock()
		most = min(most, q.dispatch.widest())
		q.mu.Unlock()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[q]
	if c == nil {
		c = &shared[T]{queue: q, kind: e.Job.Kind, over: make(chan struct{})}
		c.timer = time.AfterFunc(g.gather, func() { g.begin(c) })
		g.calls[q] = c
	}
	c.jobs = append(c.jobs, e)
	if len(c.jobs) >= most {
		g.run(c)
	}
	return c
}

// begin begins a call, unless it has begun.
func (g *gatherer[T]) begin(c *shared[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.run(c)
}

// run is begin; mu is held.
func (g *gatherer[T]) run(c *shared[T]) {
	if c.begun {
		return
	}
	g.close(c)
	c.left.Store(int32(len(c.jobs)))
	c.jobs = slices.DeleteFunc(c.jobs, func(e *Each[T]) bool { // each is about to leave
		if e.ctx.Err() == nil {
			return false
		}
		e.Return(context.Cause(e.ctx))
		return true
	})
	if len(c.jobs) == 0 {
		close(c.over)
		return
	}
	go c.make(g.fn)
}

// close takes a call out of those that are being collected; mu is held.
func (g *gatherer[T]) close(c *shared[T]) {
	c.begun = true
	c.timer.Stop()
	delete(g.calls, c.queue)
}

// leave takes a delivery out of a call, and returns false if that has begun.
func (g *gatherer[T]) leave(c *shared[T], e *Each[T]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.begun {
		return false
	}
	c.jobs = slices.DeleteFunc(c.jobs, func(other *Each[T]) bool { return other == e })
	if len(c.jobs) == 0 {
		g.close(c)
	}
	return true
}

// make calls the function. All deliveries have an outcome when it returns, or panics.
func (c *shared[T]) make(fn func(context.Context, []*Each[T]) error) {
	ctx, cancel := c.context()
	defer cancel(nil)
	ctx, end := c.trace(ctx)
	c.show()
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = &signalbox.PanicError{Value: p, Stack: debug.Stack()}
		}
		end(err)
		for _, e := range c.jobs {
			e.Return(err)
		}
		close(c.over)
	}()
	err = fn(ctx, slices.Clone(c.jobs)) // fn may sort it
}

// context returns the context of the call. It ends, with the cause of the last one, when those of all its deliveries have ended.
func (c *shared[T]) context() (context.Context, context.CancelCauseFunc) {
	base := context.Background()
	if c.queue != nil {
		base = c.queue.base
	}
	ctx, cancel := context.WithCancelCause(base)
	var mu sync.Mutex
	left := len(c.jobs)
	stops := make([]func() bool, len(c.jobs))
	for i, e := range c.jobs {
		stops[i] = context.AfterFunc(e.ctx, func() {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				cancel(context.Cause(e.ctx))
			}
		})
	}
	return ctx, func(cause error) {
		for _, stop := range stops {
			stop()
		}
		cancel(cause)
	}
}

// trace begins the span of the call, if deliveries are traced. It is linked with their handlers' spans, both ways.
func (c *shared[T]) trace(ctx context.Context) (context.Context, func(error)) {
	if c.queue == nil {
		return ctx, func(error) {}
	}
	var spans []trace.Span
	var links []trace.Link
	for _, e := range c.jobs {
		if span := trace.SpanFromContext(e.ctx); telemetry.DeliveryFrom(e.ctx).Traced() && span.SpanContext().IsValid() {
			spans, links = append(spans, span), append(links, trace.Link{SpanContext: span.SpanContext()})
		}
	}
	if len(links) == 0 {
		return ctx, func(error) {}
	}
	ctx, span := c.queue.w.spans.StartMany(ctx, c.queue.store.Name(), c.kind, len(c.jobs), links)
	for _, s := range spans {
		s.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return ctx, func(err error) {
		if err != nil {
			telemetry.Fail(span, err, telemetry.ErrorType(err))
		}
		span.End()
	}
}

// show has the call's goroutine stand for its deliveries: in profiles, and in the stacks of those that are stuck.
func (c *shared[T]) show() {
	if c.queue == nil {
		return
	}
	if labels := c.queue.handlers.labels.kinds[c.kind]; labels != nil {
		pprof.SetGoroutineLabels(labels)
	}
	id := goroutineID()
	for _, e := range c.jobs {
		if d, ok := e.ctx.Value(deliveryKey{}).(*delivery); ok && d.slot != nil {
			d.slot.goroutine.Store(id)
		}
	}
}
