package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) queueRm() *cobra.Command {
	var matching string
	var how inspect.Removal
	unused := spanFlag{d: 24 * time.Hour}
	var c *cobra.Command
	c = a.command("rm [QUEUE...] [flags]", "Remove queues that are empty and unused", cobra.ArbitraryArgs, func(ctx context.Context, names []string) error {
		changed := c.Flags().Changed
		switch {
		case (len(names) > 0) == changed("matching"):
			return usage("want the names of queues, or --matching")
		case changed("matching") || changed("unused-for"):
			how.UnusedFor = unused.d
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		var removed []string
		var kept []*inspect.InUseError
		var errs []error
		if len(names) == 0 {
			removed, kept, err = ins.RemoveQueues(ctx, matching, how)
			errs = append(errs, err)
		}
		for _, name := range names { // one that is in use doesn't keep the others
			err := ins.RemoveQueue(ctx, name, how)
			switch used := (*inspect.InUseError)(nil); {
			case err == nil:
				removed = append(removed, name)
			case errors.As(err, &used):
				kept = append(kept, used)
				errs = append(errs, err)
			default:
				errs = append(errs, err)
			}
		}
		a.printRemoved(removed, kept, how.DryRun, len(names) == 0)
		return errors.Join(errs...)
	})
	c.Long = `Remove queues that are empty and unused, with their statistics. A later job,
or a worker, makes a queue anew.

A queue stays while it has jobs, also ended ones that are kept; workers; cron
entries; receipts of moves; what outboxes have sent; open windows of unique
keys; settings, a pause, or a hold. Each reason is named, with what to do about
it, and the exit status is 4. --settings removes retention, limits, slots and
the like with the queue.

--matching removes all queues that match a pattern and that nothing keeps, such
as those of tenants that a service names at run time. Those that a worker has
had within --unused-for stay. In a pattern * is any text, ? one character. Run
it from time to time.`
	c.Example = `  signalbox queue rm mail-old
  signalbox queue rm mail-old --settings
  signalbox queue rm --matching 'tenant-*' --unused-for 7d --dry-run`
	c.Flags().StringVar(&matching, "matching", "", "all queues that match this pattern")
	c.Flags().Var(&unused, "unused-for", "only queues that no worker has had for so long; with --matching 24h, else 0s, if it isn't given")
	c.Flags().BoolVar(&how.Settings, "settings", false, "remove settings with the queue, which keep it otherwise")
	c.Flags().BoolVar(&how.DryRun, "dry-run", false, "list the queues that would be removed, and change nothing")
	c.ValidArgsFunction = a.completeQueues(-1)
	return c
}

// printRemoved prints which queues were removed, and those that were kept if they aren't in an error.
func (a *app) printRemoved(removed []string, kept []*inspect.InUseError, dry, all bool) {
	if a.json() {
		type keptJSON struct {
			Queue   string   `json:"queue"`
			Reasons []string `json:"reasons"`
		}
		list := make([]keptJSON, len(kept))
		for i, k := range kept {
			list[i] = keptJSON{k.Queue, k.Reasons}
		}
		_ = a.document(map[string]any{"removed": nonNil(removed), "kept": list, "dry_run": dry})
		return
	}
	did := "queue %s is removed\n"
	if dry {
		did = "queue %s would be removed\n"
	}
	for _, name := range removed {
		fmt.Fprintf(a.out, did, name)
	}
	if !all {
		return
	}
	for _, k := range kept {
		a.note("queue %s stays, because of: %s", k.Queue, strings.Join(k.Reasons, "; "))
	}
	if len(removed)+len(kept) == 0 {
		a.note("No queue matches. Other namespaces: --namespace.")
	}
}
