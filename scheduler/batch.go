package scheduler

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/facts"
)

var (
	// ErrBatchOver is wrapped by the error of a call that adds to a batch which is over, or was cancelled; or that would add more than it had when it was sealed, other than from a member.
	ErrBatchOver = errors.New("scheduler: the batch is over")
	// ErrNoBatch is wrapped by the error of a call for a batch of which nothing is known, or which lacks jobs that were added: it has been over for a day, or Redis has lost it, or a part of it.
	ErrNoBatch = errors.New("scheduler: no such batch")
	// ErrOtherItems is wrapped by the error of a call that adds to a batch, if an earlier program has given it other jobs in their place: see [FlowID].
	ErrOtherItems = errors.New("scheduler: the batch has got other jobs before")
)

// MaxBatchCall is how many jobs go into a batch in one call to Redis.
const MaxBatchCall = store.MaxMembers

// A Batch is a set of jobs whose ends are counted together. Its jobs, the members, run at once, as any other jobs. [OnSuccess], [OnEnd] and [OnFailure] give jobs, the callbacks, that wait for it. The script in Redis
// that ends the last member has the callbacks run: nothing polls, and nothing is lost if a process dies.
//
// [Scheduler.Batch] makes one, Add and AddSeq add to it, and Seal says that its producer adds no more. [BatchOf] returns the batch of a member to its handler, which may add to it too. It is safe for concurrent use.
type Batch struct {
	s       *Scheduler
	queue   string
	store   *store.Queue
	ref     facts.FlowRef
	resumed bool

	turn   chan struct{} // of the producer's calls, one after the other: it has room for one, whose turn it is
	lane   *store.Lane
	given  atomic.Int64      // how many jobs the calls so far have given
	digest [sha256.Size]byte // of these

	member parcelseam.Member // of a member's batch; else nil
}

// ID returns the batch's ID: that of [FlowID], or the one that was drawn.
func (b *Batch) ID() string { return b.ref.Name }

// Queue returns the queue that the batch is in.
func (b *Batch) Queue() string { return b.queue }

// Resumed reports whether the batch was there when [Scheduler.Batch] was called: a program before this one has made it, and may have added to it, sealed it, or died. See [FlowID].
func (b *Batch) Resumed() bool { return b.resumed }

// Batch makes a batch in a queue. All of its jobs are of that queue, also its callbacks. It must be sealed, see [Batch.Seal].
//
// A batch with an ID that is there already is that one: see [FlowID]. The options of the call have no effect then.
//
// The error wraps [signalbox.ErrInvalid] if an option is wrong, and [signalbox.ErrQueueFull] if the queue has no room for the callbacks: those count as jobs from the beginning. Any other error is that of Redis. If it
// wraps [ErrUncertain] the batch may have been made: call Batch again with the same FlowID. A batch that nobody seals is cancelled in time.
//
// A batch is remembered for a day after it is over; for 30 days if a callback is dead or cancelled, and may be run again: that of a batch that was cancelled may not.
func (s *Scheduler) Batch(ctx context.Context, queue string, opts ...BatchOption) (*Batch, error) {
	b, err := s.batch(ctx, queue, opts)
	if err != nil {
		return nil, fmt.Errorf("scheduler: batch in queue %s: %w", queue, err)
	}
	return b, nil
}

