package main

import (
	"context"
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
			if _, err := ins.HoldBack(ctx, args[0], group, d.d); err != nil {
				return err
			}
		}
		return a.printHolds(ctx, ins, args[0])
	})
	c.Long = `Hold back the jobs of a queue, or with --group those of one group, until the
time of --for is over: none of them starts. Jobs that run go on. Then list what
is held back. Without flags it only lists.

Handlers hold back jobs too, when another system takes nothing for a while, such
as an API with status 429. BY is the job whose handler did so. --lift ends it at
once, whoever set it. A time that ends earlier than what is set changes nothing.`
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

// holdJSON is a hold for programs. docs/cli.md has its fields.
type holdJSON struct {
	Group  string  `json:"group"`
	Serial bool    `json:"serial"`
	Until  *string `json:"until"`
	Job    string  `json:"job"`
}

func (a *app) printHolds(ctx context.Context, ins *inspect.Inspector, queue string) error {
	holds, err := ins.Holds(ctx, queue)
	if err != nil {
		return err
	}
	if a.json() {
		list := make([]holdJSON, len(holds))
		for i, h := range holds {
			list[i] = holdJSON{h.Group, h.Serial, timestamp(h.Until), h.Job}
		}
		return a.document(struct {
			Queue string     `json:"queue"`
			Held  []holdJSON `json:"held"`
		}{queue, list})
	}
	if len(holds) == 0 {
		a.note("Nothing of queue %s is held back.", queue)
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
