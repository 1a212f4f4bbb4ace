// Package inspect looks at queues and jobs, and controls queues, while workers run: for programs of operators, and for tools that are
// built on it.
//
// # Looking
//
//	ins, err := inspect.New(rdb, inspect.Config{})
//	...
//	queues, err := ins.Queues(ctx)              // with their depths
//	job, err := ins.Job(ctx, "mail", id)        // where it is, what it says, why it failed, why it waits
//	workers, err := ins.Workers(ctx)            // and what they run
//	for lock, err := range ins.Locks(ctx, "*")  // that are held
//	entries, err := ins.Entries(ctx)            // of cron, with their last and next ticks
//	for job, err := range ins.Jobs(ctx, "mail", inspect.Filter{State: signalbox.StateDead, Error: "timeout"})
//	jobs, err := ins.Latest(ctx, "mail", signalbox.StateDead, 10) // those that died last
//	summary, err := ins.DeadByError(ctx, "mail") // of what jobs died
//	stats, err := ins.Stats(ctx, "mail", inspect.ByMinute) // what happened in the last three hours
//	totals, err := ins.Totals(ctx, "mail")                 // and since the queue began
//	memory, err := ins.Memory(ctx, "mail")                 // how many bytes of Redis' memory it takes
//	servers, err := ins.Servers(ctx)                       // what Redis says of itself: version, memory, persistence, clients, replicas
//
// Looking changes nothing, and needs no right to write: see docs/operations/access.md. A queue may have millions of jobs: a listing makes short calls, and
// holds about a megabyte of records at a time. It can be left, and taken up behind a job with the job's Cursor.
//
// Each job is as it was at the moment of its call. It may have moved when you read it.
//
// # Changing
//
//	changed, err := ins.Pause(ctx, "mail") // no worker gets a job of it from now on
//	changed, err = ins.Resume(ctx, "mail")
//	changed, err = ins.PauseGroup(ctx, "mail", "acme") // no worker gets a job of that group
//	err = ins.SetRetention(ctx, "mail", signalbox.Retention{Jobs: 1000}) // dead ones, and cancelled ones
//	err = ins.SetCopyDead(ctx, "mail", "mail-dead") // each job that dies is copied to that queue
//	err = ins.SetSlots(ctx, "mail", 5)     // for each of its workers
//	changed, err = ins.Quiet(ctx, "web-3:4711:k2x9q") // that worker takes no more jobs
//	changed, err = ins.Stop(ctx, "web-3:4711:k2x9q")  // that worker ends
//
// These change what Redis says of a queue, and tell the workers to look. Those that are there do so at once, and those that
// don't hear it when they renew their sessions.
//
// A cron entry is stopped, and run now, without asking its schedulers:
//
//	changed, err = ins.PauseEntry(ctx, "mail", "digest") // no tick enqueues a job from now on
//	id, err := ins.RunEntry(ctx, "mail", "digest")       // enqueues a job as a tick would
//
// Jobs are acted on one by one, or all that a filter names:
//
//	was, err := ins.Do(ctx, "mail", id, inspect.Cancel{Why: "refunded"}) // also while it runs
//	dead := inspect.Filter{State: signalbox.StateDead, Kind: "receipt"}
//	n, err := ins.DoAll(ctx, "mail", dead, inspect.Retry{}, inspect.Bulk{})
//
//	was, err = ins.Do(ctx, "mail", id, inspect.Move{To: "mail-slow"}) // to another queue
//	n, err = ins.DeleteWaiting(ctx, "mail", inspect.Waiting{})        // those that wait to run
//
// An [Action] is for jobs in some states. Redis looks at the state and acts in one step. So a job that moves meanwhile is left as it is.
//
// A queue is written to a file and read again by [Inspector.Export] and [Inspector.Import].
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/server"
	"github.com/signalbox-go/signalbox/internal/store/settings"
)

// ErrNoQueue is wrapped by the error of a call that names a queue which no producer and no worker has used.
var ErrNoQueue = errors.New("inspect: no such queue")

