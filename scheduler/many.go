package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// chunksInFlight bounds the chunks of one EnqueueMany that wait or are in flight: two calls in flight, and two that
// follow. So other callers wait behind at most this many.
const chunksInFlight = 2 * lanesPerQueue

// A bulk of rampFrom jobs or more is sent in growing chunks. The first chunk of a queue has firstChunk jobs. Each next
// chunk has twice as many, up to store.MaxBatch.
const (
	rampFrom   = 4 * store.MaxBatch
	firstChunk = 128
)

// An Item is one job of [Scheduler.EnqueueMany].
type Item struct {
	Args    signalbox.Args
	Options []EnqueueOption // override those of the call and the kind's defaults; headers add up
}

// EnqueueMany enqueues many jobs, each with opts and its own options. It returns one result for each item, in the same
// order. The jobs go in chunks of at most 950 jobs and about 1 MiB, several at a time. Jobs of different chunks have no
// order. Redis runs a chunk completely or not at all.
//
// If a job fails, its result has the error, and the others go on. But after a chunk has failed, no more jobs are sent
// to its queue. The returned error is nil if no job failed. Otherwise it says how many failed, and wraps the error of
// the first one. An ID that occurs twice is enqueued once. The kinds of errors, and what happens when ctx ends, are as
// for [Scheduler.Enqueue].
//
// In a trace each job has a span "create {queue}". Its deliveries link to that span. Each queue has one span "enqueue
// {queue}", which is a sibling of the "create" spans and links to the first 128 of them.
func (s *Scheduler) EnqueueMany(ctx context.Context, items []Item, opts ...EnqueueManyOption) ([]Result, error) {
	b := bulk{
		s: s, ctx: ctx, results: make([]Result, len(items)), queues: make(map[string]*bulkQueue),
		traced: !s.trace.silent(), measured: !s.metrics.Silent(),
	}
	if !b.traced { // the caller may still be part of a trace
		b.headers = s.trace.inject(ctx, nil, signalbox.TraceLink)
	}
	b.opts = singly(opts)
	var err error
	b.base, err = defaults.with(s.trace.reserved, b.opts)
	if err != nil {
		for i, it := range items {
			o, _ := b.base.with(s.trace.reserved, it.Options)
			b.results[i].Err = o.settle(err, o.id, o.incarnation)
		}
		return b.results, fmt.Errorf("scheduler: none of %d jobs enqueued: %w", len(items), err)
	}
	for i := range items {
		b.add(i, &items[i])
	}
	b.flush()
	return b.results, b.err()
}

// bulk is an EnqueueMany in progress.
type bulk struct {
	s        *Scheduler
	ctx      context.Context
	results  []Result
	queues   map[string]*bulkQueue
	current  *bulkQueue // queue of the last item
	inFlight []*chunk   // oldest first
	spare    []*chunk

	opts             []EnqueueOption           // of all jobs
	base             *options                  // resolved, for kinds without defaults
	kinds            map[kindDefaults]resolved // resolved, for the other kinds
	traced, measured bool
	headers          map[string]string // for jobs without a span and headers of their own
}

// bulkQueue is the part of a bulk that goes to one queue.
type bulkQueue struct {
	name   string
	lanes  *combiner
	chunk  *chunk    // the chunk that is being filled, or nil
	count  int       // jobs sent
	chunks int       // chunks that were filled
	err    error     // of the first chunk that failed
	met    []*Result // results of jobs that met a ready or running job

	sending
}

// A chunk is a request, with the places of its results.
type chunk struct {
	request
	queue *bulkQueue
	index []int
	kinds kinds // set only if there are metrics
	drawn []drawn
}

// drawn are the options of an item that has an incarnation or is made again.
type drawn struct {
	item        int
	incarnation uint64
	options     *options
}

// add puts an item into its queue's chunk.
func (b *bulk) add(i int, it *Item) {
	k, kind, payload, argsErr := marshal(it.Args)
	base, kindErr := b.ofKind(k)
	o, err := base.with(b.s.trace.reserved, it.Options)
	if argsErr != nil || kindErr != nil {
		err = errors.Join(kindErr, err, argsErr)
	}
	if err == nil {
		err = b.put(i, kind, payload, o)
	}
	if err != nil {
		b.results[i].Err = o.settle(err, o.id, o.incarnation)
	}
}

