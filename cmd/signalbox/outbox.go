package main

import (
	"context"
	"maps"
	"slices"
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
				list = append(list, outboxJSON{Queue: o.Queue, Outbox: o.ID, At: timestamp(o.At), Backlog: o.Backlog, More: o.More, LagSeconds: seconds(o.Lag), Dead: o.Dead, Strays: o.Strays})
			}
			return a.document(list)
		}
		t := a.table(column{name: "QUEUE", cut: 10}, column{name: "OUTBOX", drop: 1}, column{name: "BACKLOG", right: true}, column{name: "LAG", right: true}, column{name: "DEAD", right: true})
		strays := make(map[string]int64)
		for _, o := range all {
			t.row(outboxRow(o)...)
			strays[o.ID] = max(strays[o.ID], o.Strays)
		}
		if len(all) == 0 {
			a.note("No relay has reported within a minute. Rows wait in the database until one runs: outbox.NewRelay(db, rdb, config).Run(ctx), in a worker or in a process of its own, with this Redis.")
			a.note("A relay reports a queue from the queue's first row on. If one runs: is this its Redis, and is this the namespace of outbox.Config? docs/effects.md has more.")
		}
		t.flushRows()
		for _, id := range slices.Sorted(maps.Keys(strays)) {
			if strays[id] > 0 {
				a.note("Outbox %s has %d dead rows of no queue: in the table signalbox_outbox_dead, the shard of these rows has a name that is none.", id, strays[id])
			}
		}
		return nil
	})
	c.Long = `List what waits in the outboxes of package outbox, by queue: how many rows,
for how long the oldest one has been waiting, and how many can't be enqueued.

The relays publish these numbers in Redis every five seconds, for each queue
that has ever had a row. An outbox without a relay isn't listed, however much
waits in it. The dead rows are in the table signalbox_outbox_dead of the
database, with the reason.`
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
	Strays     int64   `json:"strays"`
}

func outboxRow(o inspect.Outbox) []string {
	backlog := strconv.FormatInt(o.Backlog, 10)
	if o.More {
		backlog += "+"
	}
	return []string{o.Queue, o.ID, backlog, span(o.Lag), strconv.FormatInt(o.Dead, 10)}
}
