package looks

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/facts"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// A Lease is that of a session on the queue.
type Lease struct {
	Session string
	Until   time.Time // by the server's clock; it may have passed
}

// Worker returns the ID of the worker that has the session.
func (l *Lease) Worker() string { return facts.OwnerOf(l.Session) }

// Leases returns the sessions that are registered.
func (q *Looks) Leases(ctx context.Context) ([]Lease, error) {
	sessions, err := q.Client.ZRangeWithScores(ctx, q.Keys.Sessions, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	leases := make([]Lease, len(sessions))
	for i, z := range sessions {
		leases[i] = Lease{Session: fmt.Sprint(z.Member), Until: facts.TimeOf(z.Score)}
	}
	return leases, nil
}

// Runs returns what a session runs, in the order of the tokens: of the records it reads the kinds only. A job has no kind if its record
// is gone, has more than MaxKindRecord bytes, or doesn't begin with the kind.
func (q *Looks) Runs(ctx context.Context, session string) ([]View, error) {
	all, err := q.grants(ctx, session)
	views := make([]View, len(all))
	for i, h := range all {
		views[i] = q.view(h.ID, signalbox.StateRunning)
		views[i].runs(session, h.Value)
	}
	for some := range slices.Chunk(views, kindsRead) {
		if err == nil {
			err = q.readKinds(ctx, some)
		}
	}
	return views, err
}

// MaxKindRecord is the largest record of which Runs reads the kind, in bytes. A script takes some 5 ms to read a MiB.
const MaxKindRecord = 32 << 10

// kindsRead is of how many jobs a call reads the kinds.
const kindsRead = 20

func (q *Looks) readKinds(ctx context.Context, views []View) error {
	args := scripts.Kinds.Args(len(views), scripts.Arg("most", layout.MaxName+10), scripts.Arg("largest", MaxKindRecord)) // the kind, and what stands before it
	for i := range views {
		args = append(args, views[i].Job.ID)
	}
	r, err := scripts.Kinds.Run(ctx, q.Client, scripts.Kinds.Keys(&q.Keys), args)
	if err != nil {
		return err
	}
	if err := r.Status("ok"); err != nil {
		return err
	}
	heads := r.Array(1)
	if r.Err == nil && len(heads) != len(views) {
		r.Fail(1, fmt.Sprintf("%d kinds of %d jobs", len(heads), len(views)))
	}
	if r.Err != nil {
		return r.Err
	}
	for i, head := range heads {
		if text, ok := head.(string); ok {
			views[i].Job.Kind = wire.KindAt([]byte(text))
		}
	}
	return nil
}
