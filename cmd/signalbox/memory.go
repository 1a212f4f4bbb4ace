package main

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) queueMemory() *cobra.Command {
	c := a.command("memory [QUEUE...]", "Show how much of Redis' memory each queue takes", cobra.ArbitraryArgs,
		func(ctx context.Context, names []string) error {
			ins, err := a.inspector(ctx)
			if err != nil {
				return err
			}
			var left error // queues that can't be read
			if len(names) == 0 {
				var queues []inspect.Queue
				if queues, left = ins.Queues(ctx); left != nil && len(queues) == 0 {
					return left
				}
				for i := range queues {
					names = append(names, queues[i].Name)
				}
			}
			list := make([]memoryJSON, 0, len(names))
			for _, name := range names {
				m, err := ins.Memory(ctx, name)
				if err != nil {
					return err
				}
				list = append(list, memoryJSON{name, m.Total(), m.Records, m.Places, m.Groups, m.Unique, m.Batches, m.Statistics, m.Other})
			}
			slices.SortFunc(list, func(x, y memoryJSON) int { return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Queue, y.Queue)) })
			return errors.Join(a.printMemory(list), left)
		})
	c.Long = `Show how much of Redis' memory the queues of the namespace take, the largest
first, or some of them. Redis estimates it from 1,000 elements of each key,
which takes it less than a millisecond for a queue of 300,000 jobs. Where a few
jobs are far larger than the others, the estimate may be far off.

RECORDS are those of the jobs: arguments, headers, results, errors. PLACES say
where each job is: the lists of ready and scheduled jobs, and so on. GROUPS are
the lines of groups, with the jobs that wait in them, and limits.

What producers and workers keep of their last calls isn't counted: it goes
within an hour. Neither is what the relays of outboxes keep.`
	c.ValidArgsFunction = a.completeQueues(-1)
	return c
}

// memoryJSON is what a queue takes in Redis' memory, in bytes, for programs. docs/cli/json.md has its fields.
type memoryJSON struct {
	Queue      string `json:"queue"`
	Bytes      int64  `json:"bytes"`
	Records    int64  `json:"records"`
	Places     int64  `json:"places"`
	Groups     int64  `json:"groups"`
	Unique     int64  `json:"unique"`
	Batches    int64  `json:"batches"`
	Statistics int64  `json:"statistics"`
	Other      int64  `json:"other"`
}

func (a *app) printMemory(list []memoryJSON) error {
	if a.json() {
		return a.document(map[string]any{"queues": list})
	}
	if len(list) == 0 {
		a.noQueue()
		return nil
	}
	t := a.table(column{name: "QUEUE"}, column{name: "MEMORY", right: true}, column{name: "RECORDS", right: true}, column{name: "PLACES", right: true}, column{name: "GROUPS", right: true, drop: 1},
		column{name: "UNIQUE", right: true, drop: 2}, column{name: "BATCHES", right: true, drop: 3}, column{name: "STATISTICS", right: true, drop: 4}, column{name: "OTHER", right: true, drop: 5})
	for _, m := range list {
		row := []string{m.Queue, size(m.Bytes)}
		for _, n := range []int64{m.Records, m.Places, m.Groups, m.Unique, m.Batches, m.Statistics, m.Other} {
			text := "" // most queues have no groups, unique keys and batches
			if n > 0 {
				text = size(n)
			}
			row = append(row, text)
		}
		t.row(row...)
	}
	t.flush()
	return nil
}
