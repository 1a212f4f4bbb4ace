package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/schedule"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// ErrNoEntry is wrapped by the error of a call that names a cron entry which no scheduler has described.
var ErrNoEntry = errors.New("inspect: no such cron entry")

// An Entry is a cron entry, as a scheduler described it. Times are by the clock of Redis.
//
// Entries live in the processes that call scheduler.Cron. Each describes its entries in Redis when its Run begins, and says once a
// minute that it still has them. If processes have different specs for one entry, only the ticks of one of them fire, and the
// description is of that one: see scheduler.Cron. If they differ in other things, it is that of the process which began last.
type Entry struct {
	Queue string // of its jobs
	Name  string // names one entry of its queue
	Kind  string // of its jobs
	Spec  string // as in the call of scheduler.Cron
	// Zone is the time zone of Spec: a name such as "Europe/Berlin", or "UTC+05:45".
	Zone string
	// Missed says what happens to missed ticks: "default", "skip", "once", "all, up to 10", and then perhaps
	// ", within 6h0m0s". See scheduler.Missed. It is "" if a scheduler of an older release described the entry.
	Missed string
	// Overlap says what a tick does while a job of the entry is live: "skip", "queue", "cancel", or "" if its job is enqueued beside the other. See
	// scheduler.Overlap.
	Overlap string
	// Jitter is by how much the ticks are delayed at most. Next and Ticks have the delays.
	Jitter time.Duration
	// Start is the time before which no tick comes. It is zero if there is no such time.
	Start time.Time
	// End is the time after which no tick comes. It is zero if there is no such time.
	End time.Time

	// Last is the last tick whose job was enqueued, or left out since a job of the entry was live. It is zero if there was none. A [Inspector.RunEntry] is no tick.
	Last time.Time
	// Next is the next tick. It fires if a scheduler has the entry then, and the entry isn't paused. It is zero if Err is set, or if the entry
	// has ended.
	Next time.Time
	// Paused says that the ticks of the entry pass without jobs.
	Paused bool
	// PausedSince is when the entry was paused. It is zero if the entry isn't paused.
	PausedSince time.Time
	// Seen is when a scheduler last said that it has the entry.
	Seen time.Time
	// Gone says that no scheduler has said so for three minutes: none that has the entry runs, or none reaches Redis.
	Gone bool
	// Err says why the description can't be read, or why Next is not known. The other fields are as far as known then.
	Err error

	schedule schedule.Schedule
}

// Ticks returns the ticks of the entry after a time, the earliest first, in the entry's time zone. They end with the entry's End, if it has
// one. If Err is set, there are none.
func (e *Entry) Ticks(after time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if e.schedule == nil {
			return
		}
		zone := e.schedule.Zone()
		for at := e.schedule.Next(after); !at.IsZero(); at = e.schedule.Next(at) {
			if !yield(at.In(zone)) {
				return
			}
		}
	}
}

// Entries returns the cron entries of the namespace that schedulers have described, sorted by queue and name, also those that no
// scheduler has any more: see Gone. It makes a few calls for each queue, and one more for each 250 entries. A queue whose entries can't
// be read has its name in the error, which wraps [ErrPartial], and they are left out.
func (i *Inspector) Entries(ctx context.Context) ([]Entry, error) {
	queues, err := i.names(ctx)
	if err != nil && len(queues) == 0 {
		return nil, err
	}
	var entries []Entry
	errs := []error{err}
	for _, queue := range queues {
		q := i.store(queue)
		err := q.Site().CheckLayout(ctx)
		var names []string
		if err == nil {
			names, err = q.Cron().EntryNames(ctx)
		}
		if err == nil && len(names) > 0 {
			var some []Entry
			some, err = i.entries(ctx, queue, names)
			entries = append(entries, some...)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("inspect: the cron entries of queue %s: %w", queue, err))
		}
	}
	return entries, partial(errs...)
}

