package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) workerCommand() *cobra.Command {
	return a.group("worker", "List workers, make one take no more jobs, and stop one", a.workerLs(), a.workerQuiet(), a.workerUnquiet(), a.workerStop())
}

func (a *app) workerLs() *cobra.Command {
	var running, stuck bool
	c := a.command("ls [flags]", "List workers: their queues, and the jobs that they have", cobra.NoArgs, func(ctx context.Context, _ []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		workers, err := ins.Workers(ctx) // what can't be read is in the error
		if a.json() {
			return errors.Join(a.document(map[string]any{"workers": workersOf(workers)}), err)
		}
		if len(workers) == 0 && err == nil {
			a.note("There is no worker in namespace %q. Other namespaces: --namespace.", a.namespace())
		} else if stuck {
			a.printStuck(workers, a.clock(ctx))
		} else if running {
			a.printRunning(workers, a.clock(ctx))
		} else {
			a.printWorkers(workers, a.clock(ctx))
		}
		return err
	})
	c.Long = `List the workers of the namespace: their queues, and the jobs that they have.
One that died is there until its leases have ended.

LEASE is the time until the first of the worker's leases ends. The worker renews
them. One that has ended is below 0: then the worker died, or doesn't reach
Redis, and others take its jobs.`
	c.Flags().BoolVar(&stuck, "stuck", false, "list the jobs whose handlers go on though they were asked to end, with their stacks")
	c.Flags().BoolVar(&running, "running", false, "list the jobs that the workers have, the oldest first")
	return c
}

// workerJSON is a worker for programs. docs/cli/json.md has its fields.
type workerJSON struct {
	Worker   string        `json:"worker"`
	Quiet    bool          `json:"quiet"`
	Stopping bool          `json:"stopping"`
	Sessions []sessionJSON `json:"sessions"`
	Running  []runningJSON `json:"running"`
}

type sessionJSON struct {
	Queue       string  `json:"queue"`
	Until       *string `json:"until"`
	LeftSeconds float64 `json:"left_seconds"`
	Quiet       bool    `json:"quiet"`
}

type runningJSON struct {
	Queue      string  `json:"queue"`
	ID         string  `json:"id"`
	Kind       string  `json:"kind"`
	Token      int64   `json:"token"`
	Since      *string `json:"since"`
	Cancelling bool    `json:"cancelling"`
	StuckSince *string `json:"stuck_since"`
	SlotFreed  bool    `json:"slot_freed"`
	Stack      string  `json:"stack"`

	Progress *progressJSON `json:"progress"`
}

// progressJSON is how far a running job is, for programs.
type progressJSON struct {
	Done  int64   `json:"done"`
	Total int64   `json:"total"`
	Note  string  `json:"note"`
	At    *string `json:"at"`
}

// progressOf returns nil for nil.
func progressOf(p *inspect.Progress) *progressJSON {
	if p == nil {
		return nil
	}
	return &progressJSON{p.Done, p.Total, p.Note, timestamp(p.At)}
}

// howFar says for people how far a job is. It is "" for nil.
func howFar(p *inspect.Progress) string {
	if p == nil {
		return ""
	}
	text := strconv.FormatInt(p.Done, 10)
	if p.Total > 0 {
		text += fmt.Sprintf("/%d %d%%", p.Total, int64(float64(p.Done)/float64(p.Total)*100))
	}
	if p.Note != "" {
		text += " " + p.Note
	}
	return text
}

func workersOf(workers []inspect.Worker) []workerJSON {
	list := make([]workerJSON, len(workers))
	for i, w := range workers {
		list[i] = workerJSON{w.ID, w.Quiet, w.Stopping, make([]sessionJSON, len(w.Sessions)), make([]runningJSON, len(w.Running))}
		for k, s := range w.Sessions {
			list[i].Sessions[k] = sessionJSON{s.Queue, timestamp(s.Until), seconds(s.Left), s.Quiet}
		}
		for k, r := range w.Running {
			list[i].Running[k] = runningJSON{Queue: r.Queue, ID: r.ID, Kind: r.Kind, Token: r.Token, Since: timestamp(r.Since), Cancelling: r.Cancelling, Progress: progressOf(r.Progress)}
			if r.Stuck != nil {
				j := &list[i].Running[k]
				j.StuckSince, j.SlotFreed, j.Stack = timestamp(r.Stuck.Since), r.Stuck.SlotFreed, r.Stuck.Stack
			}
		}
	}
	return list
}

