package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) queueHold() *cobra.Command {
	var group string
	var d spanFlag
	var lift bool
	var c *cobra.Command
	c = a.command("hold QUEUE [flags]", "Hold back jobs of a queue for a time, or list what is", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		set := c.Flags().Changed("for")
		switch {
		case set && lift:
			return usage("--for and --lift: want one of them")
		case set && d.d <= 0:
			return usage("--for: want a time of up to 24h, such as 10m; --lift ends what was set")
		case group != "" && !set && !lift:
			return usage("--group goes with --for or --lift")
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		if set || lift {
			until, err := ins.HoldBack(ctx, args[0], group, d.d)
			if err != nil {
				return err
			}
			if set && until.After(a.clock(ctx).Add(d.d)) {
				a.note("%s was held back for longer already, until %s: that counts. --lift ends it", partOf(args[0], group), until.UTC().Format(time.RFC3339))
			}
		}
		return a.printHolds(ctx, ins, args[0])
	})
	c.Long = `Hold back the jobs of a queue, or with --group those of one group, until the
time of --for is over: none of them starts. Jobs that run go on. Then list what
is held back, and which groups are paused. Without flags it only lists.

Handlers hold back jobs too, when another system takes nothing for a while, such
as an API with status 429. BY is the job whose handler did so. --lift ends it at
once, whoever set it. A time that ends earlier than what is set changes nothing.
A pause has no end: see "signalbox queue pause --group".`
	c.Example = `  signalbox queue hold mail
  signalbox queue hold mail --for 10m
  signalbox queue hold mail --group acme --for 1h
  signalbox queue hold mail --group acme --lift`
	c.Flags().StringVar(&group, "group", "", "the jobs of this group, serial or not")
	c.Flags().Var(&d, "for", "for how long from now, at most 24h")
	c.Flags().BoolVar(&lift, "lift", false, "let them start again")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// holdJSON is a hold for programs. docs/cli/json.md has its fields.
type holdJSON struct {
	Group  string  `json:"group"`
	Serial bool    `json:"serial"`
	Until  *string `json:"until"`
	Job    string  `json:"job"`
}

// pausedJSON is a paused group for programs.
type pausedJSON struct {
	Group string  `json:"group"`
	Since *string `json:"since"`
}

func (a *app) printHolds(ctx context.Context, ins *inspect.Inspector, queue string) error {
	holds, err := ins.Holds(ctx, queue)
	if err != nil {
		return err
	}
	paused, err := ins.PausedGroups(ctx, queue)
	if err != nil {
		return err
	}
	if a.json() {
		list := make([]holdJSON, len(holds))
		for i, h := range holds {
			list[i] = holdJSON{h.Group, h.Serial, timestamp(h.Until), h.Job}
		}
		stopped := make([]pausedJSON, 0, len(paused))
		for _, group := range slices.Sorted(maps.Keys(paused)) {
			stopped = append(stopped, pausedJSON{group, timestamp(paused[group])})
		}
		return a.document(struct {
			Queue  string       `json:"queue"`
			Held   []holdJSON   `json:"held"`
			Paused []pausedJSON `json:"paused"`
		}{queue, list, stopped})
	}
	if len(holds)+len(paused) == 0 {
		a.note("Nothing of queue %s is held back, and no group of it is paused.", queue)
		return nil
	}
	t := a.table(column{name: "HELD BACK"}, column{name: "FOR", right: true}, column{name: "UNTIL"}, column{name: "BY"})
	for _, h := range holds {
		by := "an operator"
		if h.Job != "" {
			by = "job " + h.Job
		}
		t.row(holdOf(queue, h), span(time.Until(h.Until)), h.Until.UTC().Format(time.RFC3339), by)
	}
	for _, group := range slices.Sorted(maps.Keys(paused)) {
		t.row("group "+group, "", "it is resumed", "a pause since "+paused[group].UTC().Format(time.RFC3339))
	}
	t.flush()
	return nil
}

// holdOf says what is held back.
func holdOf(queue string, h inspect.Hold) string {
	switch {
	case h.Group == "":
		return "queue " + queue
	case h.Serial:
		return "serial group " + h.Group
	}
	return "group " + h.Group
}
