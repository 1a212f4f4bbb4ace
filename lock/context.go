package lock

import (
	"context"

	"github.com/signalbox-go/signalbox/internal/lease"
)

// NewContext returns a copy of ctx that carries the lease. Who runs code under a lease
// uses it, so that the code can ask for the token by [FromContext].
func NewContext(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, lease.ContextKey{}, l)
}

// FromContext is the lease that the code under ctx holds: the innermost one, if there
// are several.
func FromContext(ctx context.Context) (l Lease, ok bool) {
	l, ok = ctx.Value(lease.ContextKey{}).(Lease)
	return l, ok
}
