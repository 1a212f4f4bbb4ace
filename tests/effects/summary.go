package main

import (
	"errors"
	"fmt"
	"time"
)

// A result is that of the run on one locker.
type result struct {
	locker             string
	size               size
	guarded, unguarded verdict
	stops, kills       int
	refused            int            // increments that the guard refused, since a newer holder had entered
	repeated           int            // increments that were tried again after they were had
	retries            map[string]int // by the kind of error
	errs               []string       // different ones of the kind "other"
	took               time.Duration
}

// problem returns why the run on this locker is wrong or proves nothing, or nil.
func (r result) problem() error {
	var errs []error
	wrong := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("%s: "+format, append([]any{r.locker}, args...)...))
		}
	}
	wrong(r.guarded.lost > 0, "%d guarded increments were lost", r.guarded.lost)
	wrong(r.guarded.doubled > 0, "%d guarded increments were doubled", r.guarded.doubled)
	const invalid = "the run is invalid: "
	wrong(r.guarded.acked != r.size.increments || r.unguarded.acked != r.size.increments, invalid+"%d guarded and %d unguarded increments were acknowledged; want %d of each",
		r.guarded.acked, r.unguarded.acked, r.size.increments)
	wrong(r.stops+r.kills < r.size.faults, invalid+"%d stops and %d kills; want %d together", r.stops, r.kills, r.size.faults)
	wrong(r.stops == 0 || r.kills == 0, invalid+"%d stops and %d kills; want some of both", r.stops, r.kills)
	wrong(r.unguarded.lost == 0, invalid+"the faults were too weak: the unguarded counter lost nothing")
	return errors.Join(errs...)
}

func (r result) String() string {
	line := fmt.Sprintf("%-10s %d increments, %d stops, %d kills, %.0f s: lost=%d doubled=%d refused=%d repeated=%d; unguarded: lost=%d doubled=%d; retries: %v",
		r.locker, r.guarded.acked, r.stops, r.kills, r.took.Seconds(), r.guarded.lost, r.guarded.doubled, r.refused, r.repeated,
		r.unguarded.lost, r.unguarded.doubled, r.retries)
	for _, text := range r.errs[:min(len(r.errs), 3)] {
		line += "\n  such as: " + text
	}
	return line
}

// A total has the results of all lockers.
type total struct {
	choices
	results []result
}

func (t total) problem() error {
	var errs []error
	refused, repeated := 0, 0
	for _, r := range t.results {
		errs = append(errs, r.problem())
		refused += r.refused
		repeated += r.repeated
	}
	if len(t.results) != len(t.lockers) {
		return errors.Join(append(errs, fmt.Errorf("the run is invalid: %d of %d lockers were tried", len(t.results), len(t.lockers)))...)
	}
	if refused == 0 {
		errs = append(errs, errors.New("the run is invalid: the faults were too weak: the guard refused no stale holder"))
	}
	if repeated == 0 {
		errs = append(errs, errors.New("the run is invalid: the faults were too weak: no increment was tried again after it was had"))
	}
	return errors.Join(errs...)
}

// line returns the last line of the output.
func (t total) line(failed bool) string {
	var sum result
	for _, r := range t.results {
		sum.guarded.acked += r.guarded.acked
		sum.guarded.lost += r.guarded.lost
		sum.guarded.doubled += r.guarded.doubled
		sum.unguarded.lost += r.unguarded.lost
	}
	mark := ""
	if failed {
		mark = "FAILED "
	}
	return fmt.Sprintf("effects: %slockers=%d increments=%d lost=%d doubled=%d unguarded_lost=%d",
		mark, len(t.results), sum.guarded.acked, sum.guarded.lost, sum.guarded.doubled, sum.unguarded.lost)
}
