package main

import (
	"errors"
	"fmt"
)

// A summary counts what happened to the jobs.
type summary struct {
	jobs   int // jobs that were enqueued by requests and ended, and ticks
	traces int // traces in Jaeger

	retried   int // jobs that failed and later succeeded
	recovered int // jobs that were done after a crash
	waited    int // jobs that waited for a lock
	snoozed   int // jobs that put themselves back
	dead      int // jobs that failed for good
	ticks     int
}

func summarise(requests []request, l *ledger) summary {
	var s summary
	traces := make(map[string]bool)
	for _, r := range requests {
		traces[r.Trace] = true
		s.jobs += len(r.Jobs)
	}
	ended := func(kind, what string) int {
		return len(l.find(func(e event) bool { return e.Kind == kind && e.What == what }))
	}
	for _, e := range l.find(func(event) bool { return true }) {
		traces[e.Trace] = true
		if e.What == done && e.Attempt > 1 {
			s.retried++
		}
		if e.What == done && e.Crashes > 0 {
			s.recovered++
		}
	}
	delete(traces, "")
	s.traces = len(traces)
	s.waited = waitedIn(l)
	s.snoozed = ended(reminder.Kind(reminder{}), snoozed)
	s.dead = ended(refund.Kind(refund{}), failed)
	s.ticks = ended(stock.Kind(stock{}), done)
	s.jobs += s.ticks
	return s
}

// waitedIn returns how many reports were delivered before the one with the lock was done.
func waitedIn(l *ledger) int {
	n := 0
	for _, e := range l.find(func(e event) bool { return e.Kind == report.Kind(report{}) }) {
		if e.What == done {
			return n - 1
		}
		n++
	}
	return 0
}

// problem returns why the run did not show all that it should, or nil.
func (s summary) problem() error {
	var errs []error
	check := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	check(s.retried == 1, "no job was retried")
	check(s.recovered >= 1, "no job was recovered")
	check(s.waited == 1, "no job waited for the lock")
	check(s.snoozed >= 1, "no job was snoozed")
	check(s.dead == 1, "no job is dead")
	check(s.ticks > 0, "the cron entry never ticked")
	return errors.Join(errs...)
}

func (s summary) lastLine(ok bool) string {
	verdict := "failed"
	if ok {
		verdict = "ok"
	}
	return fmt.Sprintf("tracing: %s jobs=%d traces=%d retried=%d recovered=%d waited=%d snoozed=%d dead=%d ticks=%d",
		verdict, s.jobs, s.traces, s.retried, s.recovered, s.waited, s.snoozed, s.dead, s.ticks)
}