// ErrNoWorker is wrapped by the error of a call that names a worker which works no queue of the namespace.
var ErrNoWorker = errors.New("inspect: no such worker")

// Config configures an [Inspector]. The zero value looks at the namespace "default".
type Config struct {
	// Namespace is the namespace whose queues are looked at. Default "default".
	Namespace string
	// Operator is the name of the person or the program that changes settings, for [Inspector.Changes] and for the log of a worker whose Config replaces what
	// was set. Of at most 100 bytes; a space, and what isn't ASCII, becomes "_". Default "-".
	Operator string
}

// An Inspector looks at the queues of one namespace, and controls them. It is safe for concurrent use.
type Inspector struct {
	rdb redis.UniversalClient
	cfg Config
}

// New returns an Inspector. It calls nothing. The client stays the caller's to close. The error wraps
// [signalbox.ErrInvalid] and names every mistake.
func New(rdb redis.UniversalClient, cfg Config) (*Inspector, error) {
	if err := errors.Join(server.CheckClient(rdb), layout.ValidateNamespace(cfg.Namespace)); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if cfg.Namespace == "" {
		cfg.Namespace = layout.DefaultNamespace
	}
	return &Inspector{rdb: rdb, cfg: cfg}, nil
}

// A Queue is the state of a queue at one moment.
type Queue struct {
	Name string
	// Paused says that no worker gets jobs of the queue.
	Paused bool
	// PausedSince is when the queue was paused, by the clock of Redis. It is zero if the queue isn't paused.
	PausedSince time.Time
	// HeldUntil is when jobs of the queue may start again, by the clock of Redis, if it is held back as a whole: see [Inspector.HoldBack]. Else it is zero.
	HeldUntil time.Time
	// Limited says that jobs are ready which their groups let start, and that Limits allow none of them to start at that moment: as many run as may, or the rate allows the next one later.
	Limited bool
	// Slots is how many slots each worker has for the queue. 0: as its Config says.
	Slots int
	// Quiet are the IDs of workers that take no jobs of the queue, sorted.
	Quiet []string
	// Workers are the IDs of the workers that have a session with the queue, sorted. One that died is among them until its session has
	// ended.
	Workers []string
	// Retention is what the queue keeps, as far as that was set. A field that is 0 has its default.
	Retention signalbox.Retention
	// CompletedRetention is what the queue keeps of its completed jobs. It is zero if it keeps none.
	CompletedRetention signalbox.Retention
	// CopyDead is the queue that gets a copy of each job that dies. "" if there is none.
	CopyDead string
	// Limits bound what runs of the queue, and GroupLimits what runs of each of its groups without limits of its own. They are zero if there are none.
	Limits, GroupLimits signalbox.Limits
	// MaxLength is how many jobs the queue may have that haven't ended: Ready, Scheduled, Running and Awaiting together. 0 if there is no maximum.
	MaxLength int

	Ready     int64 // jobs that wait for a worker, or for their group
	Scheduled int64 // jobs that wait for their time
	Running   int64 // jobs that workers have
	Awaiting  int64 // jobs that wait for a batch, as its callbacks do: see [signalbox.StateAwaiting]
	Dead      int64 // jobs that failed for good and are kept
	Cancelled int64 // jobs that were cancelled and are kept
	Completed int64 // jobs that completed and are kept: see CompletedRetention
	// Blocked is how many of the Ready jobs wait for their group: it is paused, held back, or as many of its jobs run as may. So Ready - Blocked could start
	// if workers had room, and if the queue itself isn't stopped: see State. It is an estimate if more than 1,000 lines of groups could go on.
	Blocked int64
	// PausedGroups is how many groups of the queue are paused, and HeldGroups how many are held back: see [Inspector.PauseGroup] and [Inspector.HoldBack]. Of many
	// groups with pauses, holds or limits of their own they count those among some 10,000.
	PausedGroups, HeldGroups int64
	// Oldest is how long the oldest job that could run has waited. 0 if there is none. A job that is Blocked couldn't run.
	Oldest time.Duration
}