func (a *app) printWorkers(workers []inspect.Worker, now time.Time) {
	t := a.table(column{name: "WORKER"}, column{name: "STATE"}, column{name: "RUNNING", right: true}, column{name: "LONGEST", right: true, drop: 2},
		column{name: "LEASE", right: true, drop: 1}, column{name: "QUEUES", cut: 10})
	for _, w := range workers {
		state, longest, lease := "active", "", ""
		if w.Quiet {
			state = "quiet"
		}
		if w.Stopping {
			state = "stopping"
		}
		if len(w.Running) > 0 {
			longest = span(max(0, now.Sub(w.Running[0].Since)))
		}
		var queues []string
		var left time.Duration
		for i, s := range w.Sessions {
			queues = append(queues, s.Queue)
			if i == 0 || s.Left < left {
				left = s.Left
			}
		}
		if len(w.Sessions) > 0 {
			if lease = span(left); left < 0 {
				lease = "-" + lease
			}
		}
		t.row(w.ID, state, strconv.Itoa(len(w.Running)), longest, lease, strings.Join(queues, ","))
	}
	t.flush()
}

func (a *app) printRunning(workers []inspect.Worker, now time.Time) {
	type held struct {
		worker string
		inspect.RunningJob
	}
	var jobs []held
	for _, w := range workers {
		for _, r := range w.Running {
			jobs = append(jobs, held{w.ID, r})
		}
	}
	slices.SortStableFunc(jobs, func(a, b held) int { return a.Since.Compare(b.Since) })
	if len(jobs) == 0 {
		a.note("No worker has a job.")
		return
	}
	t := a.table(column{name: "QUEUE"}, column{name: "ID"}, column{name: "KIND", cut: 10, drop: 1}, column{name: "STATE"}, column{name: "WHEN"}, column{name: "PROGRESS", cut: 12, drop: 2},
		column{name: "WORKER", cut: 10})
	for _, j := range jobs {
		state := "running"
		if j.Cancelling {
			state = "cancelling"
		}
		if j.Stuck != nil {
			state = "stuck"
		}
		t.row(j.Queue, j.ID, j.Kind, state, "for "+span(max(0, now.Sub(j.Since))), howFar(j.Progress), j.worker)
	}
	t.flush()
}

// printStuck prints the jobs whose handlers ignore the end of their contexts.
func (a *app) printStuck(workers []inspect.Worker, now time.Time) {
	none := true
	for _, w := range workers {
		for _, r := range w.Running {
			if r.Stuck == nil {
				continue
			}
			if !none {
				fmt.Fprintln(a.out)
			}
			none = false
			slot := "keeps its slot"
			if r.Stuck.SlotFreed {
				slot = "its slot is free"
			}
			kind := ""
			if r.Kind != "" {
				kind = " (" + r.Kind + ")"
			}
			fmt.Fprintf(a.out, "%s %s%s: stuck for %s, %s, in worker %s\n", clean(r.Queue), clean(r.ID), clean(kind), span(max(0, now.Sub(r.Stuck.Since))), slot, clean(w.ID))
			if r.Stuck.Stack != "" {
				fmt.Fprintf(a.out, "  %s\n", strings.ReplaceAll(cleanLines(r.Stuck.Stack), "\n", "\n  "))
			}
		}
	}
	if none {
		a.note("No handler is stuck.")
	}
}

func (a *app) workerQuiet() *cobra.Command {
	return a.workerSwitch("quiet WORKER", "Make a worker take no more jobs: those that it has go on", true, (*inspect.Inspector).Quiet,
		"worker %s takes no more jobs; those that it has go on\n", "worker %s was quiet already\n")
}

func (a *app) workerUnquiet() *cobra.Command {
	return a.workerSwitch("unquiet WORKER", "Let a quiet worker take jobs again", false, (*inspect.Inspector).Unquiet,
		"worker %s takes jobs again\n", "worker %s was not quiet\n")
}

func (a *app) workerSwitch(use, short string, quiet bool, do change, did, was string) *cobra.Command {
	c := a.changeCommand(use, short, do, did, was, func(worker string, changed bool) any {
		return struct {
			Worker  string `json:"worker"`
			Quiet   bool   `json:"quiet"`
			Changed bool   `json:"changed"`
		}{worker, quiet, changed}
	})
	c.ValidArgsFunction = a.completeWorkers
	return c
}

func (a *app) workerStop() *cobra.Command {
	c := a.changeCommand("stop WORKER", "Make a worker end, as SIGTERM does", (*inspect.Inspector).Stop,
		"worker %s ends when its jobs have, or their time to drain is over\n", "worker %s was asked to stop already\n",
		func(worker string, changed bool) any {
			return struct {
				Worker   string `json:"worker"`
				Stopping bool   `json:"stopping"`
				Changed  bool   `json:"changed"`
			}{worker, true, changed}
		})
	c.Long = `Make a worker end, as SIGTERM does: it takes no more jobs, its handlers have the
time to drain that it is configured with, and what they leave undone runs
elsewhere. The command doesn't wait for that: the worker is listed until its
end.

What the process does then is up to its program. If something starts it again,
the new worker has another name.`
	c.ValidArgsFunction = a.completeWorkers
	return c
}
