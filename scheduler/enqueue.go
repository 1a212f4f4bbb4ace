package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// A Result is what became of one job.
type Result struct {
	ID  string // may be "" if an argument or an option was wrong
	New bool   // false: a job of this ID was there before, and is left as it was
	Err error  // of EnqueueMany: why this job is not in, or may not be
}

// Enqueue puts one job in and returns when Redis has it. The package documentation
// tells the kinds of errors. If ctx ends before a call to Redis took the job, it is not enqueued;
// if it ends later, the error wraps [ErrUncertain] beside the context's, and the
// result has the ID with which the call can be made again.
func (s *Scheduler) Enqueue(ctx context.Context, args signalbox.Args, opts ...Option) (Result, error) {
	o, optErr := defaults.with(inEnqueue, s.trace.reserved, opts)
	kind, payload, err := encode(args)
	if err != nil || optErr != nil {
		return Result{}, fmt.Errorf("scheduler: enqueue: %w", errors.Join(optErr, err))
	}
	id := o.id
	if id == "" {
		id = store.NewID()
	}
	ctx, span := s.trace.start(ctx, id, kind, o)
	watch := s.watch()
	isNew, err := s.enqueue(ctx, id, kind, payload, o)
	watch.sent(ctx, o.queue, kind, 1, err)
	watch.took(ctx, o.queue, err)
	end(span, err)
	if err != nil {
		return Result{ID: id}, fmt.Errorf("scheduler: enqueue in queue %s, job ID %s: %w", o.queue, id, err)
	}
	return Result{ID: id, New: isNew}, nil
}

func (s *Scheduler) enqueue(ctx context.Context, id, kind string, payload []byte, o *options) (isNew bool, err error) {
	if ctx.Err() != nil {
		return false, notSent(ctx)
	}
	job := o.job(id, kind, payload)
	job.Headers = s.trace.inject(ctx, o.headers, o.mode)
	item, err := store.NewItem(&job, o.when)
	if err != nil {
		return false, err
	}
	r := singles.Get().(*request)
	r.single[0] = item
	r.items, r.fresh, r.bytes = r.single[:], r.singleNew[:], item.Size()
	c := s.lanes(o.queue)
	c.submit(r)
	switch done, sent := c.wait(ctx, r); {
	case done:
		isNew, err = r.singleNew[0], r.err
	case sent:
		return false, c.blame(cut(ctx)) // the request stays the call's
	default:
		err = c.blame(notSent(ctx))
	}
	r.single[0], r.err, r.taken = store.Item{}, nil, false
	singles.Put(r)
	return isNew, err
}

// singles are requests of one job that nobody uses any more.
var singles = sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }}

func (o *options) job(id, kind string, payload []byte) signalbox.Job {
	return signalbox.Job{
		ID:          id,
		Kind:        kind,
		Queue:       o.queue,
		Payload:     payload,
		Priority:    o.priority,
		MaxAttempts: o.maxAttempts,
		Timeout:     o.timeout,
	}
}

func notSent(ctx context.Context) error { return fmt.Errorf("not enqueued: %w", ended(ctx)) }

func cut(ctx context.Context) error { return uncertain(ended(ctx)) }