// State says in a word whether workers get jobs of the queue: "paused", "held" (back until HeldUntil), "limited", or "active". It is the first of these that is so.
// Groups of the queue may be paused, held back or limited all the same: see [Inspector.Groups].
func (q *Queue) State() string {
	switch {
	case q.Paused:
		return "paused"
	case !q.HeldUntil.IsZero():
		return "held"
	case q.Limited:
		return "limited"
	}
	return "active"
}

// Length returns how many jobs of the queue haven't ended: those that count for MaxLength.
func (q *Queue) Length() int64 { return q.Ready + q.Scheduled + q.Running + q.Awaiting }

// Queues returns the state of every queue of the namespace that a producer or a worker has used, sorted by name. It makes a few
// calls for each. A queue whose state can't be read has its name in the error, and is left out: the error wraps [ErrPartial] then. A queue that is new may be
// missing for a moment after its first job.
func (i *Inspector) Queues(ctx context.Context) ([]Queue, error) {
	names, err := i.names(ctx)
	if err != nil && len(names) == 0 {
		return nil, err
	}
	queues := make([]Queue, 0, len(names))
	errs := []error{err}
	for _, name := range names {
		q, err := i.read(ctx, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		queues = append(queues, q)
	}
	return queues, partial(errs...)
}

// Queue returns the state of one queue. The error wraps [ErrNoQueue] if nobody has used it.
func (i *Inspector) Queue(ctx context.Context, name string) (Queue, error) {
	if err := i.known(ctx, name); err != nil {
		return Queue{}, err
	}
	return i.read(ctx, name)
}

// Pause stops a queue. Once it has returned, no worker claims a job of the queue until [Inspector.Resume]. That holds for
// workers that start later, too. A handler whose job was claimed a moment before may still start: to know that nothing runs,
// wait until Running of [Inspector.Queue] is 0. Jobs that run end as usual. Enqueues and cron entries go on: their jobs wait.
// changed is false if the queue was paused already. The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Pause(ctx context.Context, queue string) (changed bool, err error) {
	if err := i.listed(ctx, queue); err != nil {
		return false, err
	}
	changed, err = i.store(queue).Settings().Pause(ctx)
	if err != nil {
		return false, fmt.Errorf("inspect: pause queue %s: %w", queue, err)
	}
	return changed, nil
}

// Resume ends a pause. All workers of the queue look for jobs at once. changed is false if the queue was not paused. The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) Resume(ctx context.Context, queue string) (changed bool, err error) {
	if err := i.listed(ctx, queue); err != nil {
		return false, err
	}
	changed, err = i.store(queue).Settings().Resume(ctx)
	if err != nil {
		return false, fmt.Errorf("inspect: resume queue %s: %w", queue, err)
	}
	return changed, nil
}

// PauseGroup stops one group of a queue, and leaves the others alone. Once it has returned, Redis gives no job of the group to a worker until
// [Inspector.ResumeGroup]: not one that waits, not one that comes, and no retry, which a hold of [Inspector.HoldBack] lets run if the group is serial.
// Jobs that run end as usual. So do those that Redis gave to a worker before: if the reply to the worker's call is still on its way, a handler begins a moment after PauseGroup
// has returned. Such a job counts as one that runs, in [Inspector.Jobs] too.
//
// group is the key of a scheduler.Group or of a scheduler.Serial: both are paused, by two calls, the plain group first. After an error one of them may be paused: call it again. It may have no jobs
// yet. changed is false if both were paused already. The error wraps [signalbox.ErrInvalid] if group can't be a key, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) PauseGroup(ctx context.Context, queue, group string) (changed bool, err error) {
	return i.switchGroup(ctx, queue, group, "pause", (*settings.Settings).PauseGroup)
}

// ResumeGroup ends a pause of a group, and of the serial group with the same key, and has workers look for their jobs. Limits of the group, and what holds it back, stay.
// changed is false if neither was paused. The error is as that of [Inspector.PauseGroup].
func (i *Inspector) ResumeGroup(ctx context.Context, queue, group string) (changed bool, err error) {
	return i.switchGroup(ctx, queue, group, "resume", (*settings.Settings).ResumeGroup)
}

