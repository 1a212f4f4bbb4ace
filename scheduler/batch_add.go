package scheduler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
)

// An addition is an AddSeq in progress.
type addition struct {
	b     *Batch
	ctx   context.Context
	s     *Scheduler // that makes the jobs
	queue *store.Queue
	opts  []EnqueueOption

	maker string // of a member: its ID
	place int    // of a member: how many jobs its delivery has added before the chunk

	chunk []added
	size  int               // of the chunk, in bytes
	waits bool              // for room
	sum   [sha256.Size]byte // the digest of all that was given, with the chunk
}

// begin begins an AddSeq. Others wait until it ends, or their ctx does.
func (b *Batch) begin(ctx context.Context, opts []EnqueueOption) (*addition, error) {
	a := &addition{b: b, ctx: ctx, s: b.s, queue: b.store, opts: opts}
	if b.member == nil {
		if b.store == nil {
			return nil, errNotOfBatch
		}
		select {
		case b.turn <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: another AddSeq of the batch goes on", notSent(ctx))
		}
		a.sum = b.digest
		return a, nil
	}
	if err := b.member.Lock(ctx); err != nil {
		return nil, fmt.Errorf("%w: another AddSeq of the batch goes on", notSent(ctx))
	}
	origin, err := b.member.Enter()
	if err == nil {
		a.s, err = makerOf(origin)
	}
	if err != nil {
		b.member.Unlock()
		return nil, err
	}
	a.maker, a.place = origin.Maker.ID, origin.Place
	a.queue = store.New(nil, origin.Namespace, origin.Maker.Queue)
	return a, nil
}

// end ends it.
func (a *addition) end() {
	if a.b.member != nil {
		a.b.member.Unlock()
		return
	}
	<-a.b.turn
}

// An added job is one that is to go into the batch.
type added struct {
	store.Item
	kind  string
	waits bool
	sum   [sha256.Size]byte
}

// make makes a job of the batch.
func (a *addition) make(it *Item) (j added, err error) {
	o, kind, payload, err := a.s.ofBatch(a.queue.Name(), it.Args, append(a.opts[:len(a.opts):len(a.opts)], it.Options...))
	if err != nil {
		return added{}, err
	}
	j = added{kind: kind, waits: o.waits, sum: chained(a.sum, kind, o.id, payload, it.Args)}
	if a.maker != "" && o.id == "" {
		o.id = memberID(a.maker, a.place+len(a.chunk)+1)
	}
	if j.Item, err = a.s.itemOfBatch(a.ctx, o, kind, payload, it.Args); err != nil {
		return added{}, err
	}
	j.Join(a.b.ref)
	return j, nil
}

// maxMakerID is the longest ID of a member, in bytes, that stands in the IDs of the jobs that it adds. IDs would else grow from page to page, and a chain of 90 have no ID any more.
const maxMakerID = 64

// memberID returns the ID of the job of this number that a member adds: its own ID, or a digest of that if it is long, a '+' and the number.
func memberID(maker string, number int) string {
	if len(maker) > maxMakerID {
		sum := sha256.Sum256([]byte(maker))
		maker = hex.EncodeToString(sum[:16])
	}
	return maker + "+" + strconv.Itoa(number)
}

// full reports whether the chunk has no room for the job.
func (a *addition) full(j *added) bool {
	return len(a.chunk) == MaxBatchCall || len(a.chunk) > 0 && a.size+j.Size() > maxCallBytes
}

// put puts a job into the chunk.
func (a *addition) put(j added) {
	a.chunk, a.size, a.sum = append(a.chunk, j), a.size+j.Size(), j.sum
	a.waits = a.waits || j.waits
}

// flush sends the chunk, and returns its results. The error is that of those that have none.
func (a *addition) flush() ([]Result, error) {
	results := make([]Result, len(a.chunk))
	for i := range results {
		results[i] = Result{ID: a.chunk[i].ID(), queue: a.queue}
	}
	done, err := a.deliver(results)
	if err != nil {
		err = a.failure(err)
	}
	for i := done; i < len(results); i++ {
		results[i].Err = err
	}
	a.place += len(a.chunk)
	a.chunk, a.size = a.chunk[:0], 0
	return results, err
}

// deliver sends the chunk, and fills in the results. It returns how many jobs are done. A chunk is one call. One that waits for room is as many as it takes: each
// puts in what there is room for. So it waits only while the queue is full: then what makes room tells it.
func (a *addition) deliver(results []Result) (done int, err error) {
	waits := a.waits && a.b.member == nil
	most := len(results) // jobs of a call
	try := func() error {
		for done < len(results) {
			n := min(most, len(results)-done)
			err := a.measured(results[done:done+n], a.chunk[done:done+n])
			full, isFull := errors.AsType[*signalbox.QueueFullError](err)
			switch {
			case isFull && waits && full.Length < full.Max && full.Max-full.Length < n:
				most = full.Max - full.Length
				continue
			case isFull && !waits && full.Max < n:
				return fmt.Errorf("%w; %d jobs go in together or not at all, which never fits: add at most %d at a time, or as a producer use WaitForRoom", err, n, full.Max)
			case err != nil:
				return err
			}
			done, most = done+n, len(results)
		}
		return nil
	}
	err = try()
	if waits && errors.Is(err, signalbox.ErrQueueFull) {
		err = a.s.awaitRoom(a.ctx, a.queue, err, try)
	}
	return done, err
}

