package scheduler

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"

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

// An Item is one job of [Scheduler.EnqueueMany] or [Scheduler.EnqueueSeq].
type Item struct {
	Args    signalbox.Args
	Options []EnqueueOption // override those of the call and the kind's defaults; headers add up
}

// EnqueueMany enqueues many jobs, each with opts and its own options. It returns one result for each item, in the same
// order. The jobs go in chunks of at most 950 jobs (160 that have a group or a unique key, or may expire) and about 1 MiB, several at a time. Jobs of different chunks have no
// order. Redis runs a chunk completely or not at all. But if the queue has its maximum length, the first jobs of the chunk that fit go in, in their
// order, and the others fail with a [signalbox.QueueFullError], or wait: see [WaitForRoom].
//
// If a job fails, its result has the error, and the others go on. But after a chunk has failed, no more jobs are sent
// to its queue. The returned error is nil if no job failed. Otherwise it says how many failed, and wraps the error of
// the first one. An ID that occurs twice is enqueued once. The kinds of errors, and what happens when ctx ends, are as
// for [Scheduler.Enqueue].
//
// In a trace each job has a span "create {queue}". Its deliveries link to that span. Each queue has one span "enqueue
// {queue}", which is a sibling of the "create" spans and links to the first 128 of them.
func (s *Scheduler) EnqueueMany(ctx context.Context, items []Item, opts ...BulkOption) ([]Result, error) {
	b, err := s.newBulk(ctx, opts)
	b.results, b.ramps = make([]Result, 0, len(items)), len(items) >= rampFrom
	if err != nil {
		for _, it := range items {
			o, _ := b.base.with(s.trace.reserved, it.Options)
			b.results = append(b.results, Result{Err: o.settle(err, o.id, o.incarnation)})
		}
		return b.results, fmt.Errorf("scheduler: none of %d jobs enqueued: %w", len(items), err)
	}
	for i := range items {
		b.add(&items[i])
	}
	b.flush()
	return b.results, b.err()
}

// newBulk returns a bulk without jobs. The error says what is wrong with the options.
func (s *Scheduler) newBulk(ctx context.Context, opts []BulkOption) (*bulk, error) {
	b := &bulk{
		s: s, ctx: ctx, queues: make(map[destination]*bulkQueue), opts: singly(opts),
		traced: !s.trace.silent(), measured: !s.metrics.Silent(),
	}
	if !b.traced { // the caller may still be part of a trace
		b.headers = s.trace.inject(ctx, nil, signalbox.TraceLink)
	}
	var err error
	b.base, err = defaults.with(s.trace.reserved, b.opts)
	return b, err
}

// bulk is an EnqueueMany in progress, or an EnqueueSeq.
type bulk struct {
	s        *Scheduler
	ctx      context.Context
	results  []Result // of the items that were added
	ramps    bool     // the first chunks are small
	stream   *stream  // of an EnqueueSeq; otherwise nil
	queues   map[destination]*bulkQueue
	current  *bulkQueue // queue of the last item
	inFlight []*chunk   // oldest first
	spare    []*chunk

	opts             []EnqueueOption           // of all jobs
	base             *options                  // resolved, for kinds without defaults
	kinds            map[kindDefaults]resolved // resolved, for the other kinds
	own              options                   // of the item that was encoded last, if it has some
	traced, measured bool
	headers          map[string]string // for jobs without a span and headers of their own
}

// bulkQueue is the part of a bulk that goes to one queue.
type bulkQueue struct {
	name string
	destination
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
	queue   *bulkQueue
	into    []Result // the results that index means
	index   []int
	kinds   kinds    // set only if there are metrics
	names   []string // the kind of each job; likewise
	refusal error    // of the jobs for which there was no room; nil: that
	drawn   []drawn
}

// drawn is what the error of an item needs that has an incarnation or is made again.
type drawn struct {
	item        int
	incarnation uint64
	again       bool
}

// encoded is an item with all that is sent of it. Its options are valid until the next item is encoded.
type encoded struct {
	store.Item
	id, kind    string
	incarnation uint64
	options     *options
	created     trace.SpanContext // of the span of its creation, if it has one
}

// add puts an item into its queue's chunk. Its result is the next of the results.
func (b *bulk) add(it *Item) {
	j, err := b.encode(it)
	if err == nil {
		b.makeRoom(&j)
	}
	i := len(b.results)
	b.results = append(b.results, Result{ID: j.id})
	if err != nil {
		b.results[i].Err = j.options.settle(err, j.options.id, j.options.incarnation)
		return
	}
	b.put(i, &j)
}

// encode makes an item's record. If it can't, the result has the options all the same.
func (b *bulk) encode(it *Item) (j encoded, err error) {
	k, kind, payload, argsErr := marshal(it.Args, b.s.codec)
	base, kindErr := b.ofKind(k)
	o, err := base.withIn(&b.own, b.s.trace.reserved, it.Options)
	j.options, j.kind = o, kind
	if argsErr != nil || kindErr != nil {
		err = errors.Join(kindErr, err, argsErr)
	}
	if err != nil {
		return j, err
	}
	if j.id = o.id; j.id == "" {
		j.id = store.NewID()
	}
	if q := b.queue(o); q.err != nil {
		return j, q.skipped(b.ctx)
	}
	job := o.job(j.id, kind, payload)
	job.Incarnation, job.Born = o.incarnationOf(), o.born()
	j.incarnation = job.Incarnation
	j.Item, j.created, err = b.create(&job, it.Args, o)
	return j, err
}

