package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

// completionTimeout bounds what a shell waits for when somebody presses Tab.
const completionTimeout = time.Second

// completeQueues completes the first n arguments, or all if n is -1, with the names of queues. Without Redis there are none.
func (a *app) completeQueues(n int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if n >= 0 && len(args) >= n {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []cobra.Completion
		for _, q := range a.queuesNow(cmd.Context()) {
			names = append(names, q.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeWorkers completes the first argument with the IDs of workers.
func (a *app) completeWorkers(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []cobra.Completion
	for _, q := range a.queuesNow(cmd.Context()) {
		names = append(names, q.Workers...)
	}
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}

// completeEntries completes the first argument with the names of cron entries: of a queue, if it isn't "".
func (a *app) completeEntries(queue *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		a.connection.timeout = min(a.connection.timeout, completionTimeout)
		ins, err := a.inspector(cmd.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		entries, _ := ins.Entries(cmd.Context())
		var names []cobra.Completion
		for i := range entries {
			if *queue == "" || *queue == entries[i].Queue {
				names = append(names, entries[i].Name)
			}
		}
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// queuesNow returns the queues, or none if Redis doesn't answer at once.
func (a *app) queuesNow(ctx context.Context) []inspect.Queue {
	a.connection.timeout = min(a.connection.timeout, completionTimeout)
	ins, err := a.inspector(ctx)
	if err != nil {
		return nil
	}
	queues, _ := ins.Queues(ctx)
	return queues
}
