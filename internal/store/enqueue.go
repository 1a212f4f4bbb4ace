package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// ErrStale says that Redis has seen a later call of the lane. This call changed nothing.
var ErrStale = scripts.ErrStale

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
	// Overlap is the policy of an entry with a Plan for a tick that comes while a job of the entry is live.
	Overlap Overlap
}

func (w When) arg() string {
	switch {
	case w.Entry != "":
		tick := "=" + strconv.FormatInt(max(w.At.UnixMicro(), 0), 10) + " " + w.Entry
		if w.Plan != "" {
			tick += " " + w.Plan + " " + strconv.FormatInt(w.Late.Microseconds(), 10)
			if w.Overlap != OverlapAllow {
				tick += " " + string(w.Overlap)
			}
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
	class    string // then '!' of one that replaces no other, '~' of one whose payload isn't JSON, '*' of one that updates another, and '+', flags and extras of one that has such
	when     string
	special  bool // it has a group or a unique key
	envelope []byte
}

// MaxRetain is the longest time for which a job can be kept after it has ended by what its record says.
const MaxRetain = wire.MaxRetain

// MaxExpires is the longest time in which a job can have to start.
const MaxExpires = wire.MaxExpires

// HeldUntil is when a job is due that is being moved to another queue.
var HeldUntil = wire.HeldUntil

var (
	classes  = [256]string{'0': "0", '1': "1", '2': "2"}
	cautious = [256]string{'0': "0!", '1': "1!", '2': "2!"}
)

// NewItem encodes a job. The error wraps signalbox.ErrInvalid.
func NewItem(job *signalbox.Job, when When) (Item, error) {
	if err := errors.Join(layout.ValidateID(job.ID), layout.ValidateKind(job.Kind)); err != nil {
		return Item{}, err
	}
	if job.Group != "" {
		if err := layout.ValidateGroup(job.Group); err != nil {
			return Item{}, err
		}
	}
	envelope := wire.AppendEnvelope(make([]byte, 0, len(job.Payload)+len(job.Kind)+32), job)
	if len(envelope) > wire.MaxEnvelope {
		return Item{}, fmt.Errorf("%w payload: the job takes %d bytes, at most %d are allowed; store the large part elsewhere and enqueue its name",
			signalbox.ErrInvalid, len(envelope), wire.MaxEnvelope)
	}
	it := Item{id: job.ID, class: classes[wire.Class(job.Priority)], when: when.arg(), envelope: envelope}
	if job.Encoding != "" {
		it.class += "~"
	}
	if flags, extras := wire.Extras(job); flags != 0 {
		it.class = withExtras(it.class, flags, extras)
		it.special = flags&wire.FlagGroup != 0
	}
	return it, nil
}

// withExtras returns the class of a job that has these extras.
func withExtras(class string, flags byte, extras []byte) string {
	var room [256]byte // so that most need no other memory than the result's
	text := append(append(room[:0], class...), '+', flags)
	return string(append(text, extras...))
}

// ID returns the job's ID.
func (it *Item) ID() string { return it.id }

// specialSize is what a job counts for at least that has a group or a unique key, or may expire: a call with 1 MiB has at most MaxSpecial of them.
const specialSize = MaxBytes / MaxSpecial

// Size returns approximately how many bytes the item takes in a call, or specialSize if that is more and the item is special.
func (it *Item) Size() int {
	n := len(it.id) + len(it.envelope)
	if it.special {
		return max(n, specialSize)
	}
	return n
}

// Equal reports whether two items are the same job, due at the same time.
func (it *Item) Equal(o *Item) bool {
	return it.id == o.id && it.class == o.class && it.when == o.when && bytes.Equal(it.envelope, o.envelope)
}

// IfAbsent leaves the job out if there is any record of its ID. Without it, the job replaces one that has ended.
func (it *Item) IfAbsent() {
	if len(it.class) == 1 || it.class[1] != '!' {
		it.class = cautious[it.class[0]] + it.class[1:]
	}
}

// A Unique is a key that one job has at a time, of those of its kind and queue.
type Unique = wire.Unique

// The scopes of a unique key: until when its job has it.
const (
	UntilStarted = wire.UntilStarted // until a worker first gets the job
	UntilEnded   = wire.UntilEnded   // until the job has ended
	ForWindow    = wire.ForWindow    // for a time from the enqueue on, whatever becomes of the job
	Throttled    = wire.Throttled    // until a worker first gets the job, and then for a time; others that come in that time are due at its end
)

// UniqueKey returns a key for jobs of a kind: of a name that a producer chose, or of a digest of arguments.
func UniqueKey(kind, name string, digest bool) string { return wire.UniqueKey(kind, name, digest) }

// Unique gives the job a unique key. While another job has it, the job is left out. It is called before IfAbsent, and last of those that give extras.
func (it *Item) Unique(u Unique) {
	marks, extras, _ := strings.Cut(it.class, "+")
	flags := byte(0)
	if extras != "" {
		flags, extras = extras[0], extras[1:]
	}
	var room [256]byte // as in withExtras
	flags, all := wire.WithUnique(room[:0], flags, []byte(extras), u)
	it.class = withExtras(marks, flags, all)
	it.special = true
}

// Update has a job that has the unique key, and waits for its start, get what this one has. It is due then at most so long after its own enqueue; 0: at any
// time. It is called after Unique, and before IfAbsent.
func (it *Item) Update(most time.Duration) {
	mark := "*"
	if most > 0 {
		mark += strconv.FormatInt(most.Microseconds(), 10)
	}
	marks, extras, _ := strings.Cut(it.class, "+")
	it.class = marks + mark + "+" + extras
}

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

	// MetKey is the fate of a job that was left out since another one has its unique key: see Fates.Met.
	MetKey Fate = 'u'
	// Updated is the fate of a job that was left out, while the one that has its unique key has got what it has: see Fates.Met.
	Updated Fate = 'U'

	// It was left out because of its tick.
	Taken Fate = 't' // the tick, or a later one of the entry, had been enqueued before
	Early Fate = 'e' // the tick is in the server's future
	Late  Fate = 'l' // the tick is more than TickGrace ago
	// Passed is the fate of a tick whose entry is paused. It has become the entry's last tick all the same: it passes without a job.
	Passed Fate = 'p'
	// Superseded is the fate of a tick whose plan is not the one in force for its entry.
	Superseded Fate = 'x'
	// Full is the fate of a job that was left out since the queue has as many jobs as it may have: see Fates.Full.
	Full Fate = 'n'
	// Overlapped is the fate of a job of an entry that leaves it out while another one is live. Its tick passes without a job.
	Overlapped Fate = 'o'
)

// In reports whether the call put the job in.
func (f Fate) In() bool {
	return f == PutIn || f == ReplacedDead || f == ReplacedCancelled || f == ReplacedCompleted || f == PutInAnew
}

// Fates are the outcomes for a call's jobs, in the order of the jobs.
type Fates struct {
	Now  time.Time // the server's clock
	list string
	met  []Met
	full Length
	anew bool
}

// A Length says how many jobs a queue has that haven't ended, and how many it may have.
type Length struct{ Jobs, Max int }

// A Met is a job that has the unique key of one that was left out.
type Met struct {
	ID    string
	State signalbox.State // "" if it is gone. Of one that is ready or running it is not known which
	Live  bool            // it is ready or running
}

// Met returns the jobs that have the keys of the jobs with the fates MetKey and Updated, in the order of these.
func (f Fates) Met() []Met { return f.met }

// Full returns the length of the queue behind the call. It is zero unless jobs have the fate Full.
func (f Fates) Full() Length { return f.full }

// Anew reports whether the queue may have had no job since it was made, or was removed: then it must be registered, also if the caller has done that before.
func (f Fates) Anew() bool { return f.anew }

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
	args := scripts.Enqueue.Args(4*len(items), scripts.Arg("call", &lane.sending))
	for i := range items {
		it := &items[i]
		args = append(args, it.id, it.class, it.when, it.envelope)
	}
	keys := scripts.Enqueue.Keys(&q.keys, lane.key)
	cmd := scripts.Enqueue.Lua().EvalSha(ctx, q.rdb, keys, args...)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		lane.writes.Add(-1) // Redis did not run this try
		cmd = scripts.Enqueue.Lua().Eval(ctx, q.rdb, keys, args...)
	}
	r, err := scripts.Enqueue.Ran(ctx, q.rdb, cmd)
	if err != nil {
		return Fates{}, err
	}
	return parseEnqueue(r, len(items))
}

