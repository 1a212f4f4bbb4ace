package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
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
//
// In a trace each job has a span "create {queue}", which its deliveries link to, and each queue one of the
// sending, "enqueue {queue}", which links to the first 128 of those. They are siblings.
func (s *Scheduler) EnqueueMany(ctx context.Context, items []Item, opts ...Option) ([]Result, error) {
	b := bulk{
		s: s, ctx: ctx, results: make([]Result, len(items)), queues: make(map[string]*bulkQueue),
		traced: !s.trace.silent(), measured: !s.metrics.Silent(),
	}
	if !b.traced { // but the caller may be part of a trace
		b.headers = s.trace.inject(ctx, nil, signalbox.TraceLink)
	}
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

	traced, measured bool
	headers          map[string]string // of jobs that have no span and no headers of their own
}

// bulkQueue is the part of a bulk that goes to one queue.
type bulkQueue struct {
	name  string
	lanes *combiner
	chunk *chunk // being filled, or nil
	count int    // jobs sent
	err   error  // of the first chunk that failed

	sending
}

// A chunk is a request and where its results belong.
type chunk struct {
	request
	queue *bulkQueue
	index []int
	kinds kinds // if anybody measures
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
		res.Err = q.skipped(b.ctx)
		return
	}
	job := o.job(res.ID, kind, payload)
	item, err := b.create(q, &job, o)
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
	if b.measured {
		c.kinds = c.kinds.add(kind)
	}
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
	b.begin(q, len(c.items))
	switch {
	case q.err != nil:
		b.fail(c, q.skipped(b.ctx))
	case b.ctx.Err() != nil:
		err := notSent(b.ctx)
		c.measure(err)
		b.fail(c, err)
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
	done, sent := c.queue.lanes.wait(b.ctx, &c.request)
	var err error
	switch {
	case done:
		err = c.err
	case sent:
		err = cut(b.ctx)
	default:
		err = notSent(b.ctx)
	}
	c.measure(err)
	switch {
	case !done && sent:
		b.fail(c, err)
		return // the chunk stays the call's
	case err != nil:
		b.fail(c, err)
	default:
		for j, i := range c.index {
			b.results[i].New = c.fresh[j]
		}
	}
	clear(c.items)
	*c = chunk{request: request{items: c.items[:0], fresh: c.fresh, done: c.done}, index: c.index[:0], kinds: c.kinds[:0]}
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
		q.end()
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
func (q *bulkQueue) skipped(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return notSent(ctx)
	case errors.Is(q.err, ErrUncertain):
		return fmt.Errorf("not enqueued, since an earlier chunk to queue %s failed: %v", q.name, q.err)
	}
	return fmt.Errorf("not enqueued, since an earlier chunk to queue %s failed: %w", q.name, q.err)
}