func (s *Scheduler) batch(ctx context.Context, queue string, opts []BatchOption) (*Batch, error) {
	o, err := batchOptionsOf(queue, opts)
	if err != nil {
		return nil, err
	}
	lanes := s.lanes(queue)
	ref := facts.FlowRef{Name: o.id, Mark: store.NewFlowMark()}
	callbacks := make([]store.Callback, len(o.callbacks))
	for i, c := range o.callbacks {
		item, err := s.callback(ctx, queue, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.option, err)
		}
		if slices.ContainsFunc(callbacks[:i], func(other store.Callback) bool { return other.Item.ID() == item.ID() }) {
			return nil, fmt.Errorf("%s: %w ID %s: another callback of the batch has it; give each an ID of its own, or leave the option out", c.option, signalbox.ErrInvalid, item.ID())
		}
		callbacks[i] = store.Callback{Role: c.role, Item: item}
	}
	var f facts.Flow
	anew := false
	err = s.repeat(ctx, func(ctx context.Context) (err error) {
		f, anew, err = lanes.queue.Flows().Create(ctx, ref, o.terms, callbacks)
		return err
	})
	if taken, ok := errors.AsType[*store.FlowTaken](err); ok {
		return nil, fmt.Errorf("%w callback: there is a job with the ID %s; delete it, or leave the option ID out", signalbox.ErrInvalid, taken.ID)
	}
	if err != nil {
		return nil, err
	}
	if anew {
		lanes.list(true)
	}
	return &Batch{s: s, queue: queue, store: lanes.queue, ref: f.FlowRef, resumed: f.Mark != ref.Mark, lane: lanes.queue.NewLane(), turn: make(chan struct{}, 1)}, nil
}

// callback makes a job that waits for a batch.
func (s *Scheduler) callback(ctx context.Context, queue string, c callback) (store.Item, error) {
	o, kind, payload, err := s.ofBatch(queue, c.args, c.opts)
	if err != nil {
		return store.Item{}, err
	}
	if o.isUnique() {
		return store.Item{}, fmt.Errorf("%w unique key: a batch has its callback once; leave the option out", signalbox.ErrInvalid)
	}
	if o.when != (store.When{}) {
		return store.Item{}, fmt.Errorf("%w At or After: a callback is due when its batch says so; leave the option out", signalbox.ErrInvalid)
	}
	return s.itemOfBatch(ctx, o, kind, payload, c.args)
}

// ofBatch resolves the options of a job of a batch.
func (s *Scheduler) ofBatch(queue string, args signalbox.Args, opts []EnqueueOption) (*options, string, []byte, error) {
	k, kind, payload, err := marshal(args, s.codec)
	base := defaults
	base.queue = queue
	o := base.begin()
	if k != (kindDefaults{}) {
		o.take(k)
		o.queue = queue // the default is for jobs of no batch
	}
	if err := errors.Join(o.apply(s.trace.reserved, opts), err); err != nil {
		return nil, "", nil, err
	}
	switch {
	case o.queue != queue:
		err = fmt.Errorf("%w Queue: %s; all jobs of a batch are of its queue, which is %s", signalbox.ErrInvalid, o.queue, queue)
	case o.durable != (store.Durability{}):
		err = fmt.Errorf("%w WaitReplicas or WaitAOF: jobs of batches don't wait for that; leave the option out", signalbox.ErrInvalid)
	case o.replace:
		err = fmt.Errorf("%w Replace or Debounce: a job of a batch takes no other one's place; leave the option out", signalbox.ErrInvalid)
	}
	return o, kind, payload, err
}

// itemOfBatch makes the record of a job of a batch. It has no link yet.
func (s *Scheduler) itemOfBatch(ctx context.Context, o *options, kind string, payload []byte, args signalbox.Args) (store.Item, error) {
	id := o.id
	if id == "" {
		id = store.NewID()
	}
	job := o.job(id, kind, payload)
	job.Incarnation, job.Born = o.incarnationOf(), o.born()
	ctx, span := s.trace.start(ctx, id, kind, o)
	job.Headers = s.trace.inject(ctx, o.headers, o.mode)
	item, err := s.item(&job, args, o)
	end(span, err)
	return item, err
}

