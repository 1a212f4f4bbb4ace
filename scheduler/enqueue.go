package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// Enqueue enqueues one job. It returns when Redis has the job. The package documentation lists the kinds of errors.
//
// Enqueue returns at the latest when ctx ends, or after Config.EnqueueTimeout if ctx has no deadline. If the job was
// sent to Redis by then, the error is an [*UncertainError]. If not, the job is not enqueued, and never will be by this
// call. Every error of a call with [UncertainError.Again] is an *UncertainError, since the call before may have
// enqueued the job.
//
// If a job with the same ID is scheduled, ready or running, Enqueue leaves it as it is: New is false, and State says
// which. A dead or cancelled one is replaced; see [ID] and [IfAbsent].
func (s *Scheduler) Enqueue(ctx context.Context, args signalbox.Args, opts ...EnqueueOption) (Result, error) {
	k, kind, payload, err := marshal(args, s.codec)
	o, optErr := resolve(k, s.trace.reserved, opts)
	if err != nil || optErr != nil {
		return Result{}, fmt.Errorf("scheduler: enqueue: %w", o.settle(errors.Join(optErr, err), o.id, o.incarnation))
	}
	id := o.id
	if id == "" {
		id = store.NewID()
	}
	incarnation := o.incarnationOf()
	ctx, span := s.trace.start(ctx, id, kind, o)
	watch := s.watch()
	fate, other, q, err := s.enqueue(ctx, id, kind, incarnation, args, payload, o)
	watch.sent(ctx, o.queue, kind, 1, err)
	watch.took(ctx, o.queue, err)
	end(span, err)
	if err != nil && !errors.Is(err, ErrNotDurable) {
		return Result{ID: id, queue: q}, fmt.Errorf("scheduler: enqueue in queue %s, job ID %s: %w", o.queue, id, o.settle(err, id, incarnation))
	}
	res := Result{ID: id, queue: q}
	if res.take(fate, other) {
		s.lookUp(ctx, o.queue, &res)
	}
	if err != nil {
		return res, fmt.Errorf("scheduler: enqueue in queue %s, job ID %s: %w", o.queue, id, o.settle(err, id, incarnation))
	}
	return res, nil
}

// lookUp sets the state of the job that was met. It is a separate function so that Enqueue's result stays on the stack.
func (s *Scheduler) lookUp(ctx context.Context, queue string, res *Result) {
	found := *res
	lookUp(ctx, s.lanes(queue).queue, []*Result{&found}, s.lookUpFor)
	res.State = found.State
}

func (s *Scheduler) enqueue(ctx context.Context, id, kind string, incarnation uint64, args signalbox.Args, payload []byte, o *options) (store.Fate, store.Met, *store.Queue, error) {
	if ctx.Err() != nil {
		return 0, store.Met{}, nil, notSent(ctx)
	}
	job := o.job(id, kind, payload)
	job.Incarnation, job.Born = incarnation, o.born()
	job.Headers = s.trace.inject(ctx, o.headers, o.mode)
	item, err := s.item(&job, args, o)
	if err != nil {
		return 0, store.Met{}, nil, err
	}
	c := s.to(destination{queue: o.queue, durable: o.durable})
	fate, other, err := s.put(ctx, c, item)
	if o.waits && errors.Is(err, signalbox.ErrQueueFull) {
		err = s.awaitRoom(ctx, c.queue, err, func() (err error) {
			fate, other, err = s.put(ctx, c, item)
			return err
		})
	}
	return fate, other, c.queue, err
}

// put sends one job. If the queue is full, the error says so.
func (s *Scheduler) put(ctx context.Context, c *combiner, item store.Item) (store.Fate, store.Met, error) {
	r := s.singles.Get().(*request)
	r.single[0] = item
	r.items, r.fates, r.bytes = r.single[:], r.singleFate[:], item.Size()
	c.submit(ctx, r)
	var err error
	switch done, maybe := c.wait(ctx, r); {
	case done:
		err = r.err
	case maybe:
		err = c.blame(cut(ctx))
	default:
		err = c.blame(notSent(ctx))
	}
	fate, other := r.singleFate[0], store.Met{}
	if fate == store.Full && (err == nil || errors.Is(err, ErrNotDurable)) {
		err = c.refused(r)
	}
	if len(r.met) > 0 {
		other = r.met[0].Met
	}
	if !r.left { // otherwise the call owns it
		r.single[0], r.met, r.err, r.lane, r.until = store.Item{}, nil, nil, nil, time.Time{}
		s.singles.Put(r)
	}
	return fate, other, err
}

// newSingle returns a request of one job for Scheduler.singles.
func newSingle() any { return &request{done: make(chan struct{}, 1)} }

