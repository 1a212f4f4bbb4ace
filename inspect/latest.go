package inspect

import (
	"context"
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

// Latest returns the n jobs of a state that ended last, the last one first. The state is dead or cancelled, and n is 1 to 250. It makes one call,
// which reads at most some 256 KiB of records: if they are large, it returns fewer jobs, but at least one if there is any. [Inspector.Jobs]
// lists all of them, the oldest first. Of jobs with a Retain it looks at the n that are dropped last.
//
// The error wraps [ErrNoQueue] if nobody has used the queue, and [signalbox.ErrInvalid] if the state or n is wrong. A job whose record can't be
// read is no error: it is returned with its Err.
func (i *Inspector) Latest(ctx context.Context, queue string, state signalbox.State, n int) ([]Job, error) {
	if err := layout.ValidateQueue(queue); err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	if state != signalbox.StateDead && state != signalbox.StateCancelled {
		return nil, fmt.Errorf("inspect: %w state %.200q: the latest jobs are those that are dead or cancelled", signalbox.ErrInvalid, state)
	}
	if n < 1 || n > looks.MaxLatest {
		return nil, fmt.Errorf("inspect: %w number %d of latest jobs: 1 to %d are allowed", signalbox.ErrInvalid, n, looks.MaxLatest)
	}
	q := i.store(queue)
	if err := q.Site().CheckLayout(ctx); err != nil {
		return nil, fmt.Errorf("inspect: queue %s: %w", queue, err)
	}
	views, err := q.Looks().Latest(ctx, state, n)
	if err != nil {
		return nil, fmt.Errorf("inspect: the latest %s jobs of queue %s: %w", state, queue, err)
	}
	if len(views) == 0 {
		return nil, i.known(ctx, queue)
	}
	jobs := make([]Job, len(views))
	for k := range views {
		jobs[k] = jobOf(&views[k], &looks.Situation{})
		jobs[k].Cursor = ""
	}
	return jobs, nil
}
