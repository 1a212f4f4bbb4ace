package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) jobRetry() *cobra.Command {
	return a.actCommand(verb{
		name: "retry", short: "Run jobs again, or now", past: "retried", already: signalbox.StateReady, states: resting,
		long: "Make dead, cancelled, completed or scheduled jobs ready now. Attempts of a job\nthat had ended count from 0 again.",
		example: `  signalbox job retry mail order-17
  signalbox job retry mail --state dead --kind email.welcome --error "connection refused"
  signalbox job retry mail --state dead --newer-than 1d --yes`,
		action: always(inspect.Retry{}),
	}, nil)
}

// resting are the states of jobs that don't run, and don't wait for a batch.
var resting = states[1 : len(states)-1]

// always returns the action of a verb that has no flags of its own.
func always(act inspect.Action) func(func(string) bool) (func(context.Context) inspect.Action, error) {
	return func(func(string) bool) (func(context.Context) inspect.Action, error) {
		return func(context.Context) inspect.Action { return act }, nil
	}
}

func (a *app) jobCancel() *cobra.Command {
	var why string
	return a.actCommand(verb{
		name: "cancel", short: "End jobs before they are done, also while they run", past: "cancelled", already: signalbox.StateCancelled,
		states: []signalbox.State{signalbox.StateRunning, signalbox.StateReady, signalbox.StateScheduled, signalbox.StateAwaiting, signalbox.StateCancelled},
		long: `Cancel scheduled, ready or running jobs: they end cancelled and are not retried.
A running job's handler is asked to end, by its context. The job ends when the
handler has returned. Cancelled jobs are kept for a while, and can be retried.`,
		example: `  signalbox job cancel mail order-17 --why "sent by hand"
  signalbox job cancel mail --state ready --kind newsletter`,
		action: func(func(string) bool) (func(context.Context) inspect.Action, error) {
			return func(context.Context) inspect.Action { return inspect.Cancel{Why: why} }, nil
		},
	}, func(c *cobra.Command) {
		c.Flags().StringVar(&why, "why", "", "the reason, for whoever looks at the job")
		allowEmpty(c, "why")
	})
}

func (a *app) jobArchive() *cobra.Command {
	var why string
	return a.actCommand(verb{
		name: "archive", short: "Make jobs dead that wait, to keep them from running", past: "archived", already: signalbox.StateDead,
		states: []signalbox.State{signalbox.StateReady, signalbox.StateScheduled, signalbox.StateAwaiting, signalbox.StateDead},
		long: `Archive scheduled or ready jobs: they are dead, and kept as dead jobs are. No
worker is told, and no alert is raised. They can be retried. A running job is to
be cancelled.`,
		example: `  signalbox job archive mail order-17 --why "the customer has left"
  signalbox job archive mail --state scheduled --kind newsletter`,
		action: func(func(string) bool) (func(context.Context) inspect.Action, error) {
			return func(context.Context) inspect.Action { return inspect.Archive{Why: why} }, nil
		},
	}, func(c *cobra.Command) {
		c.Flags().StringVar(&why, "why", "", "the reason, for whoever looks at the job")
		allowEmpty(c, "why")
	})
}

func (a *app) jobRm() *cobra.Command {
	return a.actCommand(verb{
		name: "rm", short: "Delete jobs for good", past: "deleted", destroys: true, states: states[1:],
		long: "Delete jobs with their arguments, in any state but running. This can't be\nundone. A running job is to be cancelled first.",
		example: `  signalbox job rm mail order-17
  signalbox job rm mail --state dead --older-than 7d --dry-run`,
		action: always(inspect.Delete{}),
	}, nil)
}