// Entry returns one cron entry. The error wraps [ErrNoEntry] if no scheduler has described it, and [ErrNoQueue] if nobody has used the
// queue.
func (i *Inspector) Entry(ctx context.Context, queue, name string) (Entry, error) {
	if err := i.validEntry(queue, name); err != nil {
		return Entry{}, err
	}
	if err := i.store(queue).Site().CheckLayout(ctx); err != nil {
		return Entry{}, fmt.Errorf("inspect: queue %s: %w", queue, err)
	}
	entries, err := i.entries(ctx, queue, []string{name})
	if err != nil {
		return Entry{}, fmt.Errorf("inspect: cron entry %s of queue %s: %w", name, queue, err)
	}
	if len(entries) == 0 {
		return Entry{}, i.noEntry(ctx, queue, name)
	}
	return entries[0], nil
}

// PauseEntry pauses a cron entry. Once it has returned, no tick of the entry enqueues a job until [Inspector.ResumeEntry], whichever
// scheduler has the entry, and also after schedulers have started again. The ticks pass meanwhile: they are not made up for. Jobs that
// were enqueued before go on. changed is false if the entry was paused already. A scheduler of a release that knows no pauses goes on
// to enqueue. A Redis that loses its memory forgets the pause.
//
// The error wraps [ErrNoEntry] if no scheduler has described the entry, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) PauseEntry(ctx context.Context, queue, name string) (changed bool, err error) {
	return i.changeEntry(ctx, queue, name, "pause", (*store.Cron).PauseEntry)
}

// ResumeEntry ends the pause of a cron entry. Its next tick enqueues a job again. changed is false if the entry was not paused. Errors
// are those of [Inspector.PauseEntry].
func (i *Inspector) ResumeEntry(ctx context.Context, queue, name string) (changed bool, err error) {
	return i.changeEntry(ctx, queue, name, "resume", (*store.Cron).ResumeEntry)
}

// ForgetEntry deletes what Redis has of a cron entry that no scheduler has any more: its description, its last tick, and its pause. Its
// jobs stay. A scheduler that has the entry and starts again describes it again. The error wraps [ErrState] if a scheduler has said
// in the last three minutes that it has the entry, or if the entry has ticked in that time. The others are those of
// [Inspector.PauseEntry].
func (i *Inspector) ForgetEntry(ctx context.Context, queue, name string) error {
	_, err := i.changeEntry(ctx, queue, name, "forget", (*store.Cron).ForgetEntry)
	return err
}

func (i *Inspector) changeEntry(ctx context.Context, queue, name, verb string, change func(*store.Cron, context.Context, string) (store.Verdict, error)) (bool, error) {
	if err := i.validEntry(queue, name); err != nil {
		return false, err
	}
	verdict, err := change(i.store(queue).Cron(), ctx, name)
	if err != nil {
		return false, fmt.Errorf("inspect: %s cron entry %s of queue %s: %w", verb, name, queue, err)
	}
	switch verdict {
	case store.EntryUnknown:
		return false, i.noEntry(ctx, queue, name)
	case store.EntryLives:
		return false, fmt.Errorf("%w: cron entry %s of queue %s: a scheduler has it, or had it in the last %d minutes, or it ticked in that time; to stop it, pause it, or deploy without it",
			ErrState, name, queue, int(store.NoticePatience.Minutes()))
	case store.EntryAsItWas, store.EntryChanged:
	}
	return verdict == store.EntryChanged, nil
}

