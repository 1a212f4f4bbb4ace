package lock

import (
	"context"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// NewContext returns a copy of ctx that carries the lease. Code that runs other code under a lease uses it, so
// that [FromContext] finds the lease there.
func NewContext(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, lease.ContextKey{}, l)
}

// FromContext returns the lease that ctx carries: the innermost one, if there are several.
func FromContext(ctx context.Context) (l Lease, ok bool) {
	l, ok = ctx.Value(lease.ContextKey{}).(Lease)
	return l, ok
}
