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