// put puts a job into its queue's chunk.
func (b *bulk) put(i int, kind string, payload []byte, o *options) error {
	res := &b.results[i]
	res.ID = o.id
	if res.ID == "" {
		res.ID = store.NewID()
	}
	q := b.queue(o.queue)
	if q.err != nil {
		return q.skipped(b.ctx)
	}
	job := o.job(res.ID, kind, payload)
	job.Incarnation = o.incarnationOf()
	item, err := b.create(q, &job, o)
	if err != nil {
		return err
	}
	if o.cautious {
		item.IfAbsent()
	}
	if c := q.chunk; c != nil && c.bytes+item.Size() > maxCallBytes {
		b.send(q)
	}
	c := b.fill(q)
	c.items = append(c.items, item)
	c.index = append(c.index, i)
	c.bytes += item.Size()
	if job.Incarnation != 0 || o.drawn {
		c.drawn = append(c.drawn, drawn{i, job.Incarnation, o})
	}
	if b.measured {
		c.kinds = c.kinds.add(kind)
	}
	if len(c.items) == b.room(q) {
		b.send(q)
	}
	return nil
}

// room returns how many jobs the queue's chunk may have. The chunks of a large bulk begin small, so that Redis works on
// the first jobs while the next ones are encoded. Encoding a job takes about half as long as enqueuing it. So each
// chunk is ready before Redis has finished the one before.
func (b *bulk) room(q *bulkQueue) int {
	if len(b.results) < rampFrom {
		return store.MaxBatch
	}
	return min(firstChunk<<min(q.chunks, 8), store.MaxBatch)
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

// fill returns the chunk for the queue's next job.
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

// send sends the queue's chunk. First it waits until fewer than chunksInFlight are in flight.
func (b *bulk) send(q *bulkQueue) {
	for len(b.inFlight) >= chunksInFlight {
		b.settle()
	}
	c := q.chunk
	q.chunk = nil
	q.chunks++
	b.begin(q, len(c.items))
	switch {
	case q.err != nil:
		b.fail(c, q.skipped(b.ctx))
	case b.ctx.Err() != nil:
		err := notSent(b.ctx)
		c.measure(err)
		b.fail(c, err)
	default:
		if cap(c.fates) < len(c.items) {
			c.fates = make([]store.Fate, cap(c.items))
		}
		c.fates = c.fates[:len(c.items)]
		q.count += len(c.items)
		b.inFlight = append(b.inFlight, c)
		q.lanes.submit(b.ctx, &c.request)
	}
}

// settle waits for the oldest chunk and sets its results.
func (b *bulk) settle() {
	c := b.inFlight[0]
	b.inFlight = b.inFlight[1:]
	done, maybe := c.queue.lanes.wait(b.ctx, &c.request)
	var err error
	switch {
	case done:
		err = c.err
	case maybe:
		err = cut(b.ctx)
	default:
		err = notSent(b.ctx)
	}
	c.measure(err)
	switch {
	case err != nil:
		b.fail(c, err)
		if c.left {
			return // the call owns the chunk
		}
	default:
		for j, i := range c.index {
			if res := &b.results[i]; res.take(c.fates[j]) {
				c.queue.met = append(c.queue.met, res)
			}
		}
	}
	clear(c.items)
	*c = chunk{request: request{items: c.items[:0], fates: c.fates, done: c.done}, index: c.index[:0], kinds: c.kinds[:0], drawn: c.drawn[:0]}
	b.spare = append(b.spare, c)
}

// fail sets the error of a chunk's jobs, and of all later jobs for its queue.
func (b *bulk) fail(c *chunk, err error) {
	drawn := c.drawn
	for _, i := range c.index {
		o, incarnation := &defaults, uint64(0)
		if len(drawn) > 0 && drawn[0].item == i {
			o, incarnation, drawn = drawn[0].options, drawn[0].incarnation, drawn[1:]
		}
		b.results[i].Err = o.settle(err, b.results[i].ID, incarnation)
	}
	if c.queue.err == nil {
		c.queue.err = err
	}
}

// flush sends the rest and waits for all of it.
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
		if len(q.met) > 0 {
			lookUp(b.ctx, q.lanes.queue, q.met)
		}
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

// skipped returns the error of a job that was not sent because a chunk of its queue had failed. The chunk's outcome may
// be uncertain. The outcome of this job is certain.
func (q *bulkQueue) skipped(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return notSent(ctx)
	case errors.Is(q.err, ErrUncertain):
		return fmt.Errorf(notEnqueued+"an earlier chunk to queue %s failed: %v", q.name, q.err)
	}
	return fmt.Errorf(notEnqueued+"an earlier chunk to queue %s failed: %w", q.name, q.err)
}