func (i *Inspector) switchGroup(ctx context.Context, queue, group, verb string, do func(q *settings.Settings, ctx context.Context, key string) (bool, error)) (changed bool, err error) {
	if err := layout.ValidateGroup(group); err != nil {
		return false, fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return false, err
	}
	for _, key := range groupKeys(group) {
		one, err := do(i.store(queue).Settings(), ctx, key)
		if err != nil {
			return changed, fmt.Errorf("inspect: %s a group of queue %s: %w", verb, queue, err)
		}
		changed = changed || one
	}
	return changed, nil
}

// groupKeys returns the keys in the store of a scheduler.Group and of a scheduler.Serial.
func groupKeys(group string) []string { return []string{"g" + group, "s" + group} }

// PausedGroups returns the groups of a queue that are paused, by their keys, and since when they are, by the clock of Redis.
// The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) PausedGroups(ctx context.Context, queue string) (map[string]time.Time, error) {
	if err := i.known(ctx, queue); err != nil {
		return nil, err
	}
	all, err := i.store(queue).Settings().PausedGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect: paused groups of queue %s: %w", queue, err)
	}
	paused := make(map[string]time.Time, len(all))
	for key, since := range all {
		if before, there := paused[key[1:]]; !there || since.Before(before) {
			paused[key[1:]] = since
		}
	}
	return paused, nil
}

// SetRetention sets what a queue keeps of its dead and cancelled jobs, in place of what was set before, also by a worker's Config.
// A field that is 0 gets its default. Workers drop what is too much within the next minutes. The error wraps
// [signalbox.ErrInvalid] if the queue can't have r, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) SetRetention(ctx context.Context, queue string, r signalbox.Retention) error {
	if err := settings.ValidateRetention(r); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return err
	}
	if err := i.store(queue).Settings().SetRetention(ctx, r); err != nil {
		return fmt.Errorf("inspect: retention of queue %s: %w", queue, err)
	}
	return nil
}

// SetCompletedRetention sets what a queue keeps of its completed jobs, in place of what was set before, also by a worker's Config. A field that
// is 0 gets its default. If all are 0, the queue keeps none, and workers drop those that it has within the next minutes. Workers heed it
// within a second, or within a minute or so if they miss the message. The error wraps [signalbox.ErrInvalid] if the queue can't have r, and [ErrNoQueue] if
// nobody has used the queue.
func (i *Inspector) SetCompletedRetention(ctx context.Context, queue string, r signalbox.Retention) error {
	if err := settings.ValidateRetention(r); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return err
	}
	if err := i.store(queue).Settings().SetCompleted(ctx, r); err != nil {
		return fmt.Errorf("inspect: retention of completed jobs of queue %s: %w", queue, err)
	}
	return nil
}

// SetCopyDead has each job of a queue that dies from now on copied to the queue to, in place of what was set before, also by a worker's
// Config. The dead job stays where it is. The queue to need not exist yet. With "" for to, nothing is copied any more, not even jobs that died before
// and whose copies are still to be made. The queue's workers make the copies: docs/jobs/retention.md says what a copy is, and when it is there. The error wraps
// [signalbox.ErrInvalid] if to can't be the name of a queue, or is the queue itself, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) SetCopyDead(ctx context.Context, queue, to string) error {
	if err := settings.ValidateCopies(queue, to); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return err
	}
	if err := i.store(queue).Settings().SetCopies(ctx, to); err != nil {
		return fmt.Errorf("inspect: copies of dead jobs of queue %s: %w", queue, err)
	}
	return nil
}

// SetLimits sets what runs of a queue at most, across all workers, in place of what was set before, also by a worker's Config. The zero value is no
// limit. It counts from the next claim on: jobs that run go on. The error wraps [signalbox.ErrInvalid] if a queue can't have l, and [ErrNoQueue]
// if nobody has used the queue.
func (i *Inspector) SetLimits(ctx context.Context, queue string, l signalbox.Limits) error {
	return i.limit(ctx, queue, l, "limits of queue %s: %w", func(q *store.Queue) error { _, err := q.Settings().SetLimits(ctx, l); return err })
}

