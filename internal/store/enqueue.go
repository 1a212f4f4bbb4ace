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

// ErrStale says that Redis has seen a later call of the lane. This call changed nothing.
var ErrStale = errors.New("store: a later call of this lane came first")

// When says when a job is due. The zero value means now.
type When struct {
	After time.Duration // this long after the server's time
	At    time.Time     // at this time; not set if zero

	// Entry is the name of a cron entry if the job belongs to the entry's tick at the time At. The job is put in only if
	// nobody enqueued that tick, or a later one of the entry, before.
	Entry string
	// Plan is the plan of the entry. If another one is in force, the job is not put in. With "" the tick is not made up for.
	Plan string
	// Late is how late a tick with a Plan may be. It has no effect below TickGrace.
	Late time.Duration
}

func (w When) arg() string {
	switch {
	case w.Entry != "":
		tick := "=" + strconv.FormatInt(max(w.At.UnixMicro(), 0), 10) + " " + w.Entry
		if w.Plan != "" {
			tick += " " + w.Plan + " " + strconv.FormatInt(w.Late.Microseconds(), 10)
		}
		return tick
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
	class    string // then '!' of one that replaces no other, then '+', flags and extras of one that has such
	when     string
	envelope []byte
}

// MaxRetain is the longest time for which a job can be kept after it has ended by what its record says.
const MaxRetain = wire.MaxRetain

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
	it := Item{id: job.ID, class: classes[wire.Class(job.Priority)], when: when.arg(), envelope: envelope}
	if flags, extras := wire.Extras(job); flags != 0 {
		it.class = withExtras(it.class, flags, extras)
	}
	return it, nil
}

// withExtras returns the class of a job that has these extras.
func withExtras(class string, flags byte, extras []byte) string {
	return class + string(append([]byte{'+', flags}, extras...))
}

// ID returns the job's ID.
func (it *Item) ID() string { return it.id }

// Size returns approximately how many bytes the item takes in a call.
func (it *Item) Size() int { return len(it.id) + len(it.envelope) }

// IfAbsent leaves the job out if there is any record of its ID. Without it, the job replaces one that has ended.
func (it *Item) IfAbsent() { it.class = cautious[it.class[0]] + it.class[1:] }

// A Fate is the outcome for one job of a call.
type Fate byte

// The fates.
const (
	PutIn             Fate = '1' // it is new
	ReplacedDead      Fate = 'D' // it is new, and replaced a dead job
	ReplacedCancelled Fate = 'C' // it is new, and replaced a cancelled job
	ReplacedCompleted Fate = 'F' // it is new, and replaced a completed job
	PutInAnew         Fate = 'r' // it is new, and replaced a last tick of its entry that was in the future

	// It was left out, since there is a job with its ID.
	MetLive      Fate = '0' // ready or running
	MetScheduled Fate = 's'
	MetDead      Fate = 'd'
	MetCancelled Fate = 'c'
	MetCompleted Fate = 'f'

	// It was left out because of its tick.
	Taken Fate = 't' // the tick, or a later one of the entry, had been enqueued before
	Early Fate = 'e' // the tick is in the server's future
	Late  Fate = 'l' // the tick is more than TickGrace ago
	// Passed is the fate of a tick whose entry is paused. It has become the entry's last tick all the same: it passes without a job.
	Passed Fate = 'p'
	// Superseded is the fate of a tick whose plan is not the one in force for its entry.
	Superseded Fate = 'x'
)

// In reports whether the call put the job in.
func (f Fate) In() bool {
	return f == PutIn || f == ReplacedDead || f == ReplacedCancelled || f == ReplacedCompleted || f == PutInAnew
}

// Fates are the outcomes for a call's jobs, in the order of the jobs.
type Fates struct {
	Now  time.Time // the server's clock
	list string
}

// Len returns the number of jobs.
func (f Fates) Len() int { return len(f.list) }

// Of returns the fate of job i, from 0.
func (f Fates) Of(i int) Fate { return Fate(f.list[i]) }

// Enqueue puts at most MaxBatch jobs in. It returns the outcome for each. If it returns an error, no job is put in. Jobs of ticks may
// share a call with other jobs. A call may have several ticks of one entry, if the earliest comes first. A call that has only early
// ticks does nothing, so the caller may make it again without Lane.Next.
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
		lane.writes.Add(-1) // Redis did not run this try
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

// outcomes reads a list of outcomes. The list has one for each of n jobs, or one for all of them. It returns a string with a byte for
// each job.
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