// BatchOf returns the batch that the job whose handler calls it is a member of. ok is false if it is a member of none: then Add and Seal of the Batch return an error.
//
// The handler may add jobs to it while it runs; they are members as well, so the batch isn't over before they have ended. Jobs are added at once, under the fencing token of the delivery: a delivery that was superseded adds none.
// They are numbered in the order in which the handler adds them. If the handler runs again, those that it added before are left out: so it must add the same jobs in the same order, or more. Without the option [ID] their IDs
// are that of the job, a plus sign and the number. A digest stands for a job's ID of more than 64 bytes. If Redis has lost some of them, Add returns an error that wraps [ErrNoBatch]: the handler returns it, and adds them when it runs again.
func BatchOf(ctx context.Context) (b *Batch, ok bool) {
	m, ok := ctx.Value(parcelseam.MemberKey{}).(parcelseam.Member)
	if !ok {
		return &Batch{}, false
	}
	return &Batch{queue: m.Queue().Name(), ref: m.Of(), member: m, resumed: true}, true
}

// errNotOfBatch says that the context of a BatchOf was not that of a member.
var errNotOfBatch = fmt.Errorf("%w ctx: its job is a member of no batch; look at what BatchOf says", signalbox.ErrInvalid)

// Add adds a job to the batch. args and opts are those of [Scheduler.Enqueue], with these differences:
//
//   - The queue is that of the batch. Another one is an error; that of the kind's defaults has no effect.
//   - [Replace], [Debounce], [WaitReplicas] and [WaitAOF] are errors.
//   - A job that another one keeps out, by its ID or its unique key, isn't counted: New of the result is false.
//
// The calls of a batch are made one after the other: Add waits for an [Batch.AddSeq] that goes on, or until ctx ends. So neither the loop nor the iterator of an AddSeq can call Add: it would wait for itself. For many jobs use AddSeq.
//
// The error wraps [ErrBatchOver] if the batch is over or sealed, [ErrNoBatch] if it isn't there, [ErrOtherItems] if it was resumed with other jobs, [signalbox.ErrQueueFull] if the queue has no room, and [signalbox.ErrSuperseded] if it is the
// batch of a member whose delivery is over. If it wraps [ErrUncertain] the job may be in: call Add again with the same job. In any other case it is not.
func (b *Batch) Add(ctx context.Context, args signalbox.Args, opts ...EnqueueOption) (Result, error) {
	var result Result
	for _, res := range b.AddSeq(ctx, func(yield func(Item) bool) { yield(Item{Args: args, Options: opts}) }) {
		result = res
	}
	err := result.Err
	result.Err = nil
	return result, err
}

// AddSeq adds the jobs of an iterator, each with opts and its own options. It returns an iterator over the results: the number of an item, from 0, and its result, in the order of the items. The loop does the work.
//
//	for i, res := range b.AddSeq(ctx, items) {
//		if res.Err != nil {
//			return fmt.Errorf("item %d: %w", i, res.Err)
//		}
//	}
//
// The jobs go in chunks of at most [MaxBatchCall] jobs and about 1 MiB. Each is one call, which goes in as a whole, or not at all. Members run as soon as their chunk is in. If a chunk fails, its jobs have the error, and the loop ends.
//
// Of jobs that a program before this one has added already, see [FlowID], New is false and Existing is "". The options and errors are those of [Batch.Add]. An item that can't be made, as its arguments are wrong, ends the loop, too: the
// chunk before it goes in. [WaitForRoom] has a chunk wait for room, and go in as there is some.
func (b *Batch) AddSeq(ctx context.Context, items iter.Seq[Item], opts ...BulkOption) iter.Seq2[int, Result] {
	return func(yield func(int, Result) bool) {
		a, err := b.begin(ctx, singly(opts))
		if err != nil {
			yield(0, Result{Err: fmt.Errorf("scheduler: add to batch: %w", err)})
			return
		}
		defer a.end()
		first := 0
		flush := func() bool {
			results, err := a.flush()
			for i := range results {
				if !yield(first+i, results[i]) {
					return false
				}
			}
			first += len(results)
			return err == nil
		}
		for it := range items {
			item, err := a.make(&it)
			if err == nil && a.full(&item) && !flush() {
				return
			}
			if err != nil {
				if flush() {
					yield(first, Result{Err: a.failure(err)})
				}
				return
			}
			a.put(item)
		}
		if len(a.chunk) > 0 {
			flush()
		}
	}
}

