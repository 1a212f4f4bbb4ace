package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// states are those that jobs can be listed in, in the order in which a listing without --state has them.
var states = []signalbox.State{
	signalbox.StateRunning, signalbox.StateReady, signalbox.StateScheduled, signalbox.StateDead, signalbox.StateCancelled,
	signalbox.StateCompleted, signalbox.StateAwaiting,
}

// filterFlags name jobs of a queue.
type filterFlags struct {
	states       []string
	kind, prefix string
	err, group   string
	older, newer spanFlag
	limit        int
}

// register adds the flags. in are the states that --state can name.
func (f *filterFlags) register(c *cobra.Command, in []signalbox.State) {
	flags := c.Flags()
	flags.StringSliceVarP(&f.states, "state", "s", nil, "jobs in this `state`: "+either(in))
	flags.StringVar(&f.kind, "kind", "", "jobs of this kind")
	flags.StringVar(&f.prefix, "id-prefix", "", "jobs whose ID begins so")
	flags.StringVar(&f.err, "error", "", "jobs whose last error has this `text` in it")
	flags.StringVar(&f.group, "group", "", "jobs of the group with this `key`")
	flags.Var(&f.older, "older-than", "jobs that are in their state for so long, such as 90s, 12h or 30d; scheduled ones: that are due so much later")
	flags.Var(&f.newer, "newer-than", "jobs that are in their state for less; scheduled ones: that are due within this time")
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(names(in), cobra.ShellCompDirectiveNoFileComp))
}

// names returns states as text.
func names(list []signalbox.State) []string {
	texts := make([]string, len(list))
	for i, s := range list {
		texts[i] = string(s)
	}
	return texts
}

// either returns "ready, scheduled or dead".
func either(list []signalbox.State) string {
	texts := names(list)
	last := len(texts) - 1
	return strings.Join(texts[:last], ", ") + " or " + texts[last]
}

// given reports whether the flags name jobs at all.
func (f *filterFlags) given() bool {
	return len(f.states) > 0 || f.kind != "" || f.prefix != "" || f.err != "" || f.group != "" || f.older.set || f.newer.set || f.limit != 0
}

// filters returns one filter for each state.
func (f *filterFlags) filters() ([]inspect.Filter, error) {
	if f.limit < 0 {
		return nil, usage("--limit %d: want 0 or more", f.limit)
	}
	if f.newer.d > 0 && f.older.d > f.newer.d {
		return nil, usage("--older-than %s is more than --newer-than %s: no job is both", span(f.older.d), span(f.newer.d))
	}
	list := f.states
	if len(list) == 0 {
		list = names(states)
	}
	filters := make([]inspect.Filter, len(list))
	for i, s := range list {
		if !slices.Contains(states, signalbox.State(s)) {
			return nil, usage("--state %q: want one of %s", s, strings.Join(names(states), ", "))
		}
		filters[i] = inspect.Filter{
			State: signalbox.State(s), Kind: f.kind, IDPrefix: f.prefix, Error: f.err, Group: f.group, OlderThan: f.older.d, NewerThan: f.newer.d,
		}
	}
	return filters, nil
}
