package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) queueCommand() *cobra.Command {
	return a.group("queue", "List queues and their statistics, pause them, change settings", a.queueLs(), a.queueStats(), a.queueMemory(), a.queuePause(), a.queueResume(), a.queueDeleteWaiting(), a.queueRm(), a.queueSet(), a.queueSettings(), a.queueLimit(), a.queueHold(), a.queueGroups())
}

func (a *app) queueLs() *cobra.Command {
	c := a.command("ls [QUEUE...]", "List queues: jobs by state, workers, settings", cobra.ArbitraryArgs,
		func(ctx context.Context, names []string) error {
			ins, err := a.inspector(ctx)
			if err != nil {
				return err
			}
			if len(names) == 0 {
				queues, err := ins.Queues(ctx) // those that can't be read are in the error
				if err != nil && len(queues) == 0 {
					return err
				}
				return errors.Join(a.printQueues(queues), err)
			}
			queues := make([]inspect.Queue, 0, len(names))
			for _, name := range names {
				q, err := ins.Queue(ctx, name)
				if err != nil {
					return err
				}
				queues = append(queues, q)
			}
			return a.printQueues(queues)
		})
	c.Long = `List the queues of the namespace, or some of them.

STATE says whether jobs may start: "paused"; "held" back for a time, as
"signalbox queue hold" lists; "limited": jobs are ready, and the limits of the
queue let none start now; else "active". Behind that is how many groups are
paused. Others may be held back or limited: see "signalbox queue groups".

OLDEST is how long the oldest job that could run has waited. WORKERS is how many
work the queue. SLOTS is how many jobs of it each worker runs at a time, as
"signalbox queue set" says; "-": as each worker is configured. BLOCKED are jobs
that are ready, and whose group lets none start: it is paused, held back or at
its limits. They and completed jobs are shown where there are any.`
	c.ValidArgsFunction = a.completeQueues(-1)
	return c
}

// queueJSON is a queue for programs. docs/cli/json.md has its fields.
type queueJSON struct {
	Queue         string         `json:"queue"`
	State         string         `json:"state"`
	Paused        bool           `json:"paused"`
	PausedSince   *string        `json:"paused_since"`
	HeldUntil     *string        `json:"held_until"`
	PausedGroups  int64          `json:"paused_groups"`
	HeldGroups    int64          `json:"held_groups"`
	Ready         int64          `json:"ready"`
	Blocked       int64          `json:"blocked"`
	Scheduled     int64          `json:"scheduled"`
	Awaiting      int64          `json:"awaiting"`
	Running       int64          `json:"running"`
	Dead          int64          `json:"dead"`
	Cancelled     int64          `json:"cancelled"`
	Completed     int64          `json:"completed"`
	OldestSeconds float64        `json:"oldest_seconds"`
	Slots         int            `json:"slots"`
	Retention     retentionJSON  `json:"retention"`
	KeepCompleted *retentionJSON `json:"retention_completed"`
	CopyDead      string         `json:"copy_dead"`
	MaxLength     int            `json:"max_length"`
	Workers       []string       `json:"workers"`
	Quiet         []string       `json:"quiet"`
}

type retentionJSON struct {
	Jobs       int64   `json:"jobs"`
	Bytes      int64   `json:"bytes"`
	AgeSeconds float64 `json:"age_seconds"`
}

func retentionOf(r signalbox.Retention) retentionJSON {
	return retentionJSON{r.Jobs, r.Bytes, seconds(r.Age)}
}

// completedOf returns what a queue keeps of its completed jobs, or nil if it keeps none.
func completedOf(q *inspect.Queue) *retentionJSON {
	if q.CompletedRetention == (signalbox.Retention{}) {
		return nil
	}
	r := retentionOf(q.CompletedRetention)
	return &r
}

