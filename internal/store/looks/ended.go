package looks

import (
	"context"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
)

// MaxEnded is the most jobs that Ended looks at.
const MaxEnded = MaxLooked

// An End is what Ended has found out about a job.
type End struct {
	State EndState
	View  View // of one that has ended
}

// An EndState is whether a job has ended.
type EndState int

// The states.
const (
	NoJob  EndState = iota // there is none
	Over                   // it has ended, and is kept
	Live                   // it hasn't ended
	Unkept                 // it hasn't ended, and isn't kept when it completes
)

// Ended looks at jobs for those who wait for their ends: at the first of them, as many as have room in a reply, and at one at least. It makes one call.
func (q *Looks) Ended(ctx context.Context, ids []string) ([]End, error) {
	args := scripts.Ended.Args(len(ids), scripts.Arg("protocol", layout.Protocol), scripts.Arg("room", q.Room))
	for _, id := range ids {
		args = append(args, id)
	}
	r, err := scripts.Ended.Run(ctx, q.Client, scripts.Ended.Keys(&q.Keys), args)
	if err != nil {
		return nil, err
	}
	if err := r.Status("ok"); err != nil {
		return nil, err
	}
	states, scores, records := r.Strs(2), r.Strs(3), r.Strs(4)
	if r.Err == nil && (len(states) != len(scores) || len(states) != len(records) || len(states) == 0 || len(states) > len(ids)) {
		r.Fail(2, "not one state, score and record for each of the first jobs")
	}
	if r.Err != nil {
		return nil, r.Err
	}
	ends := make([]End, len(states))
	for i, state := range states {
		switch e := &ends[i]; state {
		case "":
		case "live":
			e.State = Live
		case "unkept":
			e.State = Unkept
		default:
			e.State, e.View = Over, q.view(ids[i], signalbox.State(state))
			e.View.placed(scores[i], records[i])
		}
	}
	return ends, nil
}
