package lock

import (
	"fmt"
	"strings"
)

// A QuorumError says that too few nodes of a Redlock answered as they should. It is never
// an [ErrHeld]: nobody knows whether somebody else holds the lock. It wraps the errors of the nodes.
type QuorumError struct {
	Op   string // acquire, extend, release or check
	Key  string // empty for a check
	Need int    // nodes needed
	Held int    // nodes that said yes
	// Nodes has the errors of the other nodes.
	Nodes []NodeError
}

// A NodeError says why one node of a Redlock didn't count.
type NodeError struct {
	Node string // its address
	Err  error
}

func (e NodeError) Error() string { return e.Node + ": " + e.Err.Error() }
func (e NodeError) Unwrap() error { return e.Err }

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "lock: %s", e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " %.200q", e.Key)
	}
	fmt.Fprintf(&b, ": needs %d nodes, has %d", e.Need, e.Held)
	for i, n := range e.Nodes {
		if i == 0 {
			b.WriteString(" (")
		} else {
			b.WriteString("; ")
		}
		b.WriteString(n.Error())
	}
	if len(e.Nodes) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns the nodes' errors.
func (e *QuorumError) Unwrap() []error {
	errs := make([]error, len(e.Nodes))
	for i, n := range e.Nodes {
		errs[i] = n
	}
	return errs
}
