package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// ErrStale says that a later call of the lane has been seen, so this one changed nothing.
var ErrStale = errors.New("store: a later call of this lane came first")

// When says when a job is due; the zero value is now.
type When struct {
	After time.Duration // that long after the server's now
	At    time.Time     // at that time, if it is set
}

func (w When) arg() string {
	switch {
	case !w.At.IsZero():
		return "@" + strconv.FormatInt(max(w.At.UnixMicro(), 0), 10)
	case w.After > 0:
		return "+" + strconv.FormatInt(w.After.Microseconds(), 10)
	}
	return ""
}

// An Item is a job to put in.
type Item struct {
	id       string
	class    string
	when     string
	envelope []byte
}

var classes = [256]string{'0': "0", '1': "1", '2': "2"}

// NewItem encodes a job. The error wraps signalbox.ErrInvalid.
func NewItem(job *signalbox.Job, when When) (Item, error) {
	if err := errors.Join(ValidateID(job.ID), ValidateKind(job.Kind)); err != nil {
		return Item{}, err
	}
	envelope := wire.AppendEnvelope(make([]byte, 0, len(job.Payload)+len(job.Kind)+32), job)
	if len(envelope) > wire.MaxEnvelope {
		return Item{}, fmt.Errorf("%w payload: the job takes %d bytes, at most %d are allowed; store the large part elsewhere and enqueue its name",
			signalbox.ErrInvalid, len(envelope), wire.MaxEnvelope)
	}
	return Item{id: job.ID, class: classes[wire.Class(job.Priority)], when: when.arg(), envelope: envelope}, nil
}

// ID returns the job's ID.
func (it *Item) ID() string { return it.id }

// Size returns how many bytes the item takes in a call, about.
func (it *Item) Size() int { return len(it.id) + len(it.envelope) }

// Enqueue puts at most MaxBatch jobs in and reports of each whether it is new: false if a
// job of its ID is there already, which is left as it is. All or none are put in.
func (q *Queue) Enqueue(ctx context.Context, lane *Lane, items []Item) ([]bool, error) {
	if len(items) == 0 {
		return nil, nil
	}
	r, err := q.enqueue(ctx, lane, "", 0, items)
	if err != nil {
		return nil, err
	}
	return parseEnqueue(r, len(items))
}

func parseEnqueue(r *reply, n int) ([]bool, error) {
	if err := r.status("ok"); err != nil {
		return nil, err
	}
	outcomes := r.str(2)
	if r.err == nil && len(outcomes) != n {
		r.fail(2, fmt.Sprintf("of %d items, not %d", len(outcomes), n))
	}
	if r.err != nil {
		return nil, r.err
	}
	fresh := make([]bool, n)
	for i := range fresh {
		fresh[i] = outcomes[i] == '1'
	}
	return fresh, nil
}

// A TickOutcome is what became of a tick of a cron entry.
type TickOutcome string

// The outcomes.
const (
	TickFired TickOutcome = "ok"    // enqueued by this call
	TickTaken TickOutcome = "taken" // it, or a later one, had been enqueued before
	TickEarly TickOutcome = "early" // it is in the server's future
)

// EnqueueTick puts the job of a cron entry's tick in, once among all callers. It returns
// the server's time too.
func (q *Queue) EnqueueTick(ctx context.Context, lane *Lane, entry string, tick time.Time, item Item) (TickOutcome, time.Time, error) {
	r, err := q.enqueue(ctx, lane, entry, tick.UnixMicro(), []Item{item})
	if err != nil {
		return "", time.Time{}, err
	}
	return parseTick(r)
}

func parseTick(r *reply) (TickOutcome, time.Time, error) {
	if err := r.status(string(TickFired), string(TickTaken), string(TickEarly)); err != nil {
		return "", time.Time{}, err
	}
	outcome, now := TickOutcome(r.str(0)), time.UnixMicro(r.int(1))
	if r.err != nil {
		return "", time.Time{}, r.err
	}
	return outcome, now, nil
}

func (q *Queue) enqueue(ctx context.Context, lane *Lane, entry string, tick int64, items []Item) (*reply, error) {
	if len(items) > MaxBatch {
		return nil, fmt.Errorf("%w batch: %d jobs, at most %d go in one call", signalbox.ErrInvalid, len(items), MaxBatch)
	}
	k := &q.keys
	args := make([]any, 0, 3+4*len(items))
	args = append(args, lane.seq, entry, tick)
	for i := range items {
		it := &items[i]
		args = append(args, it.id, it.class, it.when, it.envelope)
	}
	return run(ctx, q.rdb, enqueueScript, []string{
		lane.key, k.jobs, k.due, k.wake, k.stats, k.cron, k.readyHigh, k.readyNormal, k.readyLow,
	}, args)
}
