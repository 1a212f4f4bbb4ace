package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) outboxCommand() *cobra.Command {
	return a.group("outbox", "Show what waits in the outboxes of databases", a.outboxLs())
}

func (a *app) outboxLs() *cobra.Command {
	c := a.command("ls", "List what waits in the outboxes, by queue", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		all, err := ins.Outboxes(ctx)
		if err != nil {
			return err
		}
		if a.json() {
			list := make([]outboxJSON, 0, len(all))
			for _, o := range all {
				list = append(list, outboxJSON{Queue: o.Queue, Outbox: o.ID, At: timestamp(o.At), Backlog: o.Backlog, More: o.More, LagSeconds: seconds(o.Lag), Dead: o.Dead})
			}
			return a.document(list)
		}
		t := a.table(column{name: "QUEUE", cut: 10}, column{name: "OUTBOX", drop: 1}, column{name: "BACKLOG", right: true}, column{name: "LAG", right: true}, column{name: "DEAD", right: true})
		for _, o := range all {
			t.row(outboxRow(o)...)
		}
		if len(all) == 0 {
			a.note("No relay has said anything within a minute.")
		}
		t.flushRows()
		return nil
	})
	c.Long = `List what waits in the outboxes of package outbox, by queue: how many rows,
for how long the oldest one has been waiting, and how many can't be enqueued.

The relays publish these numbers in Redis every five seconds. An outbox without
a relay isn't listed. The dead rows are in the table signalbox_outbox_dead of
the database, with the reason.`
	c.Example = `  signalbox outbox ls
  signalbox outbox ls -o json`
	c.ValidArgsFunction = cobra.NoFileCompletions
	return c
}

// outboxJSON is an outbox for programs. docs/cli.md has its fields.
type outboxJSON struct {
	Queue      string  `json:"queue"`
	Outbox     string  `json:"outbox"`
	At         *string `json:"at"`
	Backlog    int64   `json:"backlog"`
	More       bool    `json:"more"`
	LagSeconds float64 `json:"lag_seconds"`
	Dead       int64   `json:"dead"`
}

func outboxRow(o inspect.Outbox) []string {
	backlog := strconv.FormatInt(o.Backlog, 10)
	if o.More {
		backlog += "+"
	}
	return []string{o.Queue, o.ID, backlog, span(o.Lag), strconv.FormatInt(o.Dead, 10)}
}
