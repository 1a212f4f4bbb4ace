package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) queueGroups() *cobra.Command {
	var most int
	var group string
	c := a.command("groups QUEUE [flags]", "List the largest groups of a queue, and what runs and waits", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		if most < 1 {
			return usage("--limit: want 1 or more")
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		var groups []inspect.Group
		var more bool
		if group == "" {
			groups, more, err = ins.Groups(ctx, args[0], most)
		} else {
			groups, err = ins.GroupsOf(ctx, args[0], group)
		}
		if err != nil {
			return err
		}
		if a.json() {
			list := make([]groupJSON, len(groups))
			for i, g := range groups {
				list[i] = groupJSON{g.Key, g.Serial, g.Running, g.Waiting, g.Paused, timestamp(g.PausedSince), timestamp(g.HeldUntil), limitsOf(g.Limits)}
			}
			return a.document(struct {
				Queue  string      `json:"queue"`
				Groups []groupJSON `json:"groups"`
				More   bool        `json:"more"`
			}{args[0], list, more})
		}
		if len(groups) == 0 && group != "" {
			a.note("No job of queue %s that is ready or runs is of this group. One that is scheduled comes into its group's line when it is due.", args[0])
			return nil
		}
		if len(groups) == 0 {
			a.note("No job of queue %s that is ready or runs has a group. One that is scheduled comes into its group's line when it is due.", args[0])
			return nil
		}
		t := a.table(column{name: "GROUP", cut: 16}, column{name: "ORDER", drop: 1}, column{name: "RUNNING", right: true}, column{name: "WAITING", right: true},
			column{name: "LIMIT", right: true}, column{name: "RATE", right: true, drop: 2}, column{name: "HELD BACK"})
		for _, g := range groups {
			var order, limit, rate, held string
			if g.Serial {
				order = "serial"
			}
			if g.Limits.Running > 0 {
				limit = strconv.Itoa(g.Limits.Running)
			}
			if g.Limits.Rate.Jobs > 0 {
				rate = (&rateFlag{jobs: g.Limits.Rate.Jobs, per: g.Limits.Rate.Per}).String()
			}
			switch {
			case g.Paused:
				held = "paused"
			case !g.HeldUntil.IsZero():
				held = "for " + span(time.Until(g.HeldUntil))
			}
			t.row(g.Key, order, number(g.Running), number(g.Waiting), limit, rate, held)
		}
		t.flush()
		if more {
			a.note("There are more than these %d: see --limit.", len(groups))
		}
		return nil
	})
	c.Long = `List the groups of a queue, those with the most jobs first: how many of their
jobs run and wait, their limits, and whether they are held back or paused. A job
of a serial group that waits for its retry counts as one that runs: the others
wait for it. Scheduled jobs aren't counted.

The command looks at 10,000 groups. If a queue has more, it may miss larger
ones. --group shows that one in any case.`
	c.Example = `  signalbox queue groups mail
  signalbox queue groups mail --limit 100
  signalbox queue groups mail --group acme
  signalbox job ls mail --group acme`
	c.Flags().IntVar(&most, "limit", tableLimit, "at most so many groups")
	c.Flags().StringVar(&group, "group", "", "only the group of this key, serial or not")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// groupJSON is a group for programs. docs/cli/json.md has its fields.
type groupJSON struct {
	Group     string     `json:"group"`
	Serial    bool       `json:"serial"`
	Running   int64      `json:"running"`
	Waiting   int64      `json:"waiting"`
	Paused    bool       `json:"paused"`
	Since     *string    `json:"paused_since"`
	HeldUntil *string    `json:"held_until"`
	Limits    limitsJSON `json:"limits"`
}
