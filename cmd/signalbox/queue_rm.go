package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
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
			if removed, kept, err = ins.RemoveQueues(ctx, matching, how); errors.Is(err, signalbox.ErrInvalid) {
				return err
			}
			errs = append(errs, err)
		}
		for _, name := range names { // one that is in use doesn't keep the others
			err := ins.RemoveQueue(ctx, name, how)
			switch used := (*inspect.InUseError)(nil); {
			case err == nil:
				removed = append(removed, name)
			case errors.As(err, &used):
				kept = append(kept, used)
			default:
				errs = append(errs, err)
			}
		}
		a.printRemoved(removed, kept, how.DryRun, len(names) == 0)
		if len(names) > 0 && len(kept) > 0 {
			errs = append(errs, &keptError{kept})
		}
		return errors.Join(errs...)
	})
	c.Long = `Remove queues that are empty and unused, with their statistics. A later job,
or a worker, makes a queue anew.

A queue stays while it has jobs, also ended ones that are kept; workers; cron
entries; receipts of moves; what outboxes have sent; open windows of unique
keys; settings, a pause, or a hold. Each reason is named in a line of its own,
with what to do about it, and the exit status is 4. --settings removes
retention, limits, slots and the like with the queue.

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

// A keptError says that queues were not removed which were named.
type keptError struct{ kept []*inspect.InUseError }

func (e *keptError) Error() string {
	names := make([]string, len(e.kept))
	for i, k := range e.kept {
		names[i] = k.Queue
	}
	if len(names) == 1 {
		return "queue " + names[0] + " isn't removed: it is in use"
	}
	return "queues " + strings.Join(names, ", ") + " aren't removed: they are in use"
}

func (e *keptError) Unwrap() error { return inspect.ErrInUse }

// list returns what keeps the queues, a reason a line.
func (e *keptError) list() string {
	var text strings.Builder
	for _, k := range e.kept {
		if len(e.kept) > 1 {
			fmt.Fprintf(&text, "queue %s:\n", clean(k.Queue))
		}
		text.WriteString(reasonLines(k) + "\n")
	}
	return text.String()
}

// reasonLines returns what keeps a queue, a reason a line.
func reasonLines(k *inspect.InUseError) string {
	lines := make([]string, len(k.Reasons))
	for i, reason := range k.Reasons {
		lines[i] = "  - " + oneLine(reason)
	}
	return strings.Join(lines, "\n")
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
		a.note("queue %s stays:\n%s", clean(k.Queue), reasonLines(k))
	}
	if len(removed)+len(kept) == 0 {
		a.note("No queue matches. Other namespaces: --namespace.")
	}
}
