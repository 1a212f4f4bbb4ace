package looks

import (
	"context"
	"slices"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

const (
	// MaxLatest is the most jobs that Latest returns.
	MaxLatest = MaxLooked
	// latestRoom is how many bytes of records Latest reads: it may be called each second.
	latestRoom = 256 << 10
)

// Latest returns the n jobs of a state, dead or cancelled, that ended last: the last one first. It returns fewer if their records are
// large. Of jobs whose records say how long they are kept, it looks at the n that are dropped last. It makes one call.
func (q *Looks) Latest(ctx context.Context, state signalbox.State, n int) ([]View, error) {
	r, err := scripts.Latest.Run(ctx, q.Client, scripts.Latest.Keys(&q.Keys), scripts.Latest.Args(0,
		scripts.Arg("state", string(state)), scripts.Arg("count", n), scripts.Arg("room", min(q.Room, latestRoom))))
	if err != nil {
		return nil, err
	}
	_, elements, ids, records, err := parsePage(r)
	if err != nil {
		return nil, err
	}
	views := make([]View, len(ids))
	for i, id := range ids {
		views[i] = q.view(id, state)
		views[i].placed(elements[2*i+1], records[i])
	}
	slices.SortStableFunc(views, func(a, b View) int { return b.At.Compare(a.At) })
	return views[:min(n, len(views))], nil
}
