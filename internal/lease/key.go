package lease

// ContextKey is the context key of the lease that a handler holds.
type ContextKey struct{}
