package lease

import "context"

// Joined is a context that ends with either of two contexts. Its Err asks both, since they may be
// contexts that read the clock.
type Joined struct {
	context.Context // ends; a child of parent
	cancel          context.CancelCauseFunc
	stop            func() bool // the watch of other
	parent, other   context.Context
}

// Join returns a context with the values of parent that ends with parent or other, and with the
// cause of that one. The caller must call End.
func Join(parent, other context.Context) *Joined {
	j := &Joined{parent: parent, other: other}
	j.Context, j.cancel = context.WithCancelCause(parent)
	j.stop = context.AfterFunc(other, func() { j.cancel(context.Cause(other)) })
	return j
}

// End ends the context with this cause, unless it has ended.
func (j *Joined) End(cause error) {
	j.stop()
	j.cancel(cause)
}

func (j *Joined) Err() error {
	if j.parent.Err() != nil {
		j.cancel(context.Cause(j.parent))
	} else if j.other.Err() != nil {
		j.cancel(context.Cause(j.other))
	}
	return j.Context.Err()
}
