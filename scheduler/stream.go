package scheduler

import (
	"context"
	"fmt"
	"iter"
)

// EnqueueSeq enqueues the jobs of an iterator, each with opts and its own options. It returns an iterator over the
// results: the number of an item, from 0, and its result, in the order of the items. It needs the same memory for a
// million jobs as for a thousand.
//
//	for i, res := range s.EnqueueSeq(ctx, items, scheduler.Queue("mail")) {
//		if res.Err != nil {
//			return fmt.Errorf("item %d: %w", i, res.Err)
//		}
//	}
//
// The loop does the work: without a loop nothing is enqueued, and a second loop over the same result enqueues
// everything a second time.
//
// The jobs go in chunks of at most 950 jobs (160 that have a group or a unique key, or may expire) and about 1 MiB, as one call for each queue that a chunk has jobs for. A
// chunk is sent when the loop has had all results of the chunk before, and while it is under way the next one is
// encoded. So:
//
//   - A loop that is left sends nothing more. Each job that was sent has had its result, or is in the chunk of the
//     result at which the loop was left.
//   - If the process dies, at most one chunk has been sent whose results the loop has not had.
//
// To resume after a crash, save the number of the last result, and begin with the item after it. Jobs of one chunk may
// then be sent a second time. Give each of them [ID], [EffectKey] and [IfAbsent], made from its item: a job that still
// has a record is left out, and one that has completed has its effect once.
//
// An item that fails has its error in its result, and the others go on. That is also so for a chunk that fails: leave
// the loop if there is no sense in going on. If ctx ends, the results of the jobs that were taken from items and not
// sent have its error, and the loop ends. So if it ends without an error in any result, all jobs are in. If opts are
// wrong, there is one result, with the error, and no item is taken. The kinds of errors are those of [Scheduler.Enqueue].
//
// A job waits until its chunk is full. So EnqueueSeq is for items that are there, not for those that come in one by one.
// In a trace each job has a span "create {queue}", and each call a span "enqueue {queue}".
func (s *Scheduler) EnqueueSeq(ctx context.Context, items iter.Seq[Item], opts ...BulkOption) iter.Seq2[int, Result] {
	return func(yield func(int, Result) bool) {
		b, err := s.newBulk(ctx, opts)
		if err != nil {
			yield(0, Result{Err: fmt.Errorf("scheduler: no job enqueued: %w", err)})
			return
		}
		st := &stream{bulk: b, yield: yield, sentQueues: make(map[destination]*bulkQueue)}
		b.stream = st
		for it := range items {
			b.add(&it)
			if ended := ctx.Err() != nil; ended || len(b.results) >= rampOf(st.chunks) {
				st.next()
				if ended {
					break
				}
			}
			if st.left {
				return
			}
		}
		if len(b.results) > 0 {
			st.next()
		}
		st.deliver()
	}
}

// stream is an EnqueueSeq in progress. It has two chunks: one is filled, in bulk, while the other one is in flight. A
// chunk here is one for all queues, and has a chunk of its own for each of them.
type stream struct {
	*bulk
	yield  func(int, Result) bool
	left   bool // the caller has left the loop
	count  int  // results that the caller has had
	chunks int  // sent
	bytes  int  // of the jobs that are in the chunk that is filled

	sent       []Result // of the chunk in flight
	sentQueues map[destination]*bulkQueue
}

// makeRoom sends the chunk if a job of this size doesn't fit.
func (st *stream) makeRoom(size int) {
	if st.bytes > 0 && st.bytes+size > maxCallBytes {
		st.next()
	}
	st.bytes += size
}

// next hands over the results of the chunk in flight. Then it sends the chunk that was filled, and begins another one.
func (st *stream) next() {
	st.deliver()
	for _, q := range st.queues {
		if q.chunk != nil && !st.left {
			st.send(q)
		}
	}
	st.chunks++
	st.bytes, st.current = 0, nil
	st.sent, st.results = st.results, st.sent[:0]
	st.sentQueues, st.queues = st.queues, st.sentQueues
}

// deliver waits for the chunk in flight, and hands over its results.
func (st *stream) deliver() {
	st.finish(st.sentQueues)
	clear(st.sentQueues)
	for _, res := range st.sent {
		if st.left {
			break
		}
		st.left = !st.yield(st.count, res)
		st.count++
	}
	clear(st.sent)
	st.sent = st.sent[:0]
}
