package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) outboxCommand() *cobra.Command {
	return a.group("outbox", "Show what waits in the outboxes of databases, and forget outboxes", a.outboxLs(), a.outboxRm())
}

func (a *app) outboxRm() *cobra.Command {
	var yes bool
	c := a.command("rm QUEUE OUTBOX [flags]", "Forget what an outbox has sent to a queue", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		queue, id := args[0], args[1]
		if !yes && !a.canAsk() {
			return usage("there is no terminal to ask: want --yes. If a relay of outbox %s sends rows of queue %s later than 25 hours from now, it sends again what it sent last", id, queue)
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		if !yes {
			ok, err := a.ask("Is the database of outbox %s gone, or does no program put rows of queue %s into it any more? A relay that comes back later than 25 hours from now sends again what it sent last.", id, queue)
			if err != nil || !ok {
				return err
			}
		}
		if err := ins.ForgetOutbox(ctx, queue, id); err != nil {
			return err
		}
		if a.json() {
			return a.document(struct {
				Queue  string `json:"queue"`
				Outbox string `json:"outbox"`
			}{queue, id})
		}
		fmt.Fprintf(a.out, "what outbox %s has sent to queue %s is forgotten in 25 hours, unless it sends more; it no longer keeps the queue\n", id, queue)
		return nil
	})
	c.Long = `Forget what an outbox has sent to a queue. It is for an outbox whose database is
gone, or of which no program uses the queue any more: queue rm names the outbox
that keeps a queue.

Redis can't know whether rows of the queue wait in the database. Look there
first: docs/effects/outbox.md has the steps. While a relay reports the queue,
nothing is forgotten, and the exit status is 4.

What is known stays for 25 hours. If a relay sends rows of the queue in that
time, it stays for good. One that comes back later sends again what it had sent
in its last window (RelayConfig.Window, 10 minutes by default): of these, jobs
that have ended run again.`
	c.Example = `  signalbox outbox rm mail-old 5f0c6f0c2b8f4d1e9a7b3c5d7e9f1a2b
  signalbox queue rm mail-old`
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

func (a *app) outboxLs() *cobra.Command {
	c := a.command("ls", "List what waits in the outboxes, by queue", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		all, failed := ins.Outboxes(ctx)
		if failed != nil && len(all) == 0 {
			return failed
		}
		if a.json() {
			list := make([]outboxJSON, 0, len(all))
			for _, o := range all {
				list = append(list, outboxJSON{Queue: o.Queue, Outbox: o.ID, At: timestamp(o.At), Backlog: o.Backlog, More: o.More, LagSeconds: seconds(o.Lag), Dead: o.Dead, Strays: o.Strays})
			}
			return errors.Join(a.document(list), failed)
		}
		t := a.table(column{name: "QUEUE", cut: 10}, column{name: "OUTBOX", drop: 1}, column{name: "BACKLOG", right: true}, column{name: "LAG", right: true}, column{name: "DEAD", right: true})
		strays := make(map[string]int64)
		for _, o := range all {
			t.row(outboxRow(o)...)
			strays[o.ID] = max(strays[o.ID], o.Strays)
		}
		if len(all) == 0 {
			a.note("No relay has reported within a minute. Rows wait in the database until one runs: outbox.NewRelay(db, rdb, config).Run(ctx), in a worker or in a process of its own, with this Redis.")
			a.note("A relay reports a queue from the queue's first row on. If one runs: is this its Redis, and is this the namespace of outbox.Config? docs/effects/outbox.md has more.")
		}
		t.flushRows()
		for _, id := range slices.Sorted(maps.Keys(strays)) {
			if strays[id] > 0 {
				a.note("Outbox %s has %d dead rows of no queue: in the table signalbox_outbox_dead, the shard of these rows has a name that is none.", id, strays[id])
			}
		}
		return failed
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

// outboxJSON is an outbox for programs. docs/cli/json.md has its fields.
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