// SetGroupLimits sets what runs of each group of a queue at most, if it has no limits of its own: see [Inspector.SetLimitsOf]. Otherwise it is as
// [Inspector.SetLimits]. A serial group has one job at a time, whatever Running says.
func (i *Inspector) SetGroupLimits(ctx context.Context, queue string, l signalbox.Limits) error {
	return i.limit(ctx, queue, l, "limits of the groups of queue %s: %w", func(q *store.Queue) error { _, err := q.Settings().SetGroupLimits(ctx, l); return err })
}

// SetLimitsOf sets what runs of one group of a queue at most, in place of what was set for it before. Running if it is 0, and Rate if its Jobs is 0, are
// as for all groups, also when that changes later: with the zero value the group has no limits of its own. [signalbox.NoLimit] is no limit, whatever all groups have.
// group is the key of a scheduler.Group or of a scheduler.Serial: the limits are for both groups, each by itself. Of a serial group the rate
// counts: one job of it runs at a time, whatever Running says. Otherwise it is as [Inspector.SetLimits].
func (i *Inspector) SetLimitsOf(ctx context.Context, queue, group string, l signalbox.Limits) error {
	if err := layout.ValidateGroup(group); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	return i.limit(ctx, queue, l, "limits of a group of queue %s: %w", func(q *store.Queue) error { _, err := q.Settings().SetLimitsOf(ctx, group, l); return err })
}

// LimitsOf returns the limits of the groups of a queue that have limits of their own, by their keys, as [Inspector.SetLimitsOf] sets
// them: a field that is 0 is as for all groups, and [signalbox.NoLimit] where there is none.
func (i *Inspector) LimitsOf(ctx context.Context, queue string) (map[string]signalbox.Limits, error) {
	if err := i.known(ctx, queue); err != nil {
		return nil, err
	}
	all, err := i.store(queue).Settings().GroupLimits(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect: limits of the groups of queue %s: %w", queue, err)
	}
	return all, nil
}

// SetMaxLength sets how many jobs a queue may have that haven't ended, in place of what was set before, also by a worker's Config: those that wait, for
// whatever reason, and those that run. An enqueue that would make it more is refused with a [signalbox.QueueFullError], or waits: see
// scheduler.WaitForRoom. The jobs that are there stay, however many they are. n is 1 to 1,000,000,000; 0 is no maximum. The error wraps [signalbox.ErrInvalid] if a
// queue can't have n, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) SetMaxLength(ctx context.Context, queue string, n int) error {
	if err := settings.ValidateMaxLength(n); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return err
	}
	if _, err := i.store(queue).Settings().SetMaxLength(ctx, n); err != nil {
		return fmt.Errorf("inspect: maximum length of queue %s: %w", queue, err)
	}
	return nil
}

// HoldBack keeps the jobs of a queue from starting for a time, or those of one group, as [signalbox.HoldBack] does: jobs that run go on. group is the key of a
// scheduler.Group or a scheduler.Serial: if the queue has both with that key, both are held back. "" is for the whole queue. [Inspector.Holds] lists what is held
// back. d is at most 24 h. An end that is earlier than one that was set before changes nothing, but 0 ends what was set. It returns until when jobs are held
// back, by the clock of Redis: of two groups with that key the later end; zero if they aren't.
func (i *Inspector) HoldBack(ctx context.Context, queue, group string, d time.Duration) (until time.Time, err error) {
	if d < 0 || d > 24*time.Hour || d > 0 && d < time.Microsecond {
		return until, fmt.Errorf("inspect: %w time: %v; 1µs to 24h is allowed, and 0 to end it", signalbox.ErrInvalid, d)
	}
	if group != "" {
		if err := layout.ValidateGroup(group); err != nil {
			return until, fmt.Errorf("inspect: %w", err)
		}
	}
	if err := i.listed(ctx, queue); err != nil {
		return until, err
	}
	keys := []string{""}
	if group != "" {
		keys = groupKeys(group)
	}
	for _, key := range keys {
		end, err := i.store(queue).Settings().HoldBack(ctx, key, "", d)
		if err != nil {
			return until, fmt.Errorf("inspect: hold back jobs of queue %s: %w", queue, err)
		}
		if end.After(until) {
			until = end
		}
	}
	return until, nil
}

