package main

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-go/signalbox/inspect"
)

// A sums is what happened in the window of some statistics.
type sums struct {
	queue     string
	at        time.Time
	total     inspect.Counts // since the queue began
	recent    inspect.Counts // in the window
	wait, run inspect.Histogram
}

// sumsOf adds up the buckets of a queue.
func sumsOf(s *inspect.Stats) sums {
	all := sums{queue: s.Queue, at: s.At, total: s.Total}
	for i := range s.Buckets {
		b := &s.Buckets[i]
		all.recent = plus(all.recent, b.Counts)
		all.wait, all.run = all.wait.Plus(b.Wait), all.run.Plus(b.Run)
	}
	return all
}

// add adds the counts and times of another queue.
func (s *sums) add(o *sums) {
	s.total, s.recent = plus(s.total, o.total), plus(s.recent, o.recent)
	s.wait, s.run = s.wait.Plus(o.wait), s.run.Plus(o.run)
}

func plus(a, b inspect.Counts) inspect.Counts {
	return inspect.Counts{
		Enqueued: a.Enqueued + b.Enqueued, Completed: a.Completed + b.Completed, Retried: a.Retried + b.Retried, Delayed: a.Delayed + b.Delayed,
		Returned: a.Returned + b.Returned, Dead: a.Dead + b.Dead, Cancelled: a.Cancelled + b.Cancelled, Crashed: a.Crashed + b.Crashed,
		Deleted: a.Deleted + b.Deleted, Revived: a.Revived + b.Revived, Expired: a.Expired + b.Expired,
	}
}

// allStats prints what happened in each queue of the namespace, and in all of them. What can't be read is in the error.
func (a *app) allStats(ctx context.Context, ins *inspect.Inspector, step inspect.Step, by string) error {
	queues, err := ins.Queues(ctx)
	errs := []error{err}
	list := make([]sums, 0, len(queues))
	var all sums
	for _, q := range queues {
		s, err := ins.Stats(ctx, q.Name, step)
		if errors.Is(err, inspect.ErrNoQueue) {
			continue // it was removed meanwhile
		}
		errs = append(errs, err)
		if s.At.IsZero() {
			continue
		}
		one := sumsOf(&s)
		all.add(&one)
		list = append(list, one)
	}
	if len(list) == 0 && errors.Join(errs...) != nil {
		return errors.Join(errs...)
	}
	if a.json() {
		errs = append(errs, a.document(allStatsOf(list, &all, by)))
	} else {
		a.printAllStats(list, &all, step)
	}
	return errors.Join(errs...)
}

func (a *app) printAllStats(list []sums, all *sums, step inspect.Step) {
	if len(list) == 0 {
		a.noQueue()
		return
	}
	t := a.table(column{name: "QUEUE"}, column{name: "ENQUEUED", right: true}, column{name: "COMPLETED", right: true},
		column{name: "RETRIED", right: true, drop: 5}, column{name: "DEAD", right: true}, column{name: "CANCELLED", right: true, drop: 1},
		column{name: "CRASHED", right: true, drop: 3}, column{name: "WAIT P50", right: true, drop: 2}, column{name: "WAIT P95", right: true, drop: 6},
		column{name: "RUN P95", right: true, drop: 4})
	row := func(name string, s *sums) {
		c := &s.recent
		t.row(name, number(c.Enqueued), number(c.Completed), number(c.Retried), number(c.Dead), number(c.Cancelled), number(c.Crashed),
			quantile(s.wait, 0.5), quantile(s.wait, 0.95), quantile(s.run, 0.95))
	}
	for i := range list {
		row(list[i].queue, &list[i])
	}
	row("all of "+plural(len(list), "queue"), all) // no queue's name has a space
	t.flush()
	other := "--by hour has those of the last 30d"
	if step == inspect.ByHour {
		other = "--by minute has those of the last 3h"
	}
	a.note("These are numbers of the last %s; %s.", span(step.Window()), other)
}

// quantile returns a quantile for people, or "" if there are no times.
func quantile(h inspect.Histogram, q float64) string {
	if h.Count() == 0 {
		return ""
	}
	return span(h.Quantile(q))
}

// allStatsJSON are the statistics of all queues for programs. docs/cli/json.md has its fields.
type allStatsJSON struct {
	By     string         `json:"by"`
	Queues []queueSumJSON `json:"queues"`
	All    sumJSON        `json:"all"`
}

type queueSumJSON struct {
	Queue string  `json:"queue"`
	At    *string `json:"at"`
	sumJSON
}

type sumJSON struct {
	Total  countsJSON `json:"total"`
	Recent countsJSON `json:"recent"`
	Wait   timesJSON  `json:"wait"`
	Run    timesJSON  `json:"run"`
}

func allStatsOf(list []sums, all *sums, by string) allStatsJSON {
	of := func(s *sums) sumJSON {
		return sumJSON{countsJSON(s.total), countsJSON(s.recent), timesOf(s.wait), timesOf(s.run)}
	}
	out := allStatsJSON{by, make([]queueSumJSON, len(list)), of(all)}
	for i := range list {
		out.Queues[i] = queueSumJSON{list[i].queue, timestamp(list[i].at), of(&list[i])}
	}
	return out
}
