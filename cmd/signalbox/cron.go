package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-go/signalbox/inspect"
)

func (a *app) cronCommand() *cobra.Command {
	return a.group("cron", "List cron entries, run one now, pause and resume them", a.cronLs(), a.cronNext(), a.cronRun(), a.cronPause(), a.cronResume(), a.cronRm())
}

func (a *app) cronLs() *cobra.Command {
	var only string
	c := a.command("ls [QUEUE...] [flags]", "List cron entries: last and next tick, whether they are paused", cobra.ArbitraryArgs,
		func(ctx context.Context, queues []string) error {
			ins, err := a.inspector(ctx)
			if err != nil {
				return err
			}
			if only != "" {
				queues = append(queues, only)
			}
			for _, queue := range queues {
				if _, err := ins.Queue(ctx, queue); err != nil {
					return err
				}
			}
			entries, err := ins.Entries(ctx) // those that can't be read are in the error
			if len(queues) > 0 {
				entries = slices.DeleteFunc(entries, func(e inspect.Entry) bool { return !slices.Contains(queues, e.Queue) })
			}
			if a.json() {
				return errors.Join(a.document(map[string]any{"entries": entriesOf(entries)}), err)
			}
			if len(entries) == 0 && err == nil && len(queues) == 1 {
				a.note("Queue %s has no cron entry.", queues[0])
				return nil
			}
			if len(entries) == 0 && err == nil && len(queues) > 1 {
				a.note("Queues %s have no cron entry.", strings.Join(queues, ", "))
				return nil
			}
			if len(entries) == 0 && err == nil {
				a.note("There is no cron entry in namespace %q. An entry is known once a scheduler has run with it. Other namespaces: --namespace.", a.namespace())
				return nil
			}
			a.printEntries(entries, a.clock(ctx))
			return err
		})
	c.Long = `List the cron entries that schedulers have described in Redis.

LAST is the last tick whose job was enqueued, NEXT the next tick. STATE is
  active  a scheduler has the entry
  paused  its ticks pass without jobs
  gone    no scheduler has said for three minutes that it has the entry. SEEN
          is when one last did. If it is not to come back: cron rm
MISSED is what happens to ticks that no scheduler enqueued in time:
  skip    they are left out
  once    the latest one is made up for
  all     the latest ones are, up to a number
  default once if the next tick is more than an hour after it, else skip
OVERLAP is what a tick does while a job of the entry is live:
  allow   its job is enqueued beside the other
  skip    it passes without a job
  queue   its job waits until the other has ended; if one waits, it passes
  cancel  its job is enqueued, and the other one is cancelled
NEXT includes the entry's jitter, start and end, which --output json shows`
	c.Flags().StringVarP(&only, "queue", "q", "", "list those of this queue, as if it were an argument")
	_ = c.RegisterFlagCompletionFunc("queue", a.completeQueues(-1))
	c.ValidArgsFunction = a.completeQueues(-1)
	return c
}

// entryJSON is a cron entry for programs. docs/cli/json.md has its fields.
type entryJSON struct {
	Queue       string  `json:"queue"`
	Entry       string  `json:"entry"`
	Kind        string  `json:"kind"`
	Spec        string  `json:"spec"`
	Zone        string  `json:"zone"`
	Missed      string  `json:"missed"`
	Overlap     string  `json:"overlap"`
	Jitter      float64 `json:"jitter_seconds"`
	Start       *string `json:"start"`
	End         *string `json:"end"`
	Last        *string `json:"last"`
	Next        *string `json:"next"`
	Paused      bool    `json:"paused"`
	PausedSince *string `json:"paused_since"`
	Seen        *string `json:"seen"`
	Gone        bool    `json:"gone"`
	Error       string  `json:"error"`
}

func entriesOf(entries []inspect.Entry) []entryJSON {
	list := make([]entryJSON, len(entries))
	for i, e := range entries {
		list[i] = entryJSON{
			Queue: e.Queue, Entry: e.Name, Kind: e.Kind, Spec: e.Spec, Zone: e.Zone, Missed: e.Missed,
			Overlap: e.Overlap, Jitter: e.Jitter.Seconds(), Start: timestamp(e.Start), End: timestamp(e.End), Last: timestamp(e.Last), Next: timestamp(e.Next),
			Paused: e.Paused, PausedSince: timestamp(e.PausedSince), Seen: timestamp(e.Seen), Gone: e.Gone,
		}
		if e.Err != nil {
			list[i].Error = packages.Replace(e.Err.Error())
		}
	}
	return list
}