// measured is send with the producer's metrics.
func (a *addition) measured(results []Result, chunk []added) error {
	err := a.send(results, chunk)
	if a.b.member == nil {
		var all kinds
		for i := range chunk {
			all = all.add(chunk[i].kind)
		}
		watch := a.s.watch()
		for _, k := range all {
			watch.sent(a.ctx, a.queue.Name(), k.kind, k.n, err)
		}
		watch.took(a.ctx, a.queue.Name(), err)
	}
	return err
}

// failure returns the error of jobs that the batch has not got.
func (a *addition) failure(err error) error {
	return fmt.Errorf("scheduler: add to batch %s in queue %s: %w", a.b.ref.Name, a.queue.Name(), err)
}

// send makes the call for the chunk, until its outcome is known, and fills in the results. If a program before this one has given the first jobs of the chunk, it makes another call for those behind them.
func (a *addition) send(results []Result, chunk []added) error {
	var reply store.Added
	b, skip := a.b, 0 // how many jobs of the chunk were given before
	items := make([]store.Item, len(chunk))
	for i := range chunk {
		items[i] = chunk[i].Item
	}
	sum := chunk[len(chunk)-1].sum
	call := func(ctx context.Context) (err error) {
		reply, err = b.member.Add(ctx, items)
		return err
	}
	next := func() {
		if b.member != nil {
			b.member.Next()
		} else {
			b.lane.Next()
		}
	}
	if b.member == nil {
		call = func(ctx context.Context) (err error) {
			b.lane.Rearm()
			reply, err = a.queue.Flows().Add(ctx, b.lane, &store.Addition{Flow: b.ref, Items: items[skip:], First: b.given.Load() + int64(skip), Digest: digestText(sum)})
			return err
		}
	}
	for {
		next()
		if err := a.s.repeat(a.ctx, call); err != nil {
			return err
		}
		if reply.Word != "part" {
			break
		}
		given := int(reply.Given - b.given.Load())
		if reply.Digest != digestText(chunk[given-1].sum) {
			reply.Word = "other"
			break
		}
		for i := skip; i < given; i++ {
			results[i] = Result{queue: results[i].queue}
		}
		skip = given
	}
	results = results[skip:]
	switch reply.Word {
	case "in":
		others := reply.Fates.Met()
		for i := range results {
			other, fate := store.Met{}, reply.Fates.Of(i)
			if (fate == store.MetKey || fate == store.Updated) && len(others) > 0 {
				other, others = others[0], others[1:]
			}
			results[i].take(fate, other)
		}
	case "was":
		for i := range results {
			results[i] = Result{queue: results[i].queue}
		}
	default:
		if b.member != nil && reply.Word == "gap" {
			return errMemberGap
		}
		return whyNotAdded(reply, a.queue.Name())
	}
	if b.member == nil {
		b.digest = sum
		b.given.Add(int64(skip + len(results)))
	}
	return nil
}

var (
	// errGap says that the batch lacks some of what its producer has added, errMemberGap that it lacks some of what a delivery of a member has added.
	errGap       = fmt.Errorf("%w any more as it was: Redis has lost an earlier call, in a failover; begin anew with the same FlowID and the same jobs", ErrNoBatch)
	errMemberGap = fmt.Errorf("%w any more as it was: Redis has lost what this delivery has added before, in a failover; return the error, so that the handler runs again and adds it again", ErrNoBatch)
)

// whyNotAdded returns the error for what a script has answered.
func whyNotAdded(reply store.Added, queue string) error {
	switch reply.Word {
	case "other":
		return fmt.Errorf("%w: give the batch the same jobs in the same order when it is resumed, or use another FlowID", ErrOtherItems)
	case "gap":
		return errGap
	case "none":
		return fmt.Errorf("%w: it was over for a day, or Redis has lost it", ErrNoBatch)
	case "sealed":
		return fmt.Errorf("%w: it is sealed, so only its members may add to it", ErrBatchOver)
	case "cancelled":
		return fmt.Errorf("%w: it was cancelled", ErrBatchOver)
	case "superseded":
		return fmt.Errorf("%w: the delivery that adds the job is over", signalbox.ErrSuperseded)
	case "full":
		full := reply.Fates.Full()
		return &signalbox.QueueFullError{Queue: queue, Length: full.Jobs, Max: full.Max}
	}
	return fmt.Errorf("%w: all of its jobs have ended, and it is sealed", ErrBatchOver)
}