// A Hold says that jobs are held back: those of a queue, or of one of its groups. See [Inspector.HoldBack].
type Hold struct {
	// Group is the key of the group, "" for the whole queue. Serial says that it is one of scheduler.Serial.
	Group  string
	Serial bool
	// Until is when jobs may start again, by the clock of Redis.
	Until time.Time
	// Job is the ID of the job whose handler or error asked for it, "" if that was an operator.
	Job string
}

// Holds returns what is held back of a queue: the queue as a whole first, then its groups by their keys.
func (i *Inspector) Holds(ctx context.Context, queue string) ([]Hold, error) {
	if err := i.known(ctx, queue); err != nil {
		return nil, err
	}
	all, err := i.store(queue).Settings().Holds(ctx)
	if err != nil {
		return nil, fmt.Errorf("inspect: what is held back of queue %s: %w", queue, err)
	}
	holds := make([]Hold, len(all))
	for n, h := range all {
		holds[n] = Hold{Until: h.Until, Job: h.By}
		if h.Group != "" {
			holds[n].Group, holds[n].Serial = h.Group[1:], h.Group[0] == 's'
		}
	}
	slices.SortStableFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Group, b.Group) })
	return holds, nil
}

// A Group is a group of jobs that is in use: see scheduler.Group.
type Group struct {
	// Key is its key. Serial says that it is one of scheduler.Serial.
	Key    string
	Serial bool
	// Running is how many jobs hold the group: those that run, and those that come to run again without waiting in the line, such as a job of a serial group
	// that waits for its retry.
	Running int64
	// Waiting is how many jobs wait in the group's lines. Scheduled jobs aren't among them.
	Waiting int64
	// Paused says that no job of the group starts until it is resumed: see [Inspector.PauseGroup].
	Paused bool
	// PausedSince is when the group was paused, by the clock of Redis. It is zero if the group isn't paused.
	PausedSince time.Time
	// HeldUntil is when jobs of the group may start again, by the clock of Redis, if it is held back; else zero.
	HeldUntil time.Time
	// Limits are the limits of the group: its own, or those of all groups of the queue. A serial group has one job at a time.
	Limits signalbox.Limits
}

// Groups returns the largest groups of a queue, at most so many: those with the most jobs that run or wait first. more reports whether the queue has others. It looks
// at some 10,000 groups, so of a queue with more of them it may miss some that are larger.
func (i *Inspector) Groups(ctx context.Context, queue string, most int) (groups []Group, more bool, err error) {
	if most < 1 {
		return nil, false, fmt.Errorf("inspect: %w number of groups: %d; want 1 or more", signalbox.ErrInvalid, most)
	}
	if err := i.known(ctx, queue); err != nil {
		return nil, false, err
	}
	all, more, err := i.store(queue).Looks().GroupsInUse(ctx, most)
	if err != nil {
		return nil, false, fmt.Errorf("inspect: groups of queue %s: %w", queue, err)
	}
	groups = make([]Group, len(all))
	for n, g := range all {
		groups[n] = groupOf(g)
	}
	return groups, more, nil
}

// GroupsOf returns the groups of a queue that have a key and are in use: that of scheduler.Group, that of scheduler.Serial, both, or none. Its cost grows with the number of groups
// that have limits of their own, or are paused or held back, and not with that of the others. The error wraps [signalbox.ErrInvalid] if group can't be a key, and [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) GroupsOf(ctx context.Context, queue, group string) (groups []Group, err error) {
	if err := layout.ValidateGroup(group); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if err := i.known(ctx, queue); err != nil {
		return nil, err
	}
	for _, key := range groupKeys(group) {
		g, found, err := i.store(queue).Looks().GroupInUse(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("inspect: a group of queue %s: %w", queue, err)
		}
		if found {
			groups = append(groups, groupOf(g))
		}
	}
	return groups, nil
}