func (a *app) printEntries(entries []inspect.Entry, now time.Time) {
	t := a.table(column{name: "QUEUE"}, column{name: "ENTRY"}, column{name: "STATE"}, column{name: "SPEC", cut: 9}, column{name: "ZONE", drop: 2},
		column{name: "LAST"}, column{name: "NEXT"}, column{name: "SEEN", drop: 1}, column{name: "MISSED", drop: 5}, column{name: "OVERLAP", drop: 4},
		column{name: "KIND", drop: 3})
	ago := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return span(max(0, now.Sub(t))) + " ago"
	}
	for i := range entries {
		e := &entries[i]
		next := ""
		if !e.Next.IsZero() && !e.Gone {
			next = "in " + span(max(0, e.Next.Sub(now)))
		}
		t.row(e.Queue, e.Name, entryState(e), e.Spec, e.Zone, ago(e.Last), next, ago(e.Seen), e.Missed, overlapOf(e), e.Kind)
	}
	t.flush()
	for i := range entries {
		if e := &entries[i]; e.Err != nil {
			a.note("%s", oneLine(fmt.Sprintf("cron entry %s of queue %s: %s", e.Name, e.Queue, packages.Replace(e.Err.Error()))))
		}
	}
}

// overlapOf returns the policy of an entry for jobs that overlap.
func overlapOf(e *inspect.Entry) string {
	if e.Overlap == "" && e.Missed != "" { // else the scheduler knows no policies
		return "allow"
	}
	return e.Overlap
}

func entryState(e *inspect.Entry) string {
	switch {
	case e.Gone && e.Paused:
		return "gone, paused"
	case e.Gone:
		return "gone"
	case e.Paused:
		return "paused"
	}
	return "active"
}

func (a *app) cronNext() *cobra.Command {
	var queue string
	var n int
	c := a.entryCommand("next ENTRY [flags]", "Show the next ticks of a cron entry, in its time zone", &queue,
		func(ctx context.Context, ins *inspect.Inspector, queue, entry string) error {
			if n < 1 || n > maxTicks {
				return usage("--limit %d: want 1 to %d", n, maxTicks)
			}
			e, err := ins.Entry(ctx, queue, entry)
			if err != nil {
				return err
			}
			if e.Err != nil {
				return errors.New(e.Err.Error()) // it wraps signalbox.ErrInvalid, and the flags and arguments are right
			}
			now := a.clock(ctx)
			var ticks []time.Time
			for at := range e.Ticks(now) {
				if ticks = append(ticks, at); len(ticks) == n {
					break
				}
			}
			return a.printTicks(&e, ticks, now)
		})
	c.Long = `Show the next ticks of a cron entry, in its time zone, by the clock of Redis. At
the beginning and the end of daylight saving time they follow these rules:
` + guide + "guarantees/cron.md"
	c.Example = `  signalbox cron next digest
  signalbox cron next digest --limit 20 --queue mail`
	c.Flags().IntVar(&n, "limit", 5, "how many")
	return c
}

// maxTicks bounds the ticks that cron next shows.
const maxTicks = 1000

func (a *app) printTicks(e *inspect.Entry, ticks []time.Time, now time.Time) error {
	if a.json() {
		list := make([]string, len(ticks))
		for i, at := range ticks {
			list[i] = stamp(at)
		}
		return a.document(struct {
			Queue  string   `json:"queue"`
			Entry  string   `json:"entry"`
			Zone   string   `json:"zone"`
			Paused bool     `json:"paused"`
			Gone   bool     `json:"gone"`
			Ticks  []string `json:"ticks"`
		}{e.Queue, e.Name, e.Zone, e.Paused, e.Gone, list})
	}
	if state := entryState(e); state != "active" {
		a.note("The entry is %s: so these ticks enqueue no jobs.", strings.ReplaceAll(state, ",", " and"))
	}
	t := a.table(column{name: "DAY"}, column{name: "TICK"}, column{name: "IN", right: true})
	for _, at := range ticks {
		t.row(at.Format("Mon"), at.Format(time.RFC3339Nano), span(max(0, at.Sub(now))))
	}
	t.flush()
	return nil
}

func (a *app) cronRun() *cobra.Command {
	var queue string
	c := a.entryCommand("run ENTRY [flags]", "Enqueue a job as a tick of a cron entry would, now", &queue,
		func(ctx context.Context, ins *inspect.Inspector, queue, entry string) error {
			id, err := ins.RunEntry(ctx, queue, entry)
			if err != nil && id != "" {
				return &partError{fmt.Sprintf("job %s may be enqueued or not: look with signalbox job show %s %s before you run the entry again", id, queue, id), err}
			}
			if err != nil {
				return err
			}
			if a.json() {
				return a.document(struct {
					Queue string `json:"queue"`
					Entry string `json:"entry"`
					ID    string `json:"id"`
				}{queue, entry, id})
			}
			fmt.Fprintf(a.out, "job %s is in queue %s\n", id, queue)
			return nil
		})
	c.Long = `Enqueue a job as a tick of a cron entry would: with its kind, arguments and
options. It is no tick: the next one comes as usual. No scheduler needs to run,
and the entry may be paused. Each call is another job.

The entry's policy for jobs that overlap counts: see cron ls. An entry that
skips ticks is not run while a job of it is live, and one that queues not while
another one waits.`
	c.Example = `  signalbox cron run digest
  signalbox cron run digest --queue mail`
	return c
}

