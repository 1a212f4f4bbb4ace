package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
)

// A Lease is that of a session on the queue.
type Lease struct {
	Session string
	Until   time.Time // by the server's clock; it may have passed
}

// Worker returns the ID of the worker that has the session.
func (l *Lease) Worker() string { return ownerOf(l.Session) }

// Leases returns the sessions that are registered.
func (q *Queue) Leases(ctx context.Context) ([]Lease, error) {
	sessions, err := q.rdb.ZRangeWithScores(ctx, q.keys.sessions, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	leases := make([]Lease, len(sessions))
	for i, z := range sessions {
		leases[i] = Lease{Session: fmt.Sprint(z.Member), Until: timeOf(z.Score)}
	}
	return leases, nil
}

// Held returns what a session runs, in the order of the tokens, without the records.
func (q *Queue) Held(ctx context.Context, session string) ([]View, error) {
	all, err := q.held(ctx, session)
	views := make([]View, len(all))
	for i, h := range all {
		views[i] = q.view(h.id, signalbox.StateRunning)
		views[i].runs(session, h.value)
	}
	return views, err
}

// Workers returns the IDs of the workers that have a session with the queue, sorted.
func (s *Situation) Workers() []string {
	var workers []string
	for _, session := range s.Sessions {
		if worker := workerOf(session); worker != "" {
			workers = append(workers, worker)
		}
	}
	slices.Sort(workers)
	return slices.Compact(workers)
}
