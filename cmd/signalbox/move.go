package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) jobMv() *cobra.Command {
	var to string
	return a.actCommand(verb{
		name: "mv", short: "Move jobs to another queue", past: "moved",
		states: []signalbox.State{signalbox.StateReady, signalbox.StateScheduled, signalbox.StateDead, signalbox.StateCancelled},
		long: `Move scheduled, ready, dead or cancelled jobs to another queue of the namespace.
They keep their IDs, states, effect keys, and all else. A dead job stays dead:
retry it there to run it. A job is left where it is if the other queue has one
of its ID. If the call is interrupted, jobs may be held in both queues, and no
worker gets them: make the same call again, and it ends what was begun.`,
		example: `  signalbox job mv mail order-17 --to mail-slow
  signalbox job mv mail --state ready --kind newsletter --to mail-slow`,
		action: func(changed func(string) bool) (func(context.Context) inspect.Action, error) {
			if !changed("to") || to == "" {
				return nil, usage("want the other queue: --to QUEUE")
			}
			return func(context.Context) inspect.Action { return inspect.Move{To: to} }, nil
		},
	}, func(c *cobra.Command) {
		c.Flags().StringVar(&to, "to", "", "the `queue` that they are moved to; it must be known: a worker or a job was there once")
		_ = c.RegisterFlagCompletionFunc("to", a.completeQueues(-1))
	})
}

func (a *app) queueDeleteWaiting() *cobra.Command {
	var d inspect.Waiting
	var yes bool
	c := a.command("delete-waiting QUEUE [flags]", "Delete the jobs of a queue that wait to run", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		return a.deleteWaiting(ctx, args[0], d, yes)
	})
	c.Long = `Delete the ready jobs of a queue, and with --scheduled those that wait for their
time or for their next attempt. A job whose time has come counts as ready here,
also if no worker has looked at it yet. This can't be undone. Jobs that run go
on. Dead and cancelled jobs stay: "signalbox job rm" deletes these. No more jobs
are deleted than are there when the command begins.

To make a queue give out no jobs, and keep them, use "signalbox queue pause
--wait". To have a copy of the jobs, use "signalbox export" before.`
	c.Example = `  signalbox queue delete-waiting mail --dry-run
  signalbox queue delete-waiting mail --scheduled --yes`
	c.Flags().BoolVar(&d.Scheduled, "scheduled", false, "delete the scheduled jobs, too")
	c.Flags().BoolVar(&d.DryRun, "dry-run", false, "count the jobs, and delete none")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

func (a *app) deleteWaiting(ctx context.Context, queue string, d inspect.Waiting, yes bool) error {
	if !yes && !d.DryRun && !a.canAsk() {
		return usage("there is no terminal to ask: want --yes, or --dry-run to count the jobs")
	}
	ins, err := a.inspector(ctx)
	if err != nil {
		return err
	}
	which := "ready"
	if d.Scheduled {
		which = "ready or scheduled"
	}
	var counted inspect.BulkCounts
	if !yes {
		p := a.progress("counting")
		look := d
		look.DryRun, look.Progress = true, p.show
		counted, err = ins.DeleteWaiting(ctx, queue, look)
		p.end()
		if err != nil || d.DryRun {
			if err == nil && counted.Matched == 0 && !a.json() {
				return a.noneWaiting(ctx, ins, queue, which)
			}
			if err == nil {
				err = a.printDeleted(queue, which, counted, true)
			}
			return err
		}
		if counted.Matched == 0 {
			if a.json() {
				return a.printDeleted(queue, which, counted, false)
			}
			return a.noneWaiting(ctx, ins, queue, which)
		}
		if err := a.confirm("Delete %s of queue %s?", countOf(counted.Matched, which), queue); err != nil {
			return err
		}
	}
	p := a.progress("deleted")
	p.total = counted.Matched
	d.Progress = p.show
	done, err := ins.DeleteWaiting(ctx, queue, d)
	p.end()
	if err != nil {
		return partly(done, "deleted", err)
	}
	if done.Done == 0 && !a.json() {
		return a.noneWaiting(ctx, ins, queue, which)
	}
	return a.printDeleted(queue, which, done, false)
}

func (a *app) printDeleted(queue, which string, p inspect.BulkCounts, dry bool) error {
	if a.json() {
		return a.document(bulkJSON{queue, dry, p.Seen, p.Matched, p.Done, p.Moved})
	}
	if dry {
		fmt.Fprintf(a.out, "%s of queue %s would be deleted\n", countOf(p.Matched, which), queue)
		return nil
	}
	fmt.Fprintf(a.out, "%s of queue %s deleted\n", countOf(p.Done, which), queue)
	return nil
}

// noneWaiting says that no job was there to delete, and what is left.
func (a *app) noneWaiting(ctx context.Context, ins *inspect.Inspector, queue, which string) error {
	q, err := ins.Queue(ctx, queue)
	if err != nil {
		return err
	}
	left := ""
	if q.Scheduled > 0 && which == "ready" {
		them := "them"
		if q.Scheduled == 1 {
			them = "it"
		}
		left = fmt.Sprintf(" %d scheduled: --scheduled deletes %s, too.", q.Scheduled, them)
	}
	a.note("No job of queue %s is %s.%s", queue, which, left)
	return nil
}

// countOf returns "1 ready job" or "2 ready jobs".
func countOf(n int64, which string) string {
	number, jobs, _ := strings.Cut(count(n), " ")
	return number + " " + which + " " + jobs
}