func (o *options) job(id, kind string, payload []byte) signalbox.Job {
	return signalbox.Job{
		ID:          id,
		Kind:        kind,
		Queue:       o.queue,
		Payload:     payload,
		Priority:    o.priority,
		MaxAttempts: o.maxAttempts,
		Timeout:     o.timeout,
		Effect:      o.effect,
		Retain:      o.retain,
		ExpireAfter: o.expire,
		Deadline:    o.deadline,
		Group:       o.group,
		Serial:      o.serial,

		YieldOnRetry: o.yields && o.serial,
	}
}

// born returns when the job is to run first, or the zero time if that is now.
func (o *options) born() time.Time {
	switch {
	case o.when.After > 0:
		return time.Now().Add(o.when.After).Truncate(time.Microsecond)
	case !o.when.At.IsZero() && o.when.At.After(time.Now()):
		return o.when.At.Truncate(time.Microsecond)
	}
	return time.Time{}
}

// An unsentError is that of a job that was not sent before the context of its call ended, or its time was over.
type unsentError struct{ err error }

func (e unsentError) Error() string { return notEnqueued + e.err.Error() }

func (e unsentError) Unwrap() error { return e.err }

func notSent(ctx context.Context) error { return unsentError{ended(ctx)} }

func cut(ctx context.Context) error { return uncertain(ended(ctx)) }

// maxLookUp bounds how long a call looks up whether the jobs that it met are ready or running.
const maxLookUp = time.Second

// A Result says what happened to one job.
type Result struct {
	// ID is the job's ID. It may be "" if an argument or an option was wrong.
	ID string
	// New reports whether the job was enqueued. If it is false and there was no error, Existing has the ID, or the unique key.
	New bool
	// Updated reports whether the job Existing has got what this one has: see [Replace]. Then New is false.
	Updated bool
	// Existing is the ID of the job that kept this one out. It is the same as ID if that job has the ID. If that job has the unique key (see
	// [Unique]), it is mostly another ID. It is "" if New is true.
	Existing string
	// State is the state of the job Existing: scheduled, ready or running, and with [IfAbsent] or a [Window] also dead, cancelled or completed.
	// Whether it is ready or running is read a moment after the call. The job may have moved on by then. A job that awaits its batch counts
	// as ready. State is ""
	// if New is true, if the state couldn't be read, or if nothing is left of the job, and only its window lasts.
	State signalbox.State
	// Replaced is the state of the job that this one replaced: dead, cancelled or completed. It is "" if there was none.
	Replaced signalbox.State
	// Err says why this job is not enqueued, or may not be. Only [Scheduler.EnqueueMany] and [Scheduler.EnqueueSeq] set it.
	Err error

	queue *store.Queue // of the job; nil: nothing was to be sent
}

// take sets the result from f, and from the job that has the unique key if f says so. It reports whether the job met a live one that is ready or
// running. lookUp finds out which of the two.
func (r *Result) take(f store.Fate, other store.Met) (live bool) {
	if r.New = f.In(); !r.New && f != store.Full {
		r.Existing = r.ID
	}
	switch f {
	case store.ReplacedDead:
		r.Replaced = signalbox.StateDead
	case store.ReplacedCancelled:
		r.Replaced = signalbox.StateCancelled
	case store.ReplacedCompleted:
		r.Replaced = signalbox.StateCompleted
	case store.MetScheduled:
		r.State = signalbox.StateScheduled
	case store.MetDead:
		r.State = signalbox.StateDead
	case store.MetCancelled:
		r.State = signalbox.StateCancelled
	case store.MetCompleted:
		r.State = signalbox.StateCompleted
	}
	r.Updated = f == store.Updated
	if f == store.MetKey || r.Updated {
		r.Existing, r.State = other.ID, other.State
	}
	return f == store.MetLive || other.Live
}

// lookUp sets whether the jobs that were met are ready or running. If Redis doesn't answer within that time, their
// state stays "": the enqueue itself has succeeded.
func lookUp(ctx context.Context, q *store.Queue, met []*Result, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	ids := make([]string, len(met))
	for i, r := range met {
		ids[i] = r.Existing
	}
	answers := make(chan []bool, len(ids)/store.MaxBatch+1) // room for all: the goroutine must never block
	go func() {                                             // since the client may not heed ctx
		defer close(answers)
		for some := range slices.Chunk(ids, store.MaxBatch) {
			running, err := q.Looks().Running(ctx, some)
			if err != nil {
				return
			}
			answers <- running
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case running, ok := <-answers:
			if !ok {
				return
			}
			for i, is := range running {
				met[i].State = signalbox.StateReady
				if is {
					met[i].State = signalbox.StateRunning
				}
			}
			met = met[len(running):]
		}
	}
}