func parseEnqueue(r *scripts.Reply, n int) (Fates, error) {
	if err := r.Status("ok"); err != nil {
		return Fates{}, err
	}
	now, list := time.UnixMicro(r.Int(1)), outcomesOf(r, 2, n)
	met, full := metOf(r, 3, strings.IndexByte(list, byte(Full)) >= 0)
	if r.Err == nil && len(met) != strings.Count(list, string(rune(MetKey)))+strings.Count(list, string(rune(Updated))) {
		r.Fail(3, fmt.Sprintf("a list of %d jobs", len(met)))
	}
	if r.Err != nil {
		return Fates{}, r.Err
	}
	return Fates{Now: now, list: list, met: met, full: full, anew: len(r.List) > 4}, nil
}

// metOf reads the jobs that have the keys of others. Behind them stands the queue's length if it is full. The field is there only if there are any of these.
func metOf(r *scripts.Reply, i int, isFull bool) (_ []Met, full Length) {
	if len(r.List) <= i && !isFull {
		return nil, full
	}
	words := r.Strs(i)
	if isFull {
		last := ""
		if len(words) > 0 {
			last, words = words[len(words)-1], words[:len(words)-1]
		}
		if n, err := fmt.Sscanf(last, "n%d/%d", &full.Jobs, &full.Max); n != 2 || err != nil {
			r.Fail(i, "a list without the queue's length")
		}
	}
	if len(words) == 0 {
		return nil, full
	}
	all := make([]Met, len(words))
	for j, word := range words {
		if word == "" {
			r.Fail(i, "a list with an empty text")
			continue
		}
		all[j].ID = word[1:]
		switch Fate(word[0]) {
		case MetLive:
			all[j].Live = true
		case MetScheduled:
			all[j].State = signalbox.StateScheduled
		case MetDead:
			all[j].State = signalbox.StateDead
		case MetCancelled:
			all[j].State = signalbox.StateCancelled
		case MetCompleted:
			all[j].State = signalbox.StateCompleted
		}
	}
	return all, full
}

// outcomesOf reads a list of outcomes. The list has one for each of n jobs, or one for all of them. It returns a string with a byte for
// each job.
func outcomesOf(r *scripts.Reply, i, n int) string {
	list := r.Strs(i)
	if r.Err == nil && len(list) != n && len(list) != 1 {
		r.Fail(i, fmt.Sprintf("a list of %d, for %d jobs", len(list), n))
	}
	for _, outcome := range list {
		if len(outcome) != 1 {
			r.Fail(i, fmt.Sprintf("a list with %.40q, which is no outcome", outcome))
		}
	}
	if r.Err != nil {
		return ""
	}
	if len(list) == 1 {
		return strings.Repeat(list[0], n)
	}
	return strings.Join(list, "")
}

// FullError returns the error of a job that was refused.
func (q *Queue) FullError(l Length) error {
	return &signalbox.QueueFullError{Queue: q.name, Length: l.Jobs, Max: l.Max}
}