// Seal says that the producer adds no more. The batch is over when all of its members have ended: at once if it has none. It may be called again, and does nothing to a batch that was cancelled: that counts as sealed. Until then [OnSuccess] and [OnEnd] wait; [OnFailure] doesn't.
//
// A batch whose producer has neither added to it nor sealed it for an hour (see [SealWithin]) is cancelled: its members that haven't run are ended, and OnEnd runs. So a producer that dies leaves nothing that waits for ever.
//
// The error wraps [ErrNoBatch] if there is no such batch, or Redis has lost jobs that were added to it: begin anew. It wraps [ErrOtherItems] if the batch was resumed, and an earlier program has added more than this one, which has added some: see [FlowID].
// It wraps [signalbox.ErrInvalid] if it is the batch of a member. Any other one is that of Redis: seal it again.
func (b *Batch) Seal(ctx context.Context) error {
	if b.store == nil {
		return fmt.Errorf("scheduler: seal: %w batch: that of BatchOf is sealed by its producer", signalbox.ErrInvalid)
	}
	var f facts.Flow
	sealing := store.Sealing{Given: b.given.Load(), Again: b.resumed}
	err := b.s.repeat(ctx, func(ctx context.Context) error {
		var err error
		f, err = b.store.Flows().Seal(ctx, b.ref, sealing)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNoFlow):
		err = ErrNoBatch
	case errors.Is(err, store.ErrFlowGap):
		err = errGap
	case errors.Is(err, store.ErrFlowFewer):
		err = fmt.Errorf("%w: %d, and this program has given it %d; give it the same jobs in the same order when it is resumed, or use another FlowID", ErrOtherItems, f.Given, sealing.Given)
	}
	if err != nil {
		return fmt.Errorf("scheduler: seal batch %s in queue %s: %w", b.ref.Name, b.queue, err)
	}
	return nil
}

// repeat makes a call that can be made again, until its outcome is known, or ctx ends.
func (s *Scheduler) repeat(ctx context.Context, call func(context.Context) error) error {
	if ctx.Err() != nil {
		return notSent(ctx)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		timeout := s.timeout
		if timeout == 0 {
			timeout = defaultEnqueueTimeout
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	doubt := false
	for n := 0; ; n++ {
		err := call(ctx)
		if err == nil || errors.Is(err, signalbox.ErrInvalid) || judge(err) == final || isWord(err) {
			if err == nil || isWord(err) {
				return err
			}
			if doubt {
				return uncertain(explain(err))
			}
			return explain(err)
		}
		doubt = doubt || doubtful(err)
		pause := time.NewTimer(backoff(n))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if doubt {
				return uncertain(fmt.Errorf("%w: %w", ended(ctx), explain(err)))
			}
			return fmt.Errorf("%w: %w", notSent(ctx), explain(err))
		}
	}
}

// isWord reports whether an error is an answer of a script about a batch.
func isWord(err error) bool {
	_, taken := errors.AsType[*store.FlowTaken](err)
	return taken || errors.Is(err, store.ErrNoFlow) || errors.Is(err, store.ErrFlowGap) || errors.Is(err, store.ErrFlowFewer) || errors.Is(err, signalbox.ErrQueueFull)
}

// chained returns the digest of what a batch has got, with one more job: its kind, its payload, and its ID if the caller has chosen it. A codec may make another payload of the same arguments each time. Then they are encoded as JSON for it.
func chained(before [sha256.Size]byte, kind, id string, payload []byte, args signalbox.Args) [sha256.Size]byte {
	if payload == nil {
		payload, _ = json.Marshal(args) // what can't be encoded so has the kind alone
	}
	text := append(before[:], kind...)
	text = append(append(text, 0), id...)
	text = append(append(text, 0), payload...)
	return sha256.Sum256(text)
}

// digestText returns a digest as calls have it.
func digestText(sum [sha256.Size]byte) string {
	return strconv.FormatUint(binary.BigEndian.Uint64(sum[:]), 36)
}
