package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// ErrStale says that a later call of the lane has been seen, so this one changed nothing.
var ErrStale = errors.New("store: a later call of this lane came first")

// When says when a job is due; the zero value is now.
type When struct {
	After time.Duration // that long after the server's now
	At    time.Time     // at that time, if it is set

	// Entry names a cron entry if the job is that of its tick at At. The job goes in only if nobody
	// enqueued that tick, or a later one of the entry, before.
	Entry string
}

func (w When) arg() string {
	switch {
	case w.Entry != "":
		return "=" + strconv.FormatInt(max(w.At.UnixMicro(), 0), 10) + " " + w.Entry
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

var (
	classes  = [256]string{'0': "0", '1': "1", '2': "2"}
	cautious = [256]string{'0': "0!", '1': "1!", '2': "2!"}
)

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

// IfAbsent makes the job stay out if there is any record of its ID: without it, the job takes the place of a
// dead or cancelled one.
func (it *Item) IfAbsent() { it.class = cautious[it.class[0]] }

// A Fate is what became of one job of a call.
type Fate byte

// The fates.
const (
	PutIn             Fate = '1' // it is new
	ReplacedDead      Fate = 'D' // it is new, in the place of a dead job
	ReplacedCancelled Fate = 'C' // it is new, in the place of a cancelled job
	PutInAnew         Fate = 'r' // it is new, and the last tick of its entry was in the future

	// It was left out, for there is a job of its ID.
	MetLive      Fate = '0' // ready or running
	MetScheduled Fate = 's'
	MetDead      Fate = 'd'
	MetCancelled Fate = 'c'

	// It was left out, because of its tick.
	Taken Fate = 't' // the tick, or a later one of the entry, had been enqueued before
	Early Fate = 'e' // the tick is in the server's future
	Late  Fate = 'l' // the tick is more than TickGrace ago
)

// In reports whether the call put the job in.
func (f Fate) In() bool {
	return f == PutIn || f == ReplacedDead || f == ReplacedCancelled || f == PutInAnew
}

// Fates are those of a call's jobs, in their order.
type Fates struct {
	Now  time.Time // the server's clock
	list string
}

// Len returns the number of jobs.
func (f Fates) Len() int { return len(f.list) }

// Of returns the fate of job i, from 0.
func (f Fates) Of(i int) Fate { return Fate(f.list[i]) }

// Enqueue puts at most MaxBatch jobs in and returns what became of each. After an error none
// is in. Jobs of ticks may share a call with others, and a call may have several ticks of one entry, the
// earliest first. A call of nothing but early ticks does nothing, so it may be made again without Lane.Next.
func (q *Queue) Enqueue(ctx context.Context, lane *Lane, items []Item) (Fates, error) {
	return q.enqueue(ctx, lane, items, Reckoning{})
}

func (q *Queue) enqueue(ctx context.Context, lane *Lane, items []Item, by Reckoning) (Fates, error) {
	if len(items) == 0 {
		return Fates{}, nil
	}
	if len(items) > MaxBatch {
		return Fates{}, fmt.Errorf("%w batch: %d jobs, at most %d go in one call", signalbox.ErrInvalid, len(items), MaxBatch)
	}
	lane.number, lane.by = lane.seq, by
	args := enqueueScript.args(4*len(items), arg{"call", &lane.sending})
	for i := range items {
		it := &items[i]
		args = append(args, it.id, it.class, it.when, it.envelope)
	}
	keys := enqueueScript.keys(&q.keys, lane.key)
	cmd := enqueueScript.EvalSha(ctx, q.rdb, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		lane.writes.Add(-1) // it was not run
		cmd = enqueueScript.Eval(ctx, q.rdb, keys, args...)
	}
	r, err := ran(ctx, q.rdb, cmd)
	if err != nil {
		return Fates{}, err
	}
	return parseEnqueue(r, len(items))
}

func parseEnqueue(r *reply, n int) (Fates, error) {
	if err := r.status("ok"); err != nil {
		return Fates{}, err
	}
	now, list := time.UnixMicro(r.int(1)), r.outcomes(2, n)
	if r.err != nil {
		return Fates{}, r.err
	}
	return Fates{Now: now, list: list}, nil
}

// outcomes reads a list with the outcome of each of n jobs, or with one for all of them, as a string with a byte for each.
func (r *reply) outcomes(i, n int) string {
	list := r.strs(i)
	if r.err == nil && len(list) != n && len(list) != 1 {
		r.fail(i, fmt.Sprintf("a list of %d, for %d jobs", len(list), n))
	}
	for _, outcome := range list {
		if len(outcome) != 1 {
			r.fail(i, fmt.Sprintf("a list with %.40q, which is no outcome", outcome))
		}
	}
	if r.err != nil {
		return ""
	}
	if len(list) == 1 {
		return strings.Repeat(list[0], n)
	}
	return strings.Join(list, "")
}
