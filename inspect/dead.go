package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// maxDeadLooked is the most dead jobs that [Inspector.DeadByError] looks at.
const maxDeadLooked = 10_000

// A DeadSummary says of what the dead jobs of a queue died.
type DeadSummary struct {
	Queue string
	Dead  int64 // how many jobs are dead
	// Looked is how many of them were looked at, 10,000 at most: if there are more, those that died last. Of the jobs with a Retain, those that are
	// dropped last were looked at, and they are no more than half of all if there are enough others.
	Looked int64
	// Unreadable is how many of those have a record that can't be read. They are in no group.
	Unreadable int64
	Groups     []ErrorGroup // the largest first
}

// An ErrorGroup are dead jobs of one kind whose last errors differ in numbers and IDs only.
type ErrorGroup struct {
	Kind string
	// Error is the first line of the last error, some 200 bytes of it at most and then "…". "<*>" stands for each number, duration, UUID, and ID in hexadecimal or of 16 letters and
	// digits or more. It is "" for jobs without an error.
	Error string
	Count int64
	// First and Last are when the first and the last of the jobs died, by the clock of Redis.
	First, Last time.Time
	// Example is the ID of the job that died last.
	Example string
	// Filter names all jobs of the group, for [Inspector.DoAll] and [Inspector.Jobs]: it has the kind, and the longest part of the error that all of them have. It may name
	// jobs of other groups, too, and dead jobs that weren't looked at: Bulk.DryRun counts them.
	Filter Filter
}

// DeadByError groups the dead jobs of a queue by their kind and their last error, so that one sees of what most died, and what died lately. It reads the records of
// 10,000 jobs at most, in short calls, and writes nothing. Payloads are not in the result. Texts of errors are: the handlers wrote them.
//
// Jobs that die or are deleted meanwhile may be missing. The error wraps [ErrNoQueue] if nobody has used the queue, and [signalbox.ErrInvalid] if a queue can't have
// that name.
func (i *Inspector) DeadByError(ctx context.Context, queue string) (DeadSummary, error) {
	return i.deadByError(ctx, queue, maxDeadLooked)
}

func (i *Inspector) deadByError(ctx context.Context, queue string, most int) (DeadSummary, error) {
	if err := i.known(ctx, queue); err != nil {
		return DeadSummary{}, err
	}
	failed := func(err error) (DeadSummary, error) {
		return DeadSummary{}, fmt.Errorf("inspect: the dead jobs of queue %s: %w", queue, err)
	}
	total, jobs, err := i.store(queue).Looks().Newest(ctx, most)
	if err != nil {
		return failed(err)
	}
	s := DeadSummary{Queue: queue, Dead: total}
	groups := make(map[errorKey]*ErrorGroup)
	for view, err := range jobs {
		if err != nil {
			return failed(err)
		}
		s.Looked++
		if view.Err != nil {
			s.Unreadable++
			continue
		}
		addTo(groups, &view)
	}
	s.Groups = largestFirst(groups)
	s.Dead = max(s.Dead, s.Looked) // some may have died meanwhile
	return s, nil
}

// largestFirst returns groups in the order of a [DeadSummary].
func largestFirst(groups map[errorKey]*ErrorGroup) []ErrorGroup {
	var list []ErrorGroup
	for _, g := range groups {
		list = append(list, *g)
	}
	slices.SortFunc(list, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Error, b.Error))
	})
	return list
}

// An errorKey is what the jobs of an [ErrorGroup] have in common.
type errorKey struct {
	state       signalbox.State
	kind, error string
}

// addTo adds a job that has ended to its group.
func addTo(groups map[errorKey]*ErrorGroup, v *looks.View) {
	pattern, literal := fold(v.Job.LastError)
	key := errorKey{v.State, v.Job.Kind, pattern}
	g := groups[key]
	if g == nil {
		g = &ErrorGroup{Kind: v.Job.Kind, Error: pattern, First: v.At, Filter: Filter{State: v.State, Kind: v.Job.Kind, Error: literal}}
		groups[key] = g
	}
	g.Count++
	if v.At.Before(g.First) {
		g.First = v.At
	}
	if !v.At.Before(g.Last) {
		g.Last, g.Example = v.At, v.Job.ID
	}
}