func (a *app) printQueues(queues []inspect.Queue) error {
	if a.json() {
		list := make([]queueJSON, len(queues))
		for i, q := range queues {
			list[i] = queueJSON{
				Queue: q.Name, State: q.State(), Paused: q.Paused, PausedSince: timestamp(q.PausedSince), HeldUntil: timestamp(q.HeldUntil), PausedGroups: q.PausedGroups, HeldGroups: q.HeldGroups, Ready: q.Ready, Blocked: q.Blocked, Scheduled: q.Scheduled, Awaiting: q.Awaiting, Running: q.Running,
				Dead: q.Dead, Cancelled: q.Cancelled, Completed: q.Completed, OldestSeconds: seconds(q.Oldest), Slots: q.Slots,
				Retention: retentionOf(q.Retention), KeepCompleted: completedOf(&q), CopyDead: q.CopyDead, MaxLength: q.MaxLength,
				Workers: nonNil(q.Workers), Quiet: nonNil(q.Quiet),
			}
		}
		return a.document(map[string]any{"queues": list})
	}
	if len(queues) == 0 {
		a.noQueue()
		return nil
	}
	keeps := slices.ContainsFunc(queues, func(q inspect.Queue) bool { return q.Completed > 0 || q.CompletedRetention != (signalbox.Retention{}) })
	blocks := slices.ContainsFunc(queues, func(q inspect.Queue) bool { return q.Blocked > 0 })
	awaits := slices.ContainsFunc(queues, func(q inspect.Queue) bool { return q.Awaiting > 0 })
	columns := []column{
		{name: "QUEUE"},
		{name: "STATE"},
		{name: "READY", right: true},
	}
	if blocks { // most have no groups
		columns = append(columns, column{name: "BLOCKED", right: true})
	}
	columns = append(columns, column{name: "SCHEDULED", right: true})
	if awaits { // most have no batches
		columns = append(columns, column{name: "AWAITING", right: true})
	}
	columns = append(columns,
		column{name: "RUNNING", right: true},
		column{name: "DEAD", right: true},
		column{name: "CANCELLED", right: true, drop: 3},
	)
	if keeps { // most keep none
		columns = append(columns, column{name: "COMPLETED", right: true, drop: 1})
	}
	columns = append(columns,
		column{name: "OLDEST", right: true, drop: 4},
		column{name: "WORKERS", right: true, drop: 2},
		column{name: "SLOTS", right: true, drop: 1},
	)
	t := a.table(columns...)
	for _, q := range queues {
		oldest, slots := "", ""
		if q.Oldest > 0 {
			oldest = span(q.Oldest)
		}
		if q.Slots > 0 {
			slots = strconv.Itoa(q.Slots)
		}
		workers := strconv.Itoa(len(q.Workers))
		quiet := 0 // a worker that has lost its lease may be quiet and not listed
		for _, id := range q.Quiet {
			if slices.Contains(q.Workers, id) {
				quiet++
			}
		}
		if quiet > 0 {
			workers += fmt.Sprintf(" (%d quiet)", quiet)
		}
		row := []string{q.Name, queueState(&q), number(q.Ready - q.Blocked)}
		if blocks {
			row = append(row, number(q.Blocked))
		}
		row = append(row, number(q.Scheduled))
		if awaits {
			row = append(row, number(q.Awaiting))
		}
		row = append(row, number(q.Running), number(q.Dead), number(q.Cancelled))
		if keeps {
			row = append(row, number(q.Completed))
		}
		t.row(append(row, oldest, workers, slots)...)
	}
	t.flush()
	return nil
}

// queueState says in a word whether jobs of a queue may start, and how many of its groups are paused or held back.
func queueState(q *inspect.Queue) string {
	if groups := stoppedGroups(q.PausedGroups, q.HeldGroups); groups != "" {
		return fmt.Sprintf("%s (%s)", q.State(), groups)
	}
	return q.State()
}

// stoppedGroups says how many groups are paused, and held back, or nothing.
func stoppedGroups(paused, held int64) string {
	switch {
	case paused > 0 && held > 0:
		return fmt.Sprintf("%s paused, %d held", plural(int(paused), "group"), held)
	case paused > 0:
		return plural(int(paused), "group") + " paused"
	case held > 0:
		return plural(int(held), "group") + " held"
	}
	return ""
}

// noQueue says that the namespace has no queue.
func (a *app) noQueue() {
	a.note("There is no queue in namespace %q. A queue is known once a producer or a worker has used it. Other namespaces: --namespace.", a.namespace())
}

func (a *app) queuePause() *cobra.Command {
	var wait bool
	pause := func(ins *inspect.Inspector, ctx context.Context, queue, group string) (changed bool, err error) {
		if group == "" {
			changed, err = ins.Pause(ctx, queue)
		} else {
			changed, err = ins.PauseGroup(ctx, queue, group)
		}
		if err == nil && wait {
			err = a.idle(ctx, ins, queue, group)
		}
		return changed, err
	}
	c := a.queueSwitch("pause QUEUE [flags]", "Pause a queue or a group: no job of it starts until a resume", true, pause,
		"%s is paused; jobs that run go on, and new ones wait\n", "%s was paused already\n")
	c.Long = `Pause a queue, or with --group one of its groups: no delivery of a job begins
until "signalbox queue resume", also no retry. Jobs that run go on, and new ones
wait. "signalbox queue hold" keeps jobs from starting for a time, and lists what
is paused.`
	c.Example = `  signalbox queue pause mail --wait
  signalbox queue pause mail --group acme`
	c.Flags().BoolVar(&wait, "wait", false, "then wait until no job of it runs")
	return c
}

