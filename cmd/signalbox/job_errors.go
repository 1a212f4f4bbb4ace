package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) jobErrors() *cobra.Command {
	var limit int
	var c *cobra.Command
	c = a.command("errors QUEUE [flags]", "Group dead jobs by kind and error", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		if limit < 0 {
			return usage("--limit %d: want 0 or more", limit)
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		s, err := ins.DeadByError(ctx, args[0])
		if err != nil {
			return err
		}
		if !c.Flags().Changed("limit") && !a.json() {
			limit = tableLimit
		}
		more := 0
		if limit > 0 && len(s.Groups) > limit {
			more = len(s.Groups) - limit
			s.Groups = s.Groups[:limit]
		}
		if a.json() {
			return a.document(errorsOf(&s, more))
		}
		a.printErrors(&s, more, a.clock(ctx))
		return nil
	})
	c.Long = `Group the dead jobs of a queue by their kind and their last error: of what did
most die, and what died lately? The largest group comes first.

ERROR is the first line of the error. In it <*> stands for each number,
duration, UUID, and ID in hexadecimal or of 16 letters and digits or more.
EXAMPLE is the job that died last. Arguments of jobs are never shown.

The command looks at 10,000 dead jobs at most, those that died last. The line
below the table has flags that name the jobs of the first group; -o json has
them for each group. They may name other jobs, too: --dry-run counts.`
	c.Example = `  signalbox job errors mail
  signalbox job errors mail -o json
  signalbox job retry mail --state dead --kind email.welcome --error "timeout after" --dry-run`
	c.Flags().IntVar(&limit, "limit", 0, "at most so many groups; 0: all (default 50 in a table, all with -o json)")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

func (a *app) printErrors(s *inspect.DeadSummary, more int, now time.Time) {
	if s.Dead == 0 {
		a.note("Queue %s has no dead job.", s.Queue)
		return
	}
	t := a.table(column{name: "DEAD", right: true}, column{name: "KIND", cut: 8}, column{name: "ERROR", cut: 20}, column{name: "LAST", right: true},
		column{name: "FIRST", right: true, drop: 1}, column{name: "EXAMPLE", drop: 2})
	ago := func(at time.Time) string { return span(max(0, now.Sub(at))) + " ago" }
	for _, g := range s.Groups {
		t.row(number(g.Count), g.Kind, g.Error, ago(g.Last), ago(g.First), g.Example)
	}
	t.flushRows()
	if more > 0 {
		a.note("%s more: see --limit.", plural(more, "group"))
	}
	if s.Unreadable > 0 {
		a.note("%s can't be read and are in no group: see signalbox doctor.", plural(int(s.Unreadable), "record"))
	}
	if s.Looked < s.Dead {
		a.note("%s of %s dead jobs were looked at: those that died last.", number(s.Looked), number(s.Dead))
	}
	if len(s.Groups) > 0 {
		f := s.Groups[0].Filter
		flags := "--state dead --kind " + quoted(f.Kind)
		if f.Error != "" {
			flags += " --error " + quoted(f.Error)
		}
		a.note("%s", clean("The first group, and what else these flags name: signalbox job retry "+s.Queue+" "+flags+" --dry-run"))
	}
}

// quoted returns a text as an argument in a shell.
func quoted(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// deadSummaryJSON says of what the dead jobs of a queue died. docs/cli/json.md has its fields.
type deadSummaryJSON struct {
	Queue      string           `json:"queue"`
	Dead       int64            `json:"dead"`
	Looked     int64            `json:"looked"`
	Unreadable int64            `json:"unreadable"`
	Groups     []errorGroupJSON `json:"groups"`
	More       int              `json:"more"`
}

type errorGroupJSON struct {
	Kind    string          `json:"kind"`
	Error   string          `json:"error"`
	Count   int64           `json:"count"`
	First   *string         `json:"first"`
	Last    *string         `json:"last"`
	Example string          `json:"example"`
	Filter  errorFilterJSON `json:"filter"`
}

type errorFilterJSON struct {
	Kind  string `json:"kind"`
	Error string `json:"error"`
}

func errorsOf(s *inspect.DeadSummary, more int) deadSummaryJSON {
	out := deadSummaryJSON{s.Queue, s.Dead, s.Looked, s.Unreadable, make([]errorGroupJSON, len(s.Groups)), more}
	for i, g := range s.Groups {
		out.Groups[i] = errorGroupJSON{g.Kind, g.Error, g.Count, timestamp(g.First), timestamp(g.Last), g.Example, errorFilterJSON{g.Filter.Kind, g.Filter.Error}}
	}
	return out
}
