package scheduler

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// chunksInFlight bounds what one EnqueueMany has in the line: two calls on their way, and
// as many to follow. Others who enqueue wait behind no more than these.
const chunksInFlight = 2 * lanesPerQueue

// An Item is one job of [Scheduler.EnqueueMany].
type Item struct {
	Args    signalbox.Args
	Options []Option // count more than those of the call; headers add up
}

// EnqueueMany puts many jobs in, each with opts and its own options, and returns one result
// per item in their order. They go in chunks of at most 1,000 jobs and about 1 MiB, several at a
// time; jobs of different chunks have no order. A chunk goes in as a whole or not at all.
//
// A job that fails has its error in its result and the others go on, but after a chunk
// failed no more is sent to its queue. The returned error is nil if no job failed; else it says how
// many did and wraps the first one's error. An ID that occurs twice is enqueued once.
// The kinds of errors, and what the end of ctx means, are as for [Scheduler.Enqueue].
func (s *Scheduler) EnqueueMany(ctx context.Context, items []Item, opts ...Option) ([]Result, error) {
	b := bulk{s: s, ctx: ctx, results: make([]Result, len(items)), queues: make(map[string]*bulkQueue)}
	base, err := defaults.with(inMany, s.trace.reserved, opts)
	if err != nil {
		for i := range b.results {
			b.results[i].Err = err
		}
		return b.results, fmt.Errorf("scheduler: none of %d jobs enqueued: %w", len(items), err)
	}
	for i := range items {
		b.add(i, &items[i], base)
	}
	b.flush()
	return b.results, b.err()
}

// bulk is one EnqueueMany under way.
type bulk struct {
	s        *Scheduler
	ctx      context.Context
	results  []Result
	queues   map[string]*bulkQueue
	current  *bulkQueue // of the last item
	inFlight []*chunk   // the oldest first
	spare    []*chunk
}

// bulkQueue is the part of a bulk that goes to one queue.
type bulkQueue struct {
	name    string
	ctx     context.Context
	span    trace.Span
	headers map[string]string // the trace context
	lanes   *combiner
	chunk   *chunk // being filled, or nil
	count   int    // jobs sent
	err     error  // of the first chunk that failed
}

// A chunk is a request and where its results belong.
type chunk struct {
	request
	queue *bulkQueue
	index []int
}

func (b *bulk) add(i int, it *Item, base *options) {
	res := &b.results[i]
	o := base
	if len(it.Options) > 0 {
		if o, res.Err = base.with(inManyItem, b.s.trace.reserved, it.Options); res.Err != nil {
			return
		}
	}
	kind, payload, err := encode(it.Args)
	if err != nil {
		res.Err = err
		return
	}
	res.ID = o.id
	if res.ID == "" {
		res.ID = store.NewID()
	}
	q := b.queue(o.queue)
	if q.err != nil {
		res.Err = q.skipped()
		return
	}
	job := o.job(res.ID, kind, payload)
	job.Headers = q.headers
	if o.headers != nil {
		job.Headers = b.s.trace.inject(q.ctx, o.headers)
	}
	item, err := store.NewItem(&job, o.when)
	if err != nil {
		res.Err = err
		return
	}
	if c := q.chunk; c != nil && c.bytes+item.Size() > maxCallBytes {
		b.send(q)
	}
	c := b.fill(q)
	c.items = append(c.items, item)
	c.index = append(c.index, i)
	c.bytes += item.Size()
	if len(c.items) == store.MaxBatch {
		b.send(q)
	}
}

func (b *bulk) queue(name string) *bulkQueue {
	if q := b.current; q != nil && q.name == name {
		return q
	}
	q := b.queues[name]
	if q == nil {
		q = &bulkQueue{name: name, lanes: b.s.lanes(name)}
		q.ctx, q.span = telemetry.StartEnqueueMany(b.ctx, b.s.trace.tracer, name)
		q.headers = b.s.trace.inject(q.ctx, nil)
		b.queues[name] = q
	}
	b.current = q
	return q
}

// fill returns the chunk that takes the queue's next job.
func (b *bulk) fill(q *bulkQueue) *chunk {
	if q.chunk != nil {
		return q.chunk
	}
	c := &chunk{request: request{done: make(chan struct{}, 1)}}
	if n := len(b.spare); n > 0 {
		c, b.spare = b.spare[n-1], b.spare[:n-1]
	}
	c.queue, q.chunk = q, c
	return c
}

// send sends the queue's chunk, once there is room in flight.
func (b *bulk) send(q *bulkQueue) {
	for len(b.inFlight) >= chunksInFlight {
		b.settle()
	}
	c := q.chunk
	q.chunk = nil
	switch {
	case q.err != nil:
		b.fail(c, q.skipped())
	case b.ctx.Err() != nil:
		b.fail(c, notSent(b.ctx))
	default:
		if cap(c.fresh) < len(c.items) {
			c.fresh = make([]bool, cap(c.items))
		}
		c.fresh = c.fresh[:len(c.items)]
		q.count += len(c.items)
		b.inFlight = append(b.inFlight, c)
		q.lanes.submit(&c.request)
	}
}

// settle waits for the oldest chunk and fills in its results.
func (b *bulk) settle() {
	c := b.inFlight[0]
	b.inFlight = b.inFlight[1:]
	switch done, sent := c.queue.lanes.wait(b.ctx, &c.request); {
	case !done && sent:
		b.fail(c, cut(b.ctx))
		return // the chunk stays the call's
	case !done:
		b.fail(c, notSent(b.ctx))
	case c.err != nil:
		b.fail(c, c.err)
	default:
		for j, i := range c.index {
			b.results[i].New = c.fresh[j]
		}
	}
	clear(c.items)
	*c = chunk{request: request{items: c.items[:0], fresh: c.fresh, done: c.done}, index: c.index[:0]}
	b.spare = append(b.spare, c)
}

// fail fails the jobs of a chunk, and the queue from there on.
func (b *bulk) fail(c *chunk, err error) {
	for _, i := range c.index {
		b.results[i].Err = err
	}
	if c.queue.err == nil {
		c.queue.err = err
	}
}

// flush sends what is left and waits for all of it.
func (b *bulk) flush() {
	for _, q := range b.queues {
		if q.chunk != nil {
			b.send(q)
		}
	}
	for len(b.inFlight) > 0 {
		b.settle()
	}
	for _, q := range b.queues {
		telemetry.EndEnqueueMany(q.span, q.count, q.err)
	}
}

func (b *bulk) err() error {
	failed, first := 0, -1
	for i := range b.results {
		if b.results[i].Err != nil {
			if failed++; first < 0 {
				first = i
			}
		}
	}
	if failed == 0 {
		return nil
	}
	return fmt.Errorf("scheduler: %d of %d jobs failed; the first of them, item %d: %w",
		failed, len(b.results), first, b.results[first].Err)
}

// skipped is why a job was not sent after a chunk of its queue failed. The chunk's outcome may
// be uncertain; this job's is not.
func (q *bulkQueue) skipped() error {
	switch {
	case q.ctx.Err() != nil:
		return notSent(q.ctx)
	case errors.Is(q.err, ErrUncertain):
		return fmt.Errorf("not enqueued, since an earlier chunk to queue %s failed: %v", q.name, q.err)
	}
	return fmt.Errorf("not enqueued, since an earlier chunk to queue %s failed: %w", q.name, q.err)
}