// lookEvery is how often a queue is looked at that is to become idle.
const lookEvery = 200 * time.Millisecond

// idle returns when no job of a paused queue, or of a paused group of it, runs.
func (a *app) idle(ctx context.Context, ins *inspect.Inspector, queue, group string) error {
	paused := func(err error) error {
		return &partError{fmt.Sprintf("%s is paused, and jobs of it may run", partOf(queue, group)), err}
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for said := false; ; {
		running, err := runs(ctx, ins, queue, group)
		if err != nil {
			return paused(err)
		}
		if running == 0 {
			return nil
		}
		if !said {
			said = true
			a.note("%s is paused; waiting for %s (Ctrl-C leaves it paused)", partOf(queue, group), countOf(running, "running"))
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return paused(ctx.Err())
		}
	}
}

// runs returns how many jobs run, of a queue or of a group of it.
func runs(ctx context.Context, ins *inspect.Inspector, queue, group string) (n int64, err error) {
	if group == "" {
		q, err := ins.Queue(ctx, queue)
		return q.Running, err
	}
	for _, err := range ins.Jobs(ctx, queue, inspect.Filter{State: signalbox.StateRunning, Group: group}) {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// partOf names a queue, or a group of it.
func partOf(queue, group string) string {
	if group == "" {
		return "queue " + queue
	}
	return "group " + group + " of queue " + queue
}

func (a *app) queueResume() *cobra.Command {
	resume := func(ins *inspect.Inspector, ctx context.Context, queue, group string) (bool, error) {
		if group == "" {
			return ins.Resume(ctx, queue)
		}
		return ins.ResumeGroup(ctx, queue, group)
	}
	c := a.queueSwitch("resume QUEUE [flags]", "Resume a queue or a group that was paused", false, resume, "%s is resumed\n", "%s was not paused\n")
	c.Example = `  signalbox queue resume mail
  signalbox queue resume mail --group acme`
	return c
}

// queueSwitch pauses or resumes a queue, or a group of it.
func (a *app) queueSwitch(use, short string, paused bool, do func(ins *inspect.Inspector, ctx context.Context, queue, group string) (bool, error), did, was string) *cobra.Command {
	var group string
	c := a.command(use, short, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		changed, err := do(ins, ctx, args[0], group)
		if err != nil {
			return err
		}
		if a.json() {
			return a.document(struct {
				Queue   string `json:"queue"`
				Group   string `json:"group"`
				Paused  bool   `json:"paused"`
				Changed bool   `json:"changed"`
			}{args[0], group, paused, changed})
		}
		text := did
		if !changed {
			text = was
		}
		fmt.Fprintf(a.out, text, partOf(args[0], group))
		if paused && group != "" {
			if groups, err := ins.GroupsOf(ctx, args[0], group); err == nil && len(groups) == 0 {
				a.note("No job of this group is ready or runs now: is the key right? One that comes, or is scheduled, will wait.")
			}
		}
		if !paused && !changed && group == "" {
			if groups, err := ins.PausedGroups(ctx, args[0]); err == nil && len(groups) > 0 {
				a.note("Groups of it are paused: signalbox queue hold %s lists them, and --group KEY resumes one.", args[0])
			}
		}
		return nil
	})
	c.Flags().StringVar(&group, "group", "", "only the group of this key, serial or not")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// A change is a call of package inspect that changes one thing, and says whether that was not so already.
type change func(ins *inspect.Inspector, ctx context.Context, name string) (changed bool, err error)

// changeCommand makes a change to what its argument names. It prints did or was, with the name, or the document for programs.
func (a *app) changeCommand(use, short string, do change, did, was string, document func(name string, changed bool) any) *cobra.Command {
	return a.command(use, short, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		changed, err := do(ins, ctx, args[0])
		if err != nil {
			return err
		}
		if a.json() {
			return a.document(document(args[0], changed))
		}
		if !changed {
			did = was
		}
		fmt.Fprintf(a.out, did, args[0])
		return nil
	})
}

func (a *app) queueSet() *cobra.Command {
	var slots int
	var keep signalbox.Retention
	var age spanFlag
	var most bytesFlag
	var completed completedFlags
	var copyDead string
	var reset []string
	var c *cobra.Command
	c = a.command("set QUEUE [flags]", "Change settings: slots of workers, what is kept of ended jobs", cobra.ExactArgs(1),
		func(ctx context.Context, args []string) error {
			changed := c.Flags().Changed
			retention := changed("keep-jobs") || changed("keep-bytes") || changed("keep-age")
			if !retention && !changed("slots") && !completed.given(changed) && !changed("copy-dead") && len(reset) == 0 {
				return usage("nothing to set; want one of --slots, --keep-jobs, --keep-bytes, --keep-age, --keep-completed, --copy-dead, --reset")
			}
			for _, name := range reset {
				if !slices.Contains(configSettings, name) {
					return usage("--reset: want names of %s; for one group: signalbox queue limit QUEUE --group GROUP --reset", strings.Join(configSettings, ", "))
				}
			}
			if err := completed.check(changed); err != nil {
				return err
			}
			ins, err := a.inspector(ctx)
			if err != nil {
				return err
			}
			q, err := ins.Queue(ctx, args[0])
			if err != nil {
				return err
			}
			if retention {
				// What no flag names stays as it is.
				if changed("keep-jobs") {
					q.Retention.Jobs = keep.Jobs
				}
				if changed("keep-bytes") {
					q.Retention.Bytes = most.n
				}
				if changed("keep-age") {
					q.Retention.Age = age.d
				}
				if err := ins.SetRetention(ctx, args[0], q.Retention); err != nil {
					return err
				}
			}
			if completed.given(changed) {
				if err := ins.SetCompletedRetention(ctx, args[0], completed.of(q.CompletedRetention, changed)); err != nil {
					return err
				}
			}
			if changed("copy-dead") {
				if err := ins.SetCopyDead(ctx, args[0], copyDead); err != nil {
					return err
				}
				if copyDead != "" && !a.json() {
					a.noteNobody(ctx, ins, copyDead)
				}
			}
			for _, name := range reset {
				if _, err := ins.Reset(ctx, args[0], name); err != nil {
					return err
				}
			}
			if changed("slots") {
				if err := ins.SetSlots(ctx, args[0], slots); err != nil {
					return err
				}
			}
			if q, err = ins.Queue(ctx, args[0]); err != nil {
				return err
			}
			if len(reset) > 0 && !a.json() {
				return a.printWho(ctx, ins, args[0], reset)
			}
			return a.printSettings(q, completed.given(changed), changed("copy-dead"))
		})
	c.Long = `Change a queue's settings. Workers that run heed them at once, and those that
start later as well.

--slots is how many jobs of the queue each worker runs at the same time.
The --keep flags say what is kept of the dead jobs, and likewise of the
cancelled ones. What is beyond is dropped, the oldest first. 0 sets a value
back: --slots to that of each worker's configuration, a --keep flag to its
default.

Completed jobs are deleted unless --keep-completed is set. They have limits of
their own, and each of those flags has them kept. --keep-completed=false ends
it, and drops those that were kept.

--copy-dead names another queue: each job that dies from now on is copied to
it, and the dead job stays where it is. An empty name ends it. The command
warns if no worker works the other queue: its name may be misspelt.

What is set here, or by signalbox queue limit, stays until the value in the
Config of the queue's workers changes. --reset takes the Config's value again,
or removes the setting if no worker has told one for three minutes. It is given
names as in Config: Limits, GroupLimits, MaxLength, CopyDead, Retention,
CompletedRetention. signalbox queue settings shows who has set what, and when.`
	c.Example = `  signalbox queue set mail --slots 5
  signalbox queue set mail --keep-age 7d --keep-jobs 10000
  signalbox queue set mail --keep-completed-age 24h
  signalbox queue set mail --keep-completed=false
  signalbox queue set mail --copy-dead mail-dead
  signalbox queue set mail --reset Limits,Retention`
	c.Flags().IntVar(&slots, "slots", 0, "slots of each worker, 1 to 100,000; 0: as each worker is configured")
	c.Flags().Int64Var(&keep.Jobs, "keep-jobs", 0, "how many dead jobs are kept, and how many cancelled ones; 0: 100,000")
	c.Flags().Var(&most, "keep-bytes", "how many bytes of each, such as 64MiB; 0: 256MiB")
	c.Flags().Var(&age, "keep-age", "for how long, such as 12h or 30d; 0s: 30d")
	completed.register(c)
	c.Flags().StringVar(&copyDead, "copy-dead", "", `queue that gets a copy of each dead job; "": none`)
	allowEmpty(c, "copy-dead")
	c.Flags().StringSliceVar(&reset, "reset", nil, "settings that get the value of the workers' Config again, such as Limits,Retention")
	_ = c.RegisterFlagCompletionFunc("reset", cobra.FixedCompletions(configSettings, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("copy-dead", a.completeQueues(-1))
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// defaultKept is the default of signalbox.Retention.Jobs.
const defaultKept = 100_000

// completedFlags say which completed jobs a queue keeps.
type completedFlags struct {
	on   bool
	jobs int64
	most bytesFlag
	age  spanFlag
}

func (f *completedFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&f.on, "keep-completed", false, "keep completed jobs; =false: delete them")
	c.Flags().Int64Var(&f.jobs, "keep-completed-jobs", 0, "how many of them; 0: 100,000")
	c.Flags().Var(&f.most, "keep-completed-bytes", "how many bytes of them, such as 64MiB; 0: 256MiB")
	c.Flags().Var(&f.age, "keep-completed-age", "for how long, such as 12h or 30d; 0s: 30d")
}

// limited reports whether a limit is given.
func (f *completedFlags) limited(changed func(string) bool) bool {
	return changed("keep-completed-jobs") || changed("keep-completed-bytes") || changed("keep-completed-age")
}

// given reports whether the flags say anything.
func (f *completedFlags) given(changed func(string) bool) bool {
	return changed("keep-completed") || f.limited(changed)
}

func (f *completedFlags) check(changed func(string) bool) error {
	if changed("keep-completed") && !f.on && f.limited(changed) {
		return usage("--keep-completed=false and a limit of what is kept: want one of them")
	}
	return nil
}

// of returns the retention that the flags make of another. What no flag names stays as it is.
func (f *completedFlags) of(r signalbox.Retention, changed func(string) bool) signalbox.Retention {
	if changed("keep-completed") && !f.on {
		return signalbox.Retention{}
	}
	if changed("keep-completed-jobs") {
		r.Jobs = f.jobs
	}
	if changed("keep-completed-bytes") {
		r.Bytes = f.most.n
	}
	if changed("keep-completed-age") {
		r.Age = f.age.d
	}
	if r == (signalbox.Retention{}) {
		r.Jobs = defaultKept // the others have their defaults, too
	}
	return r
}

// printSettings prints the settings. Those of completed jobs are among them if some are kept, or if said asks for them, and where dead jobs are copied
// to if they are, or if copies asks for it.
func (a *app) printSettings(q inspect.Queue, said, copies bool) error {
	if a.json() {
		return a.document(struct {
			Queue         string         `json:"queue"`
			Slots         int            `json:"slots"`
			Retention     retentionJSON  `json:"retention"`
			KeepCompleted *retentionJSON `json:"retention_completed"`
			CopyDead      string         `json:"copy_dead"`
		}{q.Name, q.Slots, retentionOf(q.Retention), completedOf(&q), q.CopyDead})
	}
	or := func(set bool, text, otherwise string) string {
		if set {
			return text
		}
		return otherwise
	}
	fmt.Fprintf(a.out, "queue %s: slots %s, keeps %s jobs, %s, for %s\n", q.Name,
		or(q.Slots > 0, strconv.Itoa(q.Slots), "as each worker is configured"),
		or(q.Retention.Jobs > 0, number(q.Retention.Jobs), "100000"),
		or(q.Retention.Bytes > 0, size(q.Retention.Bytes), "256 MiB"),
		or(q.Retention.Age > 0, span(q.Retention.Age), "30d"))
	if r := q.CompletedRetention; r != (signalbox.Retention{}) {
		fmt.Fprintf(a.out, "queue %s: keeps %s completed jobs, %s, for %s\n", q.Name, number(r.Jobs), size(r.Bytes), span(r.Age))
	} else if said {
		fmt.Fprintf(a.out, "queue %s: keeps no completed jobs\n", q.Name)
	}
	if q.CopyDead != "" {
		fmt.Fprintf(a.out, "queue %s: copies its dead jobs to queue %s\n", q.Name, q.CopyDead)
	} else if copies {
		fmt.Fprintf(a.out, "queue %s: copies no dead jobs\n", q.Name)
	}
	return nil
}
