package lease

// ContextKey is the key under which a context has the lease that the code under it holds.
type ContextKey struct{}
