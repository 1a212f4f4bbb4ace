package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) jobCommand() *cobra.Command {
	return a.group("job", "List jobs, look at one, and act on them", a.jobLs(), a.jobErrors(), a.jobShow(), a.jobRetry(), a.jobEdit(), a.jobCancel(), a.jobArchive(), a.jobReschedule(),
		a.jobPrioritise(), a.jobMv(), a.jobRm())
}

// tableLimit is how many jobs a table shows if --limit says nothing else. Programs get all of them.
const tableLimit = 50

func (a *app) jobLs() *cobra.Command {
	var f filterFlags
	var after string
	var c *cobra.Command
	c = a.command("ls [QUEUE] [flags]", "List jobs", cobra.MaximumNArgs(1), func(ctx context.Context, args []string) error {
		filters, err := f.filters()
		if err != nil {
			return err
		}
		if after != "" && (len(args) == 0 || len(filters) != 1) {
			return usage("--after goes on with a listing of one queue and one state: want a QUEUE and a --state")
		}
		for i := range filters {
			filters[i].After = after
		}
		if !c.Flags().Changed("limit") && !a.json() {
			f.limit = tableLimit
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		queues := args
		var left error // queues that can't be read
		if len(queues) == 0 {
			all, err := ins.Queues(ctx)
			if left = err; err != nil && len(all) == 0 {
				return err
			}
			if len(all) == 0 {
				a.noQueue()
				return nil
			}
			for _, q := range all {
				queues = append(queues, q.Name)
			}
		}
		l := a.listing(len(args) == 0, f.limit, a.clock(ctx))
		err = errors.Join(l.all(ctx, ins, queues, filters), left)
		l.end(err == nil, len(queues) == 1 && len(filters) == 1)
		return err
	})
	c.Long = `List the jobs of a queue, or of all queues. Flags narrow the list. Running
jobs come first, then ready, scheduled, dead, cancelled and completed ones.
Completed jobs are kept only where "signalbox queue set" says so. FAILED is how
many attempts have failed, of how many make the job dead. GROUP is shown where
jobs have groups.

Dead, cancelled and completed jobs come in the order in which they ended, the
oldest first: --newer-than 10m has those of the last ten minutes. A job whose
time has come is scheduled until a worker of its queue looks: WHEN is "now".

A table has 50 jobs at most unless --limit says otherwise. With -o json each
line is one job, and all jobs come unless --limit is given. The arguments of a
job are shown by "signalbox job show" only.`
	c.Example = `  signalbox job ls mail
  signalbox job ls --state dead
  signalbox job ls mail --state dead --kind email.welcome --error "connection refused" --newer-than 1d`
	f.register(c, states)
	c.Flags().IntVar(&f.limit, "limit", 0, "at most so many jobs; 0: all (default 50 in a table, all with -o json)")
	c.Flags().StringVar(&after, "after", "", "go on behind the job with this `cursor`: the last line of a table that was cut has it, and each job of -o json")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// A listing prints jobs as they come, and knows when there are enough.
type listing struct {
	a      *app
	now    time.Time // by the clock of Redis
	limit  int       // 0: none
	queues bool      // say which queue a job is in
	table  *table

	shown  int
	more   bool // there are more than the limit
	cursor string
}

func (a *app) listing(queues bool, limit int, now time.Time) *listing {
	columns := []column{
		{name: "ID"},
		{name: "KIND", cut: 8, drop: 4},
		{name: "GROUP", cut: 8, drop: 3, hide: true},
		{name: "STATE"},
		{name: "WHEN"},
		{name: "FAILED", right: true, drop: 1},
		{name: "ERROR", cut: 16, drop: 2},
	}
	if queues {
		columns = append([]column{{name: "QUEUE"}}, columns...)
	}
	return &listing{a: a, now: now, limit: limit, queues: queues, table: a.table(columns...)}
}

// all prints the jobs of some queues that any of the filters names.
func (l *listing) all(ctx context.Context, ins *inspect.Inspector, queues []string, filters []inspect.Filter) error {
	for _, queue := range queues {
		for _, f := range filters {
			if l.limit > 0 {
				f.Limit = l.limit - l.shown + 1 // one more: to know whether there is one
			}
			for job, err := range ins.Jobs(ctx, queue, f) {
				if err != nil {
					return err
				}
				if l.limit > 0 && l.shown == l.limit {
					l.more = true
					return nil
				}
				if err := l.job(&job); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (l *listing) job(j *inspect.Job) error {
	l.shown++
	l.cursor = j.Cursor
	if l.a.json() {
		return l.a.document(jobOf(j))
	}
	said := j.LastError
	if j.Err != nil {
		said = j.Err.Error()
	}
	row := []string{j.ID, j.Kind, j.Group, stateOf(j), when(j, l.now), fmt.Sprintf("%d/%d", j.Failed, j.MaxAttempts), said}
	if l.queues {
		row = append([]string{j.Queue}, row...)
	}
	l.table.row(row...)
	return nil
}

// end prints what is left. whole says that nothing failed, and single that a cursor can go on with the listing.
func (l *listing) end(whole, single bool) {
	if l.a.json() {
		return
	}
	if l.shown > 0 {
		l.table.flush()
	}
	switch {
	case !whole:
	case l.shown == 0:
		l.a.note("There is no such job.")
	case l.more && single:
		l.a.note("There are more than these %d: see --limit, or go on with --after %s", l.shown, l.cursor)
	case l.more:
		l.a.note("There are more than these %d: see --limit.", l.shown)
	}
}

func stateOf(j *inspect.Job) string {
	if j.Cancelling {
		return "cancelling"
	}
	return string(j.State)
}

// when says since when a job is in its state, or when it will leave it. It is "" if the job's record is lost, which says so.
func when(j *inspect.Job, now time.Time) string {
	if j.State == signalbox.StateRunning {
		running := "for "
		if j.Cancelling {
			running = "runs for "
		}
		return running + span(max(0, now.Sub(j.Since)))
	}
	if j.DueAt.IsZero() && j.EndedAt.IsZero() {
		return ""
	}
	switch j.State {
	case signalbox.StateScheduled:
		if d := j.DueAt.Sub(now); d > 0 {
			return "in " + span(d)
		}
		return "now"
	case signalbox.StateReady:
		return "for " + span(max(0, now.Sub(j.DueAt)))
	case signalbox.StateDead, signalbox.StateCancelled, signalbox.StateCompleted:
		return span(max(0, now.Sub(j.EndedAt))) + " ago"
	}
	return ""
}

// jobJSON is a job of a listing for programs. docs/cli/json.md has its fields.
type jobJSON struct {
	Queue          string   `json:"queue"`
	ID             string   `json:"id"`
	Kind           string   `json:"kind"`
	State          string   `json:"state"`
	Priority       string   `json:"priority"`
	Failed         int      `json:"failed"`
	MaxAttempts    int      `json:"max_attempts"`
	Crashes        int      `json:"crashes"`
	Survived       int      `json:"survived"`
	TimeoutSeconds float64  `json:"timeout_seconds"`
	RetainSeconds  *float64 `json:"retain_seconds"`
	ExpiresAt      *string  `json:"expires_at"`
	Deadline       *string  `json:"deadline"`
	Group          string   `json:"group"`
	Serial         bool     `json:"serial"`
	YieldOnRetry   bool     `json:"yield_on_retry"`
	Batch          string   `json:"batch"`
	UniqueKey      string   `json:"unique_key"`
	UniqueUntil    string   `json:"unique_until"`
	EnqueuedAt     *string  `json:"enqueued_at"`
	DueAt          *string  `json:"due_at"`
	EndedAt        *string  `json:"ended_at"`
	LastError      string   `json:"last_error"`
	Waits          string   `json:"waits"`
	Worker         string   `json:"worker"`
	Token          int64    `json:"token"`
	Since          *string  `json:"since"`
	Cancelling     bool     `json:"cancelling"`
	TraceID        string   `json:"trace_id"`
	SpanID         string   `json:"span_id"`
	RunTraceID     string   `json:"run_trace_id"`
	RunSpanID      string   `json:"run_span_id"`
	Cursor         string   `json:"cursor"`
	RecordError    string   `json:"record_error"`
}

func jobOf(j *inspect.Job) jobJSON {
	out := jobJSON{
		Queue: j.Queue, ID: j.ID, Kind: j.Kind, State: string(j.State), Priority: j.Priority.String(), Failed: j.Failed,
		MaxAttempts: j.MaxAttempts, Crashes: j.Crashes, Survived: j.Survived, TimeoutSeconds: seconds(j.Timeout), Group: j.Group, Serial: j.Serial, YieldOnRetry: j.YieldOnRetry, EnqueuedAt: timestamp(j.EnqueuedAt),
		DueAt: timestamp(j.DueAt), EndedAt: timestamp(j.EndedAt), ExpiresAt: timestamp(j.ExpiresAt), Deadline: timestamp(j.Deadline), LastError: j.LastError, Waits: j.Waits, Worker: j.Worker, Token: j.Token,
		Since: timestamp(j.Since), Cancelling: j.Cancelling, TraceID: j.TraceID, SpanID: j.SpanID, RunTraceID: j.RunTraceID,
		RunSpanID: j.RunSpanID, Cursor: j.Cursor, Batch: j.Batch, UniqueKey: j.UniqueKey, UniqueUntil: j.UniqueUntil,
	}
	if j.Retain != 0 {
		kept := seconds(max(j.Retain, 0))
		out.RetainSeconds = &kept
	}
	if j.Err != nil {
		out.RecordError = j.Err.Error()
	}
	return out
}
