package inspect

import (
	"context"
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// Waiting says which jobs [Inspector.DeleteWaiting] deletes, and how it goes about it. The zero value deletes the ready jobs.
type Waiting struct {
	// Scheduled has all scheduled jobs deleted as well: those that wait for their time, and those that wait for their next attempt.
	Scheduled bool
	Bulk
}

// DeleteWaiting deletes the jobs of a queue that wait to run: those that are ready, those whose time has come though no worker has looked at them yet, and with
// Scheduled all that are scheduled. Jobs that run go on. Dead and cancelled jobs stay: [Delete] deletes these. It deletes no more jobs than were waiting when
// it began, so it ends also beside producers. To have a queue run empty instead, stop its producers and let the workers go on; to have it give out no more
// jobs, [Inspector.Pause] it.
//
// The jobs can't be had back: look first with DryRun, or [Inspector.Export] the queue. It may be called again after an error. The error wraps [ErrNoQueue] if nobody has used the queue.
func (i *Inspector) DeleteWaiting(ctx context.Context, queue string, w Waiting) (p BulkCounts, err error) {
	if err := layout.ValidateQueue(queue); err != nil {
		return p, fmt.Errorf("inspect: %w", err)
	}
	q, err := i.Queue(ctx, queue)
	if err != nil {
		return p, err
	}
	if w.Progress != nil {
		defer func() { w.Progress(p) }()
	}
	scheduled := Filter{State: signalbox.StateScheduled, Limit: int(q.Scheduled)}
	if !w.Scheduled {
		scheduled.NewerThan = 1 // due now
	}
	for _, f := range []Filter{{State: signalbox.StateReady, Limit: int(q.Ready)}, scheduled} {
		if f.Limit == 0 {
			continue
		}
		before := p
		b := Bulk{DryRun: w.DryRun}
		if w.Progress != nil {
			b.Progress = func(now BulkCounts) { w.Progress(before.plus(now)) }
		}
		now, err := i.DoAll(ctx, queue, f, Delete{}, b)
		p = before.plus(now)
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// plus returns the sum.
func (p BulkCounts) plus(o BulkCounts) BulkCounts {
	return BulkCounts{p.Seen + o.Seen, p.Matched + o.Matched, p.Done + o.Done, p.Moved + o.Moved, p.Failed + o.Failed}
}