func groupOf(g looks.GroupInUse) Group {
	return Group{Key: g.Key[1:], Serial: g.Key[0] == 's', Running: g.Holding, Waiting: g.Waiting, Paused: g.Paused, PausedSince: g.Since, HeldUntil: g.Until, Limits: g.Limits}
}

func (i *Inspector) limit(ctx context.Context, queue string, l signalbox.Limits, format string, set func(*store.Queue) error) error {
	if err := settings.ValidateLimits(l); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return err
	}
	if err := set(i.store(queue)); err != nil {
		return fmt.Errorf("inspect: "+format, queue, err)
	}
	return nil
}

// SetSlots gives each worker of a queue n slots: so many of its handlers run at the same time in each. n is 1 to 100,000; 0 leaves it to
// each worker's Config. Workers that run change at once, and those that start later have n, too. Jobs that run go on: a worker that
// has more of them than slots takes no others meanwhile. The error wraps [signalbox.ErrInvalid] if n is out of bounds, and [ErrNoQueue]
// if nobody has used the queue.
func (i *Inspector) SetSlots(ctx context.Context, queue string, n int) error {
	if err := settings.ValidateSlots(n); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if err := i.listed(ctx, queue); err != nil {
		return err
	}
	if _, err := i.store(queue).Settings().SetSlots(ctx, n); err != nil {
		return fmt.Errorf("inspect: slots of queue %s: %w", queue, err)
	}
	return nil
}

// Quiet makes a worker take no more jobs, of none of its queues, until [Inspector.Unquiet] or until it ends. Jobs that it has go on. Workers
// are named by their ID: see worker.Worker.ID, the log line "the worker is ready", and Workers of [Inspector.Queue]. changed is
// false if it was quiet already. The error wraps [ErrNoWorker] if no queue of the namespace has a worker of that ID, and [ErrPartial] if some queues couldn't be
// told, as while a server of a Cluster is away: the others were. Call it again then.
func (i *Inspector) Quiet(ctx context.Context, worker string) (changed bool, err error) {
	return i.quiet(ctx, worker, true)
}

// Unquiet lets a worker take jobs again. changed is false if it was not quiet. The error wraps [ErrNoWorker] if no queue of the namespace
// has a worker of that ID, and [ErrState] if the worker was asked to stop, which is final.
func (i *Inspector) Unquiet(ctx context.Context, worker string) (changed bool, err error) {
	return i.quiet(ctx, worker, false)
}

// Stop ends a worker as the end of its Run's context does: it claims no more jobs of any of its queues, its handlers have
// worker.Config.DrainTimeout to end what they do, and then Run returns nil. A worker hears of it within milliseconds, or when it renews its
// lease. Stop doesn't wait for the end: the worker is in [Inspector.Workers] until then. What the process does when Run has returned is up to its program.
// Most programs exit, with status 0. What starts them again, such as a Kubernetes Deployment, starts a worker with another ID.
//
// A stop is final: nothing takes it back. changed is false if the worker was asked to stop already. The error wraps [ErrNoWorker] if no queue of the
// namespace has a worker of that ID. A worker that is too old for a queue doesn't hear of it there.
func (i *Inspector) Stop(ctx context.Context, worker string) (changed bool, err error) {
	return i.tell(ctx, worker, (*settings.Settings).Stop)
}

func (i *Inspector) quiet(ctx context.Context, worker string, on bool) (changed bool, err error) {
	return i.tell(ctx, worker, func(q *settings.Settings, ctx context.Context, worker string) (changed, here bool, err error) {
		return q.Quiet(ctx, worker, on)
	})
}

