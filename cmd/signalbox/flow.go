package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) flowCommand() *cobra.Command {
	return a.group("flow", "List batches, look at one, and cancel one", a.flowLs(), a.flowShow(), a.flowCancel())
}

func (a *app) flowLs() *cobra.Command {
	var most int
	c := a.command("ls QUEUE [flags]", "List the batches of a queue, the newest first", cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		if most < 1 {
			return usage("--limit: want 1 or more")
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		flows, more, err := ins.Flows(ctx, args[0], most)
		if err != nil {
			return err
		}
		if a.json() {
			list := make([]flowJSON, len(flows))
			for i := range flows {
				list[i] = flowJSONOf(&flows[i])
			}
			return a.document(struct {
				Queue string     `json:"queue"`
				Flows []flowJSON `json:"flows"`
				More  bool       `json:"more"`
			}{args[0], list, more})
		}
		if len(flows) == 0 {
			a.note("Queue %s has no batches. Those that are over are remembered for a day.", args[0])
			return nil
		}
		t := a.table(column{name: "BATCH", cut: 22}, column{name: "STATE"}, column{name: "JOBS", right: true}, column{name: "OPEN", right: true}, column{name: "COMPLETED", right: true},
			column{name: "DEAD", right: true}, column{name: "GONE", right: true, drop: 2}, column{name: "CALLBACKS", right: true, drop: 1}, column{name: "AGE", right: true})
		for i := range flows {
			f := &flows[i]
			t.row(f.ID, f.State(), number(f.Total), number(f.Open), number(f.Completed), number(f.Dead), number(f.Gone), number(f.Callbacks), span(time.Since(f.CreatedAt)))
		}
		t.flush()
		if more {
			a.note("There are more than these %d: see --limit.", len(flows))
		}
		return nil
	})
	c.Long = `List the batches of a queue, the newest first: how many jobs they have got, how
many of these haven't ended, and how the others have. GONE were cancelled or
deleted. CALLBACKS are jobs that wait for the batch, or have waited, and haven't
ended. A batch that is over is remembered for a day.`
	c.Example = `  signalbox flow ls mail
  signalbox flow ls mail --limit 100 --output json`
	c.Flags().IntVar(&most, "limit", tableLimit, "at most so many batches")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

func (a *app) flowShow() *cobra.Command {
	var most int
	c := a.command("show QUEUE BATCH [flags]", "Show a batch, its callbacks and its failed members", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		if most < 1 || most > maxFailedMembers {
			return usage("--limit %d: want 1 to %d", most, maxFailedMembers)
		}
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		f, err := ins.Flow(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		jobs, err := ins.FlowJobs(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		if a.json() {
			return a.document(flowShowJSONOf(&f, &jobs, most))
		}
		if err := a.printFlow(&f); err != nil {
			return err
		}
		a.printFlowJobs(&f, &jobs, most, a.clock(ctx))
		return nil
	})
	c.Long = `Show what is counted of a batch: how many jobs it has got, and how they have
ended. It is cancelled at the times seal by and end by, unless it is sealed, or
over, by then.

Its callbacks follow, with what each waits for, and whether that has come: a job
that was cancelled while it waited was not released. Then come the members that
failed first, and of how many there are more. Members that were cancelled with
the batch, or deleted, are counted only.

Redis has no list of a batch's jobs. The command looks at 10,000 jobs at most of
each state that can have them. A callback that has completed isn't found, unless
its queue keeps such jobs.`
	c.Example = `  signalbox flow show mail news-7
  signalbox flow show mail news-7 --limit 100 -o json`
	c.Flags().IntVar(&most, "limit", 10, "at most so many failed members, up to 100")
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

func (a *app) flowCancel() *cobra.Command {
	c := a.command("cancel QUEUE BATCH", "End a batch, and its jobs that haven't ended", cobra.ExactArgs(2), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		f, err := ins.CancelFlow(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		return a.printFlow(&f)
	})
	c.Long = `Cancel a batch: its jobs that wait end cancelled, and nothing is kept of them.
Those that run are asked to end. Nobody adds to it any more. The callback for
its success is cancelled; the one for its end runs when all of its jobs have
ended. It can't be undone. A batch that is over stays as it is.

Some jobs may change their places while the command goes through the queue. They
end when a worker gets them, or within some minutes.`
	c.Example = `  signalbox flow cancel mail news-7`
	c.ValidArgsFunction = a.completeQueues(1)
	return c
}

// printFlow prints one batch.
func (a *app) printFlow(f *inspect.Flow) error {
	if a.json() {
		return a.document(flowJSONOf(f))
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.out, "%-10s %s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	line("batch", "%s of queue %s", f.ID, f.Queue)
	line("state", "%s", f.State())
	line("jobs", "%s: %s open, %s completed, %s dead, %s cancelled or deleted", number(f.Total), number(f.Open), number(f.Completed), number(f.Dead), number(f.Gone))
	if f.FailFast && !f.Over && !f.Cancelled {
		line("fail fast", "the first job that doesn't complete cancels it")
	}
	line("callbacks", "%s that haven't ended", number(f.Callbacks))
	for _, t := range []struct {
		name string
		at   time.Time
	}{{"created", f.CreatedAt}, {"last call", f.CalledAt}, {"seal by", f.SealBy}, {"end by", f.EndBy}, {"over", f.EndedAt}} {
		if !t.at.IsZero() {
			line(t.name, "%s", stamp(t.at))
		}
	}
	return nil
}

// maxFailedMembers is how many failed members of a batch package inspect has.
const maxFailedMembers = 100

// printFlowJobs prints the callbacks of a batch and its members that have failed.
func (a *app) printFlowJobs(f *inspect.Flow, jobs *inspect.FlowJobs, most int, now time.Time) {
	if len(jobs.Callbacks) > 0 {
		fmt.Fprintln(a.out)
		t := a.table(column{name: "CALLBACK", cut: 12}, column{name: "KIND", cut: 8, drop: 2}, column{name: "AWAITS"}, column{name: "RELEASED"}, column{name: "STATE"}, column{name: "LAST ERROR", cut: 20, drop: 1, hide: true})
		for i := range jobs.Callbacks {
			c := &jobs.Callbacks[i]
			released := "no"
			if c.Released {
				released = "yes"
			}
			t.row(c.ID, c.Kind, c.Awaits, released, string(c.State), firstLine(c.LastError))
		}
		t.flush()
	}
	failed, more := failedMembers(jobs, most)
	if len(failed) > 0 {
		fmt.Fprintln(a.out)
		t := a.table(column{name: "FAILED", cut: 12}, column{name: "KIND", cut: 8, drop: 2}, column{name: "STATE"}, column{name: "ENDED", right: true, drop: 1}, column{name: "LAST ERROR", cut: 20})
		for i := range failed {
			j := &failed[i]
			t.row(j.ID, j.Kind, string(j.State), span(max(0, now.Sub(j.EndedAt)))+" ago", firstLine(j.LastError))
		}
		t.flush()
	}
	if more > 0 {
		a.note("%s more failed: see --limit.", plural(int(more), "member"))
	}
	if gone := f.Dead + f.Gone - int64(len(failed)) - more; gone > 0 && !jobs.Partial {
		a.note("Of %s that didn't complete there is no record.", plural(int(gone), "member"))
	}
	if jobs.Partial {
		a.note("The queue has too many jobs to look at all of them: some of the batch may be missing.")
	}
}

// failedMembers returns the members of a batch that failed first, and how many more there are.
func failedMembers(jobs *inspect.FlowJobs, most int) (some []inspect.Job, more int64) {
	some = jobs.FailedMembers[:min(len(jobs.FailedMembers), most)]
	for i := range jobs.Failed {
		more += jobs.Failed[i].Count
	}
	return some, more - int64(len(some))
}

// firstLine returns the first line of an error.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// flowJSON is a batch for programs. docs/cli.md has its fields.
type flowJSON struct {
	Queue     string  `json:"queue"`
	ID        string  `json:"id"`
	State     string  `json:"state"`
	Unsealed  bool    `json:"unsealed"`
	Failed    bool    `json:"failed"`
	Cancelled bool    `json:"cancelled"`
	Over      bool    `json:"over"`
	FailFast  bool    `json:"fail_fast"`
	Total     int64   `json:"total"`
	Open      int64   `json:"open"`
	Completed int64   `json:"completed"`
	Dead      int64   `json:"dead"`
	Gone      int64   `json:"gone"`
	Callbacks int64   `json:"callbacks"`
	CreatedAt *string `json:"created_at"`
	CalledAt  *string `json:"called_at"`
	SealBy    *string `json:"seal_by"`
	EndBy     *string `json:"end_by"`
	EndedAt   *string `json:"ended_at"`
}

func flowJSONOf(f *inspect.Flow) flowJSON {
	return flowJSON{
		f.Queue, f.ID, f.State(), f.Unsealed, f.Failed, f.Cancelled, f.Over, f.FailFast, f.Total, f.Open, f.Completed, f.Dead, f.Gone, f.Callbacks,
		timestamp(f.CreatedAt), timestamp(f.CalledAt), timestamp(f.SealBy), timestamp(f.EndBy), timestamp(f.EndedAt),
	}
}

// flowShowJSON is a batch with its jobs. docs/cli/json.md has its fields.
type flowShowJSON struct {
	flowJSON
	Jobs       []callbackJSON `json:"callback_jobs"`
	Failed     []memberJSON   `json:"failed_members"`
	FailedMore int64          `json:"failed_more"`
	Partial    bool           `json:"partial"`
}

type callbackJSON struct {
	ID        string `json:"id"`
	Kind      string `json:"kind"`
	Awaits    string `json:"awaits"`
	Released  bool   `json:"released"`
	State     string `json:"state"`
	LastError string `json:"last_error"`
}

type memberJSON struct {
	ID        string  `json:"id"`
	Kind      string  `json:"kind"`
	State     string  `json:"state"`
	EndedAt   *string `json:"ended_at"`
	LastError string  `json:"last_error"`
}

func flowShowJSONOf(f *inspect.Flow, jobs *inspect.FlowJobs, most int) flowShowJSON {
	out := flowShowJSON{flowJSON: flowJSONOf(f), Jobs: []callbackJSON{}, Failed: []memberJSON{}, Partial: jobs.Partial}
	for i := range jobs.Callbacks {
		c := &jobs.Callbacks[i]
		out.Jobs = append(out.Jobs, callbackJSON{c.ID, c.Kind, c.Awaits, c.Released, string(c.State), c.LastError})
	}
	failed, more := failedMembers(jobs, most)
	for i := range failed {
		j := &failed[i]
		out.Failed = append(out.Failed, memberJSON{j.ID, j.Kind, string(j.State), timestamp(j.EndedAt), j.LastError})
	}
	out.FailedMore = more
	return out
}