func (a *app) cronPause() *cobra.Command {
	c := a.entrySwitch("pause ENTRY [flags]", "Pause a cron entry: its ticks pass without jobs", true, (*inspect.Inspector).PauseEntry,
		"cron entry %s of queue %s is paused; its ticks pass without jobs\n", "cron entry %s of queue %s was paused already\n")
	c.Long = `Pause a cron entry: its ticks pass without jobs until it is resumed, and are not
made up for. It stays paused when schedulers start again. Jobs that are enqueued
already go on.`
	c.Example = "  signalbox cron pause digest"
	return c
}

func (a *app) cronResume() *cobra.Command {
	return a.entrySwitch("resume ENTRY [flags]", "Resume a cron entry that was paused", false, (*inspect.Inspector).ResumeEntry,
		"cron entry %s of queue %s is resumed\n", "cron entry %s of queue %s was not paused\n")
}

func (a *app) entrySwitch(use, short string, paused bool, do func(*inspect.Inspector, context.Context, string, string) (bool, error), did, was string) *cobra.Command {
	var queue string
	return a.entryCommand(use, short, &queue, func(ctx context.Context, ins *inspect.Inspector, queue, entry string) error {
		changed, err := do(ins, ctx, queue, entry)
		if err != nil {
			return err
		}
		if a.json() {
			return a.document(struct {
				Queue   string `json:"queue"`
				Entry   string `json:"entry"`
				Paused  bool   `json:"paused"`
				Changed bool   `json:"changed"`
			}{queue, entry, paused, changed})
		}
		if !changed {
			did = was
		}
		fmt.Fprintf(a.out, did, entry, queue)
		return nil
	})
}

func (a *app) cronRm() *cobra.Command {
	var queue string
	c := a.entryCommand("rm ENTRY [flags]", "Forget a cron entry that no scheduler has any more", &queue,
		func(ctx context.Context, ins *inspect.Inspector, queue, entry string) error {
			if err := ins.ForgetEntry(ctx, queue, entry); err != nil {
				return err
			}
			if a.json() {
				return a.document(struct {
					Queue string `json:"queue"`
					Entry string `json:"entry"`
				}{queue, entry})
			}
			fmt.Fprintf(a.out, "cron entry %s of queue %s is forgotten\n", entry, queue)
			return nil
		})
	c.Long = `Forget a cron entry that no scheduler has any more: its description, its last
tick, and whether it is paused. Its jobs stay. An entry that a scheduler has, or
had in the last three minutes, is left as it is: deploy without it first. So is
an entry that has ticked in that time.`
	c.Example = "  signalbox cron rm old-digest"
	return c
}

// entryCommand returns a command for one cron entry. Without --queue it looks for the queue that has an entry of the name.
func (a *app) entryCommand(use, short string, queue *string, do func(ctx context.Context, ins *inspect.Inspector, queue, entry string) error) *cobra.Command {
	c := a.command(use, short, cobra.ExactArgs(1), func(ctx context.Context, args []string) error {
		ins, err := a.inspector(ctx)
		if err != nil {
			return err
		}
		in := *queue
		if in == "" {
			if in, err = a.queueOf(ctx, ins, args[0]); err != nil {
				return err
			}
		}
		return do(ctx, ins, in, args[0])
	})
	c.Flags().StringVarP(queue, "queue", "q", "", "the entry's queue, if several have an entry of the name")
	c.ValidArgsFunction = a.completeEntries(queue)
	_ = c.RegisterFlagCompletionFunc("queue", a.completeQueues(-1))
	return c
}

// queueOf returns the one queue that has a cron entry of the name.
func (a *app) queueOf(ctx context.Context, ins *inspect.Inspector, entry string) (string, error) {
	entries, err := ins.Entries(ctx)
	var queues, names []string
	for i := range entries {
		names = append(names, entries[i].Name)
		if entries[i].Name == entry {
			queues = append(queues, entries[i].Queue)
		}
	}
	switch {
	case len(queues) == 1:
		return queues[0], nil
	case len(queues) > 1:
		return "", usage("queues %s have a cron entry %s: name one with --queue", strings.Join(queues, ", "), entry)
	case err != nil: // it may be in a queue that can't be read
		return "", err
	case len(names) == 0:
		return "", fmt.Errorf("%w: %q: there is none in namespace %q", inspect.ErrNoEntry, entry, a.namespace())
	}
	slices.Sort(names)
	names = slices.Compact(names)
	more := ""
	if n := len(names) - maxNamed; n > 0 {
		names, more = names[:maxNamed], fmt.Sprintf(" and %d more", n)
	}
	are := "are"
	if len(names) == 1 {
		are = "is"
	}
	return "", fmt.Errorf("%w: %q: there %s %s%s", inspect.ErrNoEntry, entry, are, strings.Join(names, ", "), more)
}

// maxNamed bounds the entries that an error names.
const maxNamed = 10