// tell makes a change for a worker in each queue of the namespace that has it.
func (i *Inspector) tell(ctx context.Context, worker string, do func(q *settings.Settings, ctx context.Context, worker string) (changed, here bool, err error)) (changed bool, err error) {
	queues, err := i.names(ctx)
	if err != nil && len(queues) == 0 {
		return false, err
	}
	errs := []error{err}
	var workers []string
	here := false
	for _, name := range queues {
		one, has, err := do(i.store(name).Settings(), ctx, worker)
		if errors.Is(err, settings.ErrStopping) {
			return changed, fmt.Errorf("%w: worker %s was asked to stop, and that is final: it ends when its jobs have; start another worker", ErrState, worker)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("inspect: worker %s, queue %s: %w", worker, name, err))
		}
		changed, here = changed || one, here || has
	}
	if err := partial(errs...); err != nil || here {
		return changed, err
	}
	for _, name := range queues {
		some, err := i.store(name).Site().Workers(ctx)
		if err != nil {
			return false, fmt.Errorf("inspect: the workers of queue %s: %w", name, err)
		}
		workers = append(workers, some...)
	}
	slices.Sort(workers)
	return false, fmt.Errorf("%w: %.200q in namespace %q: %s", ErrNoWorker, worker, i.cfg.Namespace, list(slices.Compact(workers)))
}

func (i *Inspector) store(queue string) *store.Queue {
	return store.New(i.rdb, i.cfg.Namespace, queue).By(i.cfg.Operator)
}

// maxNamed bounds the queues, or workers, that an error names.
const maxNamed = 10

// known returns an error if nobody has used the queue: a misspelt name would seem to be paused.
func (i *Inspector) known(ctx context.Context, queue string) error {
	if err := layout.ValidateQueue(queue); err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	known, err := i.store(queue).Presence().Known(ctx)
	if err != nil {
		return fmt.Errorf("inspect: queue %s: %w", queue, err)
	}
	if known {
		return nil
	}
	names, err := store.Queues(ctx, i.rdb, i.cfg.Namespace)
	if err != nil {
		return fmt.Errorf("inspect: the names of the queues: %w", err)
	}
	return fmt.Errorf("%w: %.200q in namespace %q: %s. A queue is known once a producer or a worker has used it", ErrNoQueue, queue, i.cfg.Namespace, list(names))
}

// list says which names there are.
func list(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("there are %s and %d more", strings.Join(names[:maxNamed], ", "), more)
	} else if len(names) > 0 {
		return "there are " + strings.Join(names, ", ")
	}
	return "there is none"
}

// listed is known for a call that changes the queue: the queue is among those that [Inspector.Queues] returns from then on, though
// the producer or the worker that uses it may list it a moment later.
func (i *Inspector) listed(ctx context.Context, queue string) error {
	if err := i.known(ctx, queue); err != nil {
		return err
	}
	_ = i.store(queue).Presence().Register(ctx) // who uses the queue does so, too
	return nil
}

func (i *Inspector) read(ctx context.Context, name string) (Queue, error) {
	s := i.store(name)
	settings, err := s.Settings().Read(ctx)
	if err != nil {
		return Queue{}, fmt.Errorf("inspect: queue %s: %w", name, err)
	}
	d, err := s.Looks().Depths(ctx)
	if err != nil {
		return Queue{}, fmt.Errorf("inspect: queue %s: %w", name, err)
	}
	workers, err := s.Site().Workers(ctx)
	if err != nil {
		return Queue{}, fmt.Errorf("inspect: queue %s: %w", name, err)
	}
	return Queue{
		Name: name, Paused: settings.Paused, PausedSince: settings.PausedSince, Retention: settings.Retention, CompletedRetention: settings.Completed, CopyDead: settings.Copies,
		Limits: settings.Limits, GroupLimits: settings.GroupLimits, MaxLength: settings.MaxLength,
		HeldUntil: d.HeldUntil, Limited: d.Limited, Slots: settings.Slots, Quiet: settings.Quiet, Workers: workers,
		Ready: d.Ready, Blocked: d.Blocked, PausedGroups: d.PausedGroups, HeldGroups: d.HeldGroups, Scheduled: d.Scheduled, Running: d.Running, Awaiting: d.Awaiting, Dead: d.Dead, Cancelled: d.Cancelled, Completed: d.Completed, Oldest: d.Oldest,
	}, nil
}
