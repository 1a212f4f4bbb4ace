package lock

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A QuorumError is what came of asking the nodes of a [Redlock] when too few of them answered
// as they should. It is never an [ErrHeld]: whether somebody else holds the lock
// is not known. It wraps the errors of the nodes.
type QuorumError struct {
	Op   string // acquire, extend, release or check
	Key  string // empty for a check
	Need int    // nodes needed
	Held int    // nodes that said yes
	// Nodes has an error for each of the others.
	Nodes []NodeError
}

// A NodeError is why one node of a [Redlock] didn't count.
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
		fmt.Fprintf(&b, " %q", e.Key)
	}
	fmt.Fprintf(&b, ": needs %d nodes, has %d", e.Need, e.Held)
	for i, n := range e.Nodes {
		b.WriteString([]string{"; ", " ("}[boolInt(i == 0)])
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

// final tells whether trying again doesn't help, since too many nodes say so.
func (e *QuorumError) final(nodes int) bool {
	if e == nil {
		return false
	}
	invalid := 0
	for _, n := range e.Nodes {
		invalid += boolInt(errors.Is(n.Err, ErrInvalid))
	}
	return nodes-invalid < e.Need
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

const (
	// maxToken keeps tokens exact in Lua, whose numbers are doubles.
	maxToken = 1<<53 - 2
	// farAhead is how much more than its clock a node lets a token be, µs.
	farAhead = int64(time.Hour / time.Microsecond)
	// nearMedian is how far ahead of the others a clock may be and still be believed, µs.
	nearMedian = int64(30 * time.Minute / time.Microsecond)
	// tokenMargin is added to the nodes' clocks: what a proposal has to be ahead of them when
	// it arrives, µs.
	tokenMargin = int64(2 * time.Millisecond / time.Microsecond)
)

// proposal is the token to propose, from what the nodes' clocks show: more than all, so that
// every node votes for it, but for those that are far ahead, since then the others
// would not. It is 1 if no clock is known: then the answers tell.
func proposal(clocks []int64) int64 {
	if len(clocks) == 0 {
		return 1
	}
	slices.Sort(clocks)
	limit := clocks[(len(clocks)-1)/2] + nearMedian
	for clocks[len(clocks)-1] > limit {
		clocks = clocks[:len(clocks)-1]
	}
	return clocks[len(clocks)-1] + tokenMargin
}

// A register is what a node said about its token register when it was asked.
type register struct {
	last int64 // the token that it voted for before
	now  int64 // its clock, µs; last is the same if it had no record
}

// least is the smallest token that the node would vote for. Where the clock stands in for a
// record, it goes on until the vote arrives.
func (r register) least(margin int64) int64 {
	if r.last == r.now {
		return r.now + margin
	}
	return r.last + 1
}

// takes tells whether the node would vote for t.
func (r register) takes(t, margin int64) bool {
	return t >= r.least(margin) && t <= max(r.now+farAhead, r.last+1) && t <= maxToken
}

// agreeable is the largest token that need of the nodes would vote for, of those that are the
// next for one of them; 0 if there is none.
func agreeable(nodes []register, need int, margin int64) int64 {
	best := int64(0)
	for _, r := range nodes {
		t, votes := r.least(margin), 0
		for _, other := range nodes {
			votes += boolInt(other.takes(t, margin))
		}
		if votes >= need {
			best = max(best, t)
		}
	}
	return best
}
