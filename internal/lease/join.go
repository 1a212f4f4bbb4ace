package lease

import "context"

// A Joined is a [Context] that ends with either of two contexts. Its Err asks both.
type Joined struct {
	Context
	other context.Context
	stop  func() bool // stops watching other
}

// Join returns a child of parent. It ends when parent or other ends, with the same cause. The caller must call End.
func Join(parent, other context.Context) *Joined {
	j := &Joined{other: other}
	j.Begin(parent)
	j.beside = j
	j.stop = context.AfterFunc(other, func() { j.Context.End(context.Cause(other)) })
	return j
}

// End ends the context with this cause, unless it has ended.
func (j *Joined) End(cause error) {
	j.stop()
	j.Context.End(cause)
}

func (j *Joined) over() error {
	if j.other.Err() == nil {
		return nil
	}
	return context.Cause(j.other)
}
