package lock

import "context"

type leaseKey struct{}

// NewContext returns a copy of ctx that carries the lease. Who runs code under a lease
// uses it, so that the code can ask for the token by [FromContext].
func NewContext(ctx context.Context, lease Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// FromContext is the lease that the code under ctx holds: the innermost one, if there
// are several.
func FromContext(ctx context.Context) (lease Lease, ok bool) {
	lease, ok = ctx.Value(leaseKey{}).(Lease)
	return lease, ok
}

// joined ends with either of two contexts. Its Err asks both, since they may be contexts
// that read the clock.
type joined struct {
	context.Context // ends; a child of parent
	cancel          context.CancelCauseFunc
	parent, other   context.Context
}

// join returns a context with the values of parent that ends with parent or other, and
// with the cause of that one. The caller must call the function, which also ends it.
func join(parent, other context.Context) (*joined, context.CancelCauseFunc) {
	j := &joined{parent: parent, other: other}
	j.Context, j.cancel = context.WithCancelCause(parent)
	stop := context.AfterFunc(other, func() { j.cancel(context.Cause(other)) })
	return j, func(cause error) {
		stop()
		j.cancel(cause)
	}
}

func (j *joined) Err() error {
	if j.parent.Err() != nil {
		j.cancel(context.Cause(j.parent))
	} else if j.other.Err() != nil {
		j.cancel(context.Cause(j.other))
	}
	return j.Context.Err()
}
