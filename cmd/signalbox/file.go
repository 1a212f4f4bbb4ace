package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) exportCommand() *cobra.Command {
	c := a.command("export QUEUE", "Write all jobs of a queue to the standard output, as a file", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		p := a.progress("")
		done, err := ins.Export(ctx, args[0], a.out, func(now inspect.Exported) {
			p.print(func() string { return "exported: " + count(now.Jobs) })
		})
		p.end()
		if err != nil {
			return err
		}
		running := ""
		if done.Running > 0 {
			running = fmt.Sprintf("; %s of them ran, and will be ready if the file is imported", count(done.Running))
		}
		a.note("exported %s of queue %s%s", count(done.Jobs), args[0], running)
		if done.Completed > 0 {
			a.note("not in the file: %s that the queue keeps and that have completed", count(done.Completed))
		}
		a.note("not in the file: statistics, what is used up of rates, the last fencing token. docs/cli/files.md says what follows")
		return nil
	})
	c.Long = `Write all jobs of a queue, its settings, and what it knows of the past to the
standard output: a line of JSON for each. The past is what an outbox has sent,
the last ticks and the pauses of cron entries, windows of unique keys, and what
is held back. The file has the arguments of all jobs. "signalbox import" reads
it. Workers may run meanwhile: then each job is as it was at one moment, and the
file isn't the queue at one moment. For that, pause the queue with --wait, and
let producers, relays of outboxes and schedulers wait.

docs/operations/move.md has the steps to move to another Redis.`
	c.Example = `  signalbox export mail > mail.jsonl
  signalbox export mail | gzip > mail.jsonl.gz`
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// importedJSON is what became of a file. docs/cli/json.md has its fields.
type importedJSON struct {
	Queue  string `json:"queue"`
	DryRun bool   `json:"dry_run"`
	Jobs   int64  `json:"jobs"`
	Done   int64  `json:"done"`
	There  int64  `json:"there"`
	Bad    int64  `json:"bad"`
	// Of the past of the file's queue.
	Past      int64 `json:"past"`
	PastThere int64 `json:"past_there"`
	PastOther int64 `json:"past_other"`
}

func (a *app) importCommand() *cobra.Command {
	var o inspect.Importing
	var from fromOther
	var c *cobra.Command
	args := func(c *cobra.Command, list []string) error {
		if c.Flags().Changed("from") {
			return cobra.NoArgs(c, list)
		}
		return cobra.ExactArgs(1)(c, list)
	}
	c = a.command("import {QUEUE | --from asynq} [flags]", "Put the jobs of a file, or the tasks of asynq, into queues", args, func(ctx context.Context, args []string) error {
		if err := from.check(c.Flags().Changed); err != nil {
			return err
		}
		if from.system != "" {
			return a.importAsynq(ctx, &from, o.DryRun)
		}
		queue := args[0]
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		if q, err := ins.Queue(ctx, queue); err == nil && len(q.Workers) > 0 && !q.Paused && !o.DryRun {
			a.note("queue %s has %s: jobs start before the whole file is in, and if the import is repeated after an error, those that have completed start again. To prevent both: signalbox queue pause %s, before", queue, plural(len(q.Workers), "worker"), queue)
		}
		p := a.progress("")
		o.Progress = func(now inspect.Imported) {
			p.print(func() string { return fmt.Sprintf("imported: %s of %d", count(now.Done), now.Jobs) })
		}
		done, err := ins.Import(ctx, queue, a.input(), o)
		p.end()
		if err != nil && !errors.Is(err, inspect.ErrFile) {
			if done.Done > 0 && !o.DryRun {
				err = &partError{fmt.Sprintf("at least %s imported, the call may be repeated", count(done.Done)), err}
			}
			return err
		}
		if a.json() {
			return errors.Join(a.document(importedJSON{queue, o.DryRun, done.Jobs, done.Done, done.There, done.Bad, done.Past, done.PastThere, done.PastOther}), err)
		}
		would := ""
		if o.DryRun {
			would = "would be "
		}
		fmt.Fprintf(a.out, "%s %simported into queue %s\n", count(done.Done), would, queue)
		if done.There > 0 {
			fmt.Fprintf(a.out, "%s left out: the queue has jobs of these IDs\n", count(done.There))
		}
		for _, of := range []struct {
			n    int64
			says string
		}{
			{done.Past, would + "taken over of outboxes, cron entries, unique keys and holds"},
			{done.PastThere, "of these left: the queue knows the same, or something later"},
			{done.PastOther, "left out: the file is of another queue, and outboxes, cron entries and copies of dead jobs go by its name and namespace"},
		} {
			if of.n > 0 {
				fmt.Fprintf(a.out, "%d %s\n", of.n, of.says)
			}
		}
		return err
	})
	c.Long = `Read a file of "signalbox export" from the standard input, and put its jobs into
a queue, which may be new, or have another name. A job whose ID the queue has is
left out, so the call may be repeated. Workers take the jobs at once: pause the
queue before, if it has workers and the file is to be in first.

What the file's queue knew of the past comes in, too, and what this queue knows
that is later stays. Outboxes, cron entries and copies of dead jobs go by the
names of the queue and the namespace: into another queue they don't come.

A line that is no job is left out. The error at the end names it by its number.

With --from asynq the tasks of asynq are moved from its Redis to queues here,
while its servers and producers may go on: pending, scheduled, retrying and
archived ones. It only counts them, and says which can't be moved and why,
until --yes is given. It may be killed and run again, and run several times at
once. docs/from-asynq.md has the steps of a whole service.`
	c.Example = `  signalbox import mail --dry-run < mail.jsonl
  signalbox import mail-old --settings < mail.jsonl
  signalbox import --from asynq
  signalbox import --from asynq --yes`
	from.register(c.Flags())
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "check the file and count its jobs, and put none in")
	c.Flags().BoolVar(&o.Settings, "settings", false, "set the queue's settings to those of the file: paused or not, slots, what is kept")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}
