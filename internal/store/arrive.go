package store

import (
	"context"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/wire"
)

// An Arrival is a job that comes from another system, where it has left its place.
type Arrival struct {
	Name   string // of this move, drawn at random: it leaves a receipt
	Stored Stored // Prepare has accepted it
}

// NewStored returns a job that can be put in once Prepare has accepted it. unique is its key; its Scope is 0 if there is none.
func NewStored(job signalbox.Job, state signalbox.State, unique Unique) Stored {
	s := Stored{ID: job.ID, State: state, Effects: job.Effect}
	s.Whole.Job = job
	s.Whole.Flags, s.Whole.Extras = wire.Extras(&job)
	if unique.Scope != 0 {
		s.Whole.Flags, s.Whole.Extras = wire.WithUnique(nil, s.Whole.Flags, s.Whole.Extras, unique)
	}
	return s
}

// Arrive puts jobs in, each with a receipt of its name in the same script. It returns an answer for each: Done; Changed, if there was a receipt of the name: it was put in before;
// Gone, if the move was given up by Refuse; Occupied; KeyTaken. If it fails, it has put in those that it returns. It may be called again.
func (t *Transfer) Arrive(ctx context.Context, jobs []Arrival) ([]Answer, error) {
	all := make([]placement, len(jobs))
	for i := range jobs {
		all[i] = jobs[i].Stored.placed()
		all[i].move = arrives + jobs[i].Name
	}
	return t.putRecords(ctx, all, false)
}

// Refuse gives moves up: no Arrive of such a name puts a job in any more. It returns an answer for each: Done, or Changed if Arrive has put the job in before. It may be called again.
func (t *Transfer) Refuse(ctx context.Context, names []string) ([]Answer, error) {
	all := make([]placement, len(names))
	for i, name := range names {
		all[i] = placement{state: gone, move: arrives + name}
	}
	return t.putRecords(ctx, all, false)
}

// arrives stands before the name of a job that comes from another system.
const arrives = "!"
