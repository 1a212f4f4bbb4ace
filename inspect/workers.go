package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A Worker is a worker that has a session with a queue of the namespace. One that died is among them until its sessions have ended.
type Worker struct {
	ID string // see worker.Worker.ID
	// Quiet says that the worker takes no jobs of any of its queues.
	Quiet bool
	// Stopping says that the worker was asked to end (see [Inspector.Stop]), or that it drains since its Run's context has ended, as after a SIGTERM.
	Stopping bool
	Sessions []Session    // sorted by queue
	Running  []RunningJob // the jobs that it has, those that it has for longest first
}

// A Session is the lease of a worker on a queue.
type Session struct {
	Queue string
	// Until is when the lease ends unless the worker renews it, by the clock of Redis.
	Until time.Time
	// Left is the time until then. It is negative if the lease has ended, and nobody has taken the session's jobs back yet.
	Left time.Duration
	// Quiet says that the worker takes no jobs of this queue.
	Quiet bool
}

// A RunningJob is a job that a worker has.
type RunningJob struct {
	Queue, ID string
	// Kind is the job's kind. It is "" if the job's record is gone or has more than 32 KiB, or if another program has written the record with
	// the kind behind other fields. Those of jobs that are stuck are known all the same.
	Kind  string
	Token int64     // the fencing token of the delivery
	Since time.Time // when the worker got the job, by the clock of Redis: see [Job]
	// Cancelling says that the job was asked to end.
	Cancelling bool
	// Stuck is not nil if the job's handler goes on though its context has ended, for longer than worker.Config.StuckAfter.
	Stuck *Stuck
	// Progress is how far the job is, or nil if its handler hasn't said so.
	Progress *Progress
}

// Progress is how far a running job is, as its handler has said by [signalbox.Progress] up to a second ago.
type Progress struct {
	Done, Total int64 // units of work; a total of 0 is not known
	Note        string
	At          time.Time // when the handler said it, by the clock of Redis
}

// progressOf returns the progress of a delivery, or nil.
func progressOf(all []store.Progress, id string, token int64) *Progress {
	for i := range all {
		if p := &all[i]; p.ID == id && p.Token == token {
			return &Progress{p.Done, p.Total, p.Note, p.At}
		}
	}
	return nil
}

// Stuck is what a worker says of a handler that goes on though its context has ended. The worker writes it within a second, and again when
// it renews its lease. It does so for up to 100 handlers of a session, those that are stuck for longest.
type Stuck struct {
	// Since is when the end of the context was seen, by the clock of Redis.
	Since time.Time
	// Stack is that of the handler's goroutine, at the time when it was first reported. It has at most 2,048 bytes, and no arguments of calls. 16
	// handlers of a session have theirs. It is "" for others, and if the process has more than 10,000 goroutines.
	Stack string
	// SlotFreed says that the worker has another job in the handler's slot: see worker.FreeSlot.
	SlotFreed bool
}

// Workers returns the workers of the namespace, sorted by ID, and the jobs that they have: of what a job's record says, only the
// kind. It makes some calls for each queue and each session, and one for each 20 jobs. A queue that can't be read has its name in the error, which wraps [ErrPartial], and is left out.
func (i *Inspector) Workers(ctx context.Context) ([]Worker, error) {
	names, err := i.names(ctx)
	if err != nil && len(names) == 0 {
		return nil, err
	}
	workers := make(map[string]*Worker)
	errs := []error{err}
	for _, name := range names {
		if err := i.addWorkers(ctx, name, workers); err != nil {
			errs = append(errs, fmt.Errorf("inspect: the workers of queue %s: %w", name, err))
		}
	}
	all := make([]Worker, 0, len(workers))
	for _, w := range workers {
		w.Quiet = !slices.ContainsFunc(w.Sessions, func(s Session) bool { return !s.Quiet })
		slices.SortFunc(w.Running, func(a, b RunningJob) int { return a.Since.Compare(b.Since) })
		all = append(all, *w)
	}
	slices.SortFunc(all, func(a, b Worker) int { return strings.Compare(a.ID, b.ID) })
	return all, partial(errs...)
}

// addWorkers adds the sessions of a queue, and what they run.
func (i *Inspector) addWorkers(ctx context.Context, queue string, workers map[string]*Worker) error {
	q := i.store(queue)
	s, err := q.Looks().Situation(ctx)
	if err != nil {
		return err
	}
	leases, err := q.Looks().Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases {
		id := l.Worker()
		w := workers[id]
		if w == nil {
			w = &Worker{ID: id}
			workers[id] = w
		}
		quiet := slices.Contains(s.Settings.Quiet, id)
		w.Stopping = w.Stopping || slices.Contains(s.Settings.Stopping, id)
		w.Sessions = append(w.Sessions, Session{Queue: queue, Until: l.Until, Left: l.Until.Sub(s.At), Quiet: quiet})
		runs, err := q.Looks().Runs(ctx, l.Session)
		if err != nil {
			return err
		}
		stuck, err := q.Sessions().Stuck(ctx, l.Session)
		if err != nil {
			return err
		}
		progress, err := q.Sessions().Progress(ctx, l.Session)
		if err != nil {
			return err
		}
		for _, v := range runs {
			r := RunningJob{Queue: queue, ID: v.Job.ID, Kind: v.Job.Kind, Token: v.Job.Token, Since: v.Job.ClaimedAt, Cancelling: v.Cancelling()}
			for _, s := range stuck {
				if s.ID == r.ID && s.Token == r.Token {
					r.Kind = cmp.Or(r.Kind, s.Kind)
					r.Stuck = &Stuck{Since: s.Since, Stack: s.Stack, SlotFreed: s.Freed}
				}
			}
			r.Progress = progressOf(progress, r.ID, r.Token)
			w.Running = append(w.Running, r)
		}
	}
	return nil
}