// RunEntry enqueues a job as a tick of the cron entry would, at once, and returns its ID. It asks no scheduler, so none needs to run.
// The job has the kind, the arguments and the options of the entry. It is no tick: the entry's last tick stays, its next tick comes as
// usual, and the job has an ID and an effect key of its own. An entry that is paused can be run.
//
// The policy of the entry for jobs that overlap counts (see scheduler.Overlap). If it leaves the job out since another one of the entry is live, the error
// wraps [ErrState] and names that one. If it cancels others, they are cancelled. Later ticks treat the job as one of theirs.
//
// A second call is a second job. If the reply was lost, the job may be enqueued or not. Only such an error comes with the ID: look for
// the job with [Inspector.Job] before you call again. With any other error nothing was enqueued, and the ID is "".
//
// The error wraps [ErrNoEntry] if no scheduler has described the entry, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) RunEntry(ctx context.Context, queue, name string) (id string, err error) {
	if err := i.validEntry(queue, name); err != nil {
		return "", err
	}
	id = store.NewID()
	known, err := i.store(queue).Cron().RunEntry(ctx, name, id)
	var unsure *store.UnsureError
	var live *store.LiveError
	switch {
	case errors.As(err, &live):
		return "", fmt.Errorf("%w: cron entry %s of queue %s has a live job, and leaves out others until it has ended: %s; wait, or cancel that job first",
			ErrState, name, queue, strings.Join(live.IDs, ", "))
	case errors.Is(err, store.ErrSealed):
		return "", fmt.Errorf("inspect: run cron entry %s of queue %s: its schedulers encode the arguments of each job, so only they can enqueue one", name, queue)
	case errors.As(err, &unsure):
		return id, fmt.Errorf("inspect: run cron entry %s of queue %s, job ID %s: %w", name, queue, id, err)
	case err != nil:
		return "", fmt.Errorf("inspect: run cron entry %s of queue %s: %w", name, queue, err)
	case !known:
		return "", i.noEntry(ctx, queue, name)
	}
	return id, nil
}

func (i *Inspector) validEntry(queue, name string) error {
	if err := errors.Join(layout.ValidateQueue(queue), layout.ValidateEntry(name)); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	return nil
}

// noEntry returns the error for an entry that no scheduler has described.
func (i *Inspector) noEntry(ctx context.Context, queue, name string) error {
	if err := i.known(ctx, queue); err != nil {
		return err
	}
	names, err := i.store(queue).Cron().EntryNames(ctx)
	if err != nil {
		return fmt.Errorf("inspect: the cron entries of queue %s: %w", queue, err)
	}
	return fmt.Errorf("%w: %.200q in queue %.200q: %s. An entry is known once a scheduler has run with it", ErrNoEntry, name, queue, list(names))
}

// entries returns those entries of a queue that are known.
func (i *Inspector) entries(ctx context.Context, queue string, names []string) ([]Entry, error) {
	q := i.store(queue)
	found, err := q.Cron().Entries(ctx, names)
	if err != nil {
		return nil, err
	}
	now, err := q.Now(ctx)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(found))
	for k, f := range found {
		e := Entry{
			Queue: queue, Name: f.Name, Kind: f.Kind, Spec: f.Spec, Zone: f.Zone, Missed: f.Missed, Overlap: f.Overlap, Last: f.Last,
			Paused: f.Paused, PausedSince: f.PausedSince, Seen: f.Seen, Gone: now.Sub(f.Seen).Abs() > store.NoticePatience, Err: f.Err,
		}
		if e.Err == nil {
			e.read(now, f)
		}
		entries[k] = e
	}
	return entries, nil
}

// read parses the spec of the entry, and what changes its ticks.
func (e *Entry) read(now time.Time, f store.Entry) {
	zone, err := schedule.LoadZone(e.Zone)
	if err == nil {
		e.schedule, err = schedule.Parse(e.Spec, zone, now)
	}
	if err == nil && f.Jitter != "" {
		e.Jitter, err = time.ParseDuration(f.Jitter)
	}
	if err == nil && f.Start != "" {
		e.Start, err = time.Parse(time.RFC3339Nano, f.Start)
	}
	if err == nil && f.End != "" {
		e.End, err = time.Parse(time.RFC3339Nano, f.End)
	}
	if err != nil {
		e.schedule, e.Err = nil, fmt.Errorf("inspect: the next tick of cron entry %s: %w", e.Name, err)
		return
	}
	e.schedule = schedule.Vary(e.schedule, schedule.Variation{Start: e.Start, End: e.End, Jitter: e.Jitter, Seed: schedule.Seed(e.Queue, e.Name)})
	e.Next = e.schedule.Next(now)
}
