package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/lock"
)

// final reports whether another try can't help, since too many nodes are unfit.
func final(e *lock.QuorumError, nodes int) bool {
	if e == nil {
		return false
	}
	invalid := 0
	for _, n := range e.Nodes {
		invalid += boolInt(errors.Is(n.Err, lock.ErrInvalid))
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
	// farAhead is how far a token may be ahead of a node's clock to get its vote, µs.
	farAhead = int64(time.Hour / time.Microsecond)
	// nearMedian is how far a clock may be ahead of the others, µs. A node whose clock is further ahead is
	// unfit. It is a little less than farAhead. So the others vote for tokens that follow from such
	// a clock.
	nearMedian = farAhead - int64(time.Minute/time.Microsecond)
	// tokenMargin is added to the nodes' clocks, µs. A proposal has to be ahead of them when it
	// arrives.
	tokenMargin = int64(2 * time.Millisecond / time.Microsecond)
)

// newest returns the latest of the nodes' clocks, 0 if none is known. It leaves out clocks that are far ahead
// of the median, and far reports whether there are any. An unknown clock is 0.
func newest(clocks []int64) (now int64, far bool) {
	var room [16]int64
	known := room[:0]
	for _, c := range clocks {
		if c != 0 {
			known = append(known, c)
		}
	}
	if len(known) == 0 {
		return 0, false
	}
	slices.Sort(known)
	limit := known[(len(known)-1)/2] + nearMedian
	for known[len(known)-1] > limit {
		known, far = known[:len(known)-1], true
	}
	return known[len(known)-1], far
}

// proposal returns the token to propose, from the latest of the nodes' clocks. It is a little more than that
// clock, so that every node votes for it. If no clock is known it is 1. No node votes for
// 1, and the answers show the clocks.
func proposal(newest int64) int64 {
	if newest == 0 {
		return 1
	}
	return newest + tokenMargin
}

// A register is what a node said about its token register.
type register struct {
	last int64 // the token that it voted for last; equal to now if it had no record
	now  int64 // its clock, µs
	// floor is what its clock showed when this attempt first knew it, µs. A vote for less
	// doesn't count: see [election.hear].
	floor int64
}

// least returns the smallest token for which the node's vote would count. A node without a record votes by its
// clock, which goes on until the proposal arrives.
func (r register) least(margin int64) int64 {
	if r.last == r.now {
		return max(r.now+margin, r.floor)
	}
	return max(r.last+1, r.floor)
}

// takes reports whether the node would vote for t and the vote would count.
func (r register) takes(t, margin int64) bool {
	return t >= r.least(margin) && t <= max(r.now+farAhead, r.last+1) && t <= maxToken
}

// agreeable returns the largest token that at least need of the nodes would vote for; 0 if there is none. It
// considers newest, and for each node the least token that it takes.
func agreeable(nodes []register, need int, margin, newest int64) int64 {
	agreed := func(t int64) bool {
		votes := 0
		for _, r := range nodes {
			votes += boolInt(r.takes(t, margin))
		}
		return votes >= need
	}
	best := int64(0)
	if newest > 0 && agreed(newest) {
		best = newest
	}
	for _, r := range nodes {
		if t := r.least(margin); t > best && agreed(t) {
			best = t
		}
	}
	return best
}