// makeRoom sends what must go before the job.
func (b *bulk) makeRoom(j *encoded) {
	if b.stream != nil {
		b.stream.makeRoom(j.Size())
		return
	}
	q := b.queue(j.options)
	if c := q.chunk; c != nil && c.bytes+j.Size() > maxCallBytes {
		b.send(q)
	}
}

// put puts a job into its queue's chunk. Its result has place i.
func (b *bulk) put(i int, j *encoded) {
	q := b.queue(j.options)
	b.results[i].queue = q.lanes.queue
	if j.created.IsValid() && len(q.links) < maxLinks {
		q.links = append(q.links, trace.Link{SpanContext: j.created})
	}
	c := b.fill(q)
	c.items = append(c.items, j.Item)
	c.index = append(c.index, i)
	c.bytes += j.Size()
	if j.incarnation != 0 || j.options.drawn {
		c.drawn = append(c.drawn, drawn{i, j.incarnation, j.options.drawn})
	}
	if b.measured {
		c.kinds, c.names = c.kinds.add(j.kind), append(c.names, j.kind)
	}
	if b.stream == nil && len(c.items) == b.room(q) {
		b.send(q)
	}
}

// room returns how many jobs the queue's chunk may have. The chunks of a large bulk begin small, so that Redis works on
// the first jobs while the next ones are encoded. Encoding a job takes about half as long as enqueuing it. So each
// chunk is ready before Redis has finished the one before.
func (b *bulk) room(q *bulkQueue) int {
	if !b.ramps {
		return store.MaxBatch
	}
	return rampOf(q.chunks)
}

// rampOf returns how many jobs the next chunk of a large bulk may have, after so many chunks.
func rampOf(chunks int) int { return min(firstChunk<<min(chunks, 8), store.MaxBatch) }

func (b *bulk) queue(o *options) *bulkQueue {
	to := destination{o.queue, o.durable, o.waits}
	if q := b.current; q != nil && q.destination == to {
		return q
	}
	q := b.queues[to]
	if q == nil {
		q = &bulkQueue{name: o.queue, destination: to, lanes: b.s.to(to)}
		b.queues[to] = q
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
	c.into, q.chunk = b.results, nil
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
	ran := err == nil || errors.Is(err, ErrNotDurable)
	if ran && c.queue.waits && c.full() {
		c.refusal = b.await(c)
	}
	if !ran || !c.full() {
		c.measure(err)
	}
	switch {
	case err != nil:
		b.fail(c, err)
		if ran {
			b.take(c)
		}
		if c.left {
			return // the call owns the chunk
		}
	default:
		b.take(c)
	}
	clear(c.items)
	*c = chunk{request: request{items: c.items[:0], fates: c.fates, done: c.done}, index: c.index[:0], kinds: c.kinds[:0], names: c.names[:0], drawn: c.drawn[:0]}
	b.spare = append(b.spare, c)
}

// take sets the results of a chunk that Redis has run.
func (b *bulk) take(c *chunk) {
	others := c.met
	for j, i := range c.index {
		other := store.Met{}
		if len(others) > 0 && others[0].item == j {
			other, others = others[0].Met, others[1:]
		}
		if res := &c.into[i]; res.take(c.fates[j], other) {
			c.queue.met = append(c.queue.met, res)
		}
	}
	if c.full() {
		b.refuse(c)
	}
}

// fail sets the error of a chunk's jobs, and of all later jobs for its queue.
func (b *bulk) fail(c *chunk, err error) {
	c.failAll(err, func(int) bool { return true })
	if c.queue.err == nil {
		c.queue.err = err
	}
}

// failAll sets the error of those jobs of a chunk that failed reports, by their places in it.
func (c *chunk) failAll(err error, failed func(j int) bool) {
	drawn := c.drawn
	for j, i := range c.index {
		incarnation, again := uint64(0), false
		if len(drawn) > 0 && drawn[0].item == i {
			incarnation, again, drawn = drawn[0].incarnation, drawn[0].again, drawn[1:]
		}
		if failed(j) {
			c.into[i].Err = settle(err, c.into[i].ID, incarnation, again)
		}
	}
}

// flush sends the rest and waits for all of it.
func (b *bulk) flush() {
	for _, q := range b.queues {
		if q.chunk != nil {
			b.send(q)
		}
	}
	b.finish(b.queues)
}

// finish waits for all chunks in flight. They are of these queues.
func (b *bulk) finish(queues map[destination]*bulkQueue) {
	for len(b.inFlight) > 0 {
		b.settle()
	}
	for _, q := range queues {
		q.end()
		if len(q.met) > 0 {
			lookUp(b.ctx, q.lanes.queue, q.met, b.s.lookUpFor)
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
	case ctx.Err() != nil && !errors.Is(q.err, signalbox.ErrQueueFull): // that of jobs that waited for room has the context's error as well
		return notSent(ctx)
	case errors.Is(q.err, ErrUncertain), errors.Is(q.err, ErrNotDurable):
		return fmt.Errorf(notEnqueued+"an earlier chunk to queue %s failed: %v", q.name, q.err)
	}
	return fmt.Errorf(notEnqueued+"an earlier chunk to queue %s failed: %w", q.name, q.err)
}