func (a *app) jobReschedule() *cobra.Command {
	var at string
	var after spanFlag
	return a.actCommand(verb{
		name: "reschedule", short: "Change when jobs are due", past: "rescheduled", states: resting,
		long: "Change when jobs are due that aren't running. Attempts of a job that had ended\ncount from 0 again.",
		example: `  signalbox job reschedule mail order-17 --at 2026-01-31T09:00:00Z
  signalbox job reschedule mail --state ready --kind newsletter --after 6h`,
		action: func(changed func(string) bool) (func(context.Context) inspect.Action, error) {
			if changed("at") == changed("after") {
				return nil, usage("want one of --at and --after")
			}
			if changed("after") {
				return func(ctx context.Context) inspect.Action { return inspect.Reschedule{At: a.clock(ctx).Add(after.d)} }, nil
			}
			t, err := parseTime("--at", at)
			return func(context.Context) inspect.Action { return inspect.Reschedule{At: t} }, err
		},
	}, func(c *cobra.Command) {
		c.Flags().StringVar(&at, "at", "", "the `time`, in RFC 3339: 2026-01-31T09:00:00Z")
		c.Flags().Var(&after, "after", "so much later than now, such as 90s, 2h or 3d")
	})
}

func (a *app) jobPrioritise() *cobra.Command {
	var to string
	return a.actCommand(verb{
		name: "prioritise", short: "Change the priority of jobs", past: "changed", states: []signalbox.State{signalbox.StateReady, signalbox.StateScheduled, signalbox.StateAwaiting},
		long: "Change the priority of scheduled or ready jobs within their queue.",
		example: `  signalbox job prioritise mail order-17 --to high
  signalbox job prioritise mail --state ready --kind newsletter --to low`,
		action: func(func(string) bool) (func(context.Context) inspect.Action, error) {
			p, err := parsePriority("--to", to)
			return func(context.Context) inspect.Action { return inspect.Prioritise{To: p} }, err
		},
	}, func(c *cobra.Command) {
		c.Flags().StringVar(&to, "to", "", "high, normal or low")
		_ = c.RegisterFlagCompletionFunc("to", priorities)
	})
}

var priorities = cobra.FixedCompletions([]string{"high", "normal", "low"}, cobra.ShellCompDirectiveNoFileComp)

func (a *app) jobEdit() *cobra.Command {
	var text string
	var edit inspect.Edit
	var timeout spanFlag
	var c *cobra.Command
	c = a.command("edit QUEUE ID [flags]", "Change a job's arguments or limits, and perhaps run it again", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		changed := c.Flags().Changed
		edit.Timeout = timeout.d
		if changed("max-attempts") && edit.MaxAttempts < 1 {
			return usage("--max-attempts %d: want 1 or more", edit.MaxAttempts)
		}
		if changed("job-timeout") && timeout.d == 0 {
			return usage("--job-timeout 0s: want a longer time; a timeout of a job can't be taken away")
		}
		if changed("args") {
			payload, err := a.payload(text)
			if err != nil {
				return err
			}
			edit.Payload = payload
		}
		byHand := !changed("args") && !changed("max-attempts") && !changed("job-timeout")
		if byHand && !a.canAsk() {
			return usage("nothing to change, and no terminal for an editor: want --args, --max-attempts or --job-timeout")
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		if byHand {
			if edit.Payload, err = a.editPayload(ctx, ins, args[0], args[1]); err != nil {
				return err
			}
		}
		was, err := ins.Do(ctx, args[0], args[1], edit)
		if err != nil {
			return err
		}
		return a.printEdited(args[0], args[1], string(was), edit.Run)
	})
	c.Long = `Change a job's arguments or limits. With --run it runs again at once, in the
same step: so a job is mended that died of its arguments.

Without --args and the others it opens the arguments in an editor: that of
VISUAL or EDITOR, else vi. A running job can't be changed.`
	c.Example = `  signalbox job edit mail order-17 --run
  signalbox job edit mail order-17 --args '{"to":"ann@example.org"}' --run
  signalbox job edit mail order-17 --max-attempts 50`
	c.Flags().StringVar(&text, "args", "", "the new arguments as `JSON`, @FILE to read a file, or - to read the standard input")
	c.Flags().IntVar(&edit.MaxAttempts, "max-attempts", 0, "how often the job is tried before it is dead")
	c.Flags().Var(&timeout, "job-timeout", "bound of each attempt")
	c.Flags().BoolVar(&edit.Run, "run", false, "run the job at once")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}
