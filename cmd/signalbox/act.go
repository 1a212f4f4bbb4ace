package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
)

// A verb is something that can be done to jobs: to those with some IDs, or to all that a filter names.
type verb struct {
	name, short, long, example string
	past                       string            // "retried"
	states                     []signalbox.State // that it is for
	already                    signalbox.State   // for which there is nothing to do
	destroys                   bool              // asks before it acts on IDs, too
	// action checks the verb's own flags and returns what makes the action, once Redis is reached.
	action func(changed func(string) bool) (func(ctx context.Context) inspect.Action, error)
}

func (a *app) actCommand(v verb, flags func(c *cobra.Command)) *cobra.Command {
	var f filterFlags
	var yes, dry bool
	var c *cobra.Command
	c = a.command(v.name+" QUEUE [ID...] [flags]", v.short, cobra.MinimumNArgs(1), func(ctx context.Context, args []string) error {
		queue, ids := args[0], args[1:]
		act, err := v.action(c.Flags().Changed)
		if err != nil {
			return err
		}
		if len(ids) > 0 {
			if f.given() || dry {
				return usage("IDs are given together with flags that name jobs: want one of them")
			}
			return a.actOn(ctx, v, act, queue, ids, yes)
		}
		if len(f.states) != 1 {
			return usage("want the IDs of jobs, or one --state and perhaps other flags that name jobs; see signalbox job %s --help", v.name)
		}
		filters, err := f.filters()
		if err != nil {
			return err
		}
		if state := filters[0].State; !slices.Contains(v.states, state) {
			return usage("--state %s: job %s is for jobs that are %s", state, v.name, either(v.states))
		}
		filters[0].Limit = f.limit
		return a.actOnAll(ctx, v, act, queue, filters[0], yes, dry)
	})
	asks := "What acts on\nall that flags name asks first; in a script it wants --yes."
	if v.destroys {
		asks = "It asks\nfirst; in a script it wants --yes."
	}
	c.Long = v.long + `

Give the IDs of jobs, or --state and other flags that name them. ` + asks + `
A job that has left its state meanwhile is left as it is, and counted. The call
may be repeated.`
	c.Example = v.example
	f.register(c, v.states)
	c.Flags().IntVar(&f.limit, "limit", 0, "at most so many jobs; 0: all")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	c.Flags().BoolVar(&dry, "dry-run", false, "count the jobs that the flags name, and change nothing")
	if flags != nil {
		flags(c)
	}
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// actedJSON is what became of one job.
type actedJSON struct {
	ID    string          `json:"id"`
	Was   signalbox.State `json:"was"`
	Done  bool            `json:"done"`
	Error string          `json:"error"`
}

// actOn acts on the jobs with some IDs. It goes on after a failure.
func (a *app) actOn(ctx context.Context, v verb, act func(context.Context) inspect.Action, queue string, ids []string, yes bool) error {
	ask := v.destroys && !yes
	if ask && !a.canAsk() {
		return errNobody
	}
	ins, err := a.inspector(ctx)
	if err != nil {
		return err
	}
	if ask {
		if err := there(ctx, ins, queue, ids); err != nil {
			return err
		}
		which := count(int64(len(ids)))
		if len(ids) == 1 {
			which = "job " + ids[0]
		}
		if err := a.confirm("%s %s of queue %s?", v.title(), which, queue); err != nil {
			return err
		}
	}
	action := act(ctx)
	var failed []error
	done := make([]actedJSON, 0, len(ids))
	for _, id := range ids {
		was, err := ins.Do(ctx, queue, id, action)
		if err != nil && (a.stopped.Err() != nil || away(err) || errors.Is(err, inspect.ErrNoQueue)) {
			return err
		}
		one := actedJSON{ID: id, Was: was, Done: err == nil}
		if err != nil {
			one.Error = oneLine(err.Error())
			failed = append(failed, err)
		} else if !a.json() {
			fmt.Fprintln(a.out, v.said(id, was))
		}
		done = append(done, one)
	}
	if a.json() {
		if err := a.document(map[string]any{"queue": queue, "jobs": done}); err != nil {
			return err
		}
	}
	if len(failed) > 1 {
		return fmt.Errorf("%d of %d jobs were not %s; the first: %w", len(failed), len(ids), v.past, failed[0])
	}
	return errors.Join(failed...)
}

// there returns an error if the queue has none of the jobs.
func there(ctx context.Context, ins *inspect.Inspector, queue string, ids []string) error {
	var first error
	for _, id := range ids {
		_, err := ins.Job(ctx, queue, id)
		if !errors.Is(err, inspect.ErrNoJob) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// said says what became of one job.
func (v verb) said(id string, was signalbox.State) string {
	switch {
	case was == v.already:
		return fmt.Sprintf("nothing to do: job %s is %s already", id, was)
	case v.name == "cancel" && was == signalbox.StateRunning:
		return fmt.Sprintf("job %s is running: its handler is asked to end", id)
	}
	return fmt.Sprintf("job %s was %s: %s", id, was, v.past)
}

// bulkJSON is what became of all jobs that a filter names.
type bulkJSON struct {
	Queue   string `json:"queue"`
	DryRun  bool   `json:"dry_run"`
	Seen    int64  `json:"seen"`
	Matched int64  `json:"matched"`
	Done    int64  `json:"done"`
	Moved   int64  `json:"moved"`
}

// actOnAll acts on all jobs that a filter names.
func (a *app) actOnAll(ctx context.Context, v verb, act func(context.Context) inspect.Action, queue string, f inspect.Filter, yes, dry bool) error {
	if !yes && !dry && !a.canAsk() {
		return usage("there is no terminal to ask: want --yes, or --dry-run to count the jobs")
	}
	ins, err := a.inspector(ctx)
	if err != nil {
		return err
	}
	action := act(ctx)
	var counted inspect.BulkCounts
	if !yes { // how many there are is part of the question
		p := a.progress("counting")
		counted, err = ins.DoAll(ctx, queue, f, action, inspect.Bulk{DryRun: true, Progress: p.show})
		p.end()
		if err != nil {
			return err
		}
		if dry {
			return a.printBulk(v, queue, counted, true)
		}
		if counted.Matched == 0 {
			a.note("There is no such job.")
			return nil
		}
		if err := a.confirm("%s %s of queue %s, in state %s?", v.title(), count(counted.Matched), queue, f.State); err != nil {
			return err
		}
		f.Limit = int(counted.Matched) // what was agreed to, and no job that comes meanwhile
	}
	if v.name == "cancel" && f.State == signalbox.StateRunning {
		v.past = "asked to end"
	}
	p := a.progress(v.past)
	p.total = counted.Matched
	done, err := ins.DoAll(ctx, queue, f, action, inspect.Bulk{Progress: p.show})
	p.end()
	if err != nil {
		failed := ""
		if done.Failed > 0 {
			failed = fmt.Sprintf(", %d failed", done.Failed)
		}
		return partly(done, fmt.Sprintf("%s%s", v.past, failed), err)
	}
	return a.printBulk(v, queue, done, false)
}

func (a *app) printBulk(v verb, queue string, p inspect.BulkCounts, dry bool) error {
	if a.json() {
		return a.document(bulkJSON{queue, dry, p.Seen, p.Matched, p.Done, p.Moved})
	}
	if dry {
		fmt.Fprintf(a.out, "%s of queue %s would be %s\n", count(p.Matched), queue, v.past)
		return nil
	}
	fmt.Fprintf(a.out, "%s of queue %s %s\n", count(p.Done), queue, v.past)
	if p.Moved > 0 {
		fmt.Fprintf(a.out, "%s had left the state meanwhile: left as is\n", count(p.Moved))
	}
	return nil
}

// partly says how far bulk work came before an error.
func partly(done inspect.BulkCounts, past string, err error) error {
	if done.Done+done.Failed == 0 && (errors.Is(err, signalbox.ErrInvalid) || errors.Is(err, inspect.ErrNoQueue)) {
		return err // nothing was begun
	}
	return &partError{fmt.Sprintf("at least %s %s, the call may be repeated", count(done.Done), past), err}
}

// title is the verb at the begin of a question.
func (v verb) title() string {
	switch v.name {
	case "rm":
		return "Delete"
	case "mv":
		return "Move"
	}
	return strings.ToUpper(v.name[:1]) + v.name[1:]
}

// count returns "1 job" or "2 jobs".
func count(n int64) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

var errNobody = usage("there is no terminal to ask: want --yes")

// confirm returns nil if the person at the terminal says yes.
func (a *app) confirm(format string, args ...any) error {
	if !a.canAsk() {
		return errNobody
	}
	yes, err := a.ask(format, args...)
	if err != nil || yes {
		return err
	}
	return errors.New("nothing was done")
}
