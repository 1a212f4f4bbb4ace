package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

// maxRounds bounds the proposals of one attempt. The second is made of what the nodes
// answered to the first, and fails only if they were asked meanwhile, or if it takes longer
// to get there.
const maxRounds = 4

// An election is one attempt to have a quorum of nodes hold the lock and vote for the same token.
type election struct {
	claim *claim
	need  int
	last  []vote // of each node, with the zero vote if it hasn't said anything
	due   []int  // how many answers of each node are due
	count []candidate
	// clocks are what each node's clock showed when the attempt began, or else in its first
	// answer, µs; 0: unknown.
	clocks []int64
	asked  time.Time // when the last proposal was made
}

// A candidate is a token that was proposed, and who voted for it. A node may do so twice.
type candidate struct {
	token  int64
	voters []bool
}

func (c candidate) votes() (n int) {
	for _, voted := range c.voters {
		n += boolInt(voted)
	}
	return n
}

func newElection(c *claim) *election {
	n := len(c.locker.nodes)
	return &election{claim: c, need: c.locker.need, last: make([]vote, n), due: make([]int, n), clocks: c.locker.clocks()}
}

// run returns the token. Else the error is a *QuorumError, an ErrHeld, or ctx's. With all it waits until every node
// has answered, or for the timeout.
func (e *election) run(ctx context.Context, all bool) (int64, error) {
	r := e.claim.locker
	votes := make(chan *vote, maxRounds*len(r.nodes))
	now, far := newest(e.clocks)
	if far {
		r.doubt(e.clocks, now)
	}
	token := proposal(now)
	patience := newPatience(r.nodeTimeout)
	defer patience.stop()
	e.propose(token, votes)
	for round := 1; ; {
		select {
		case v := <-votes:
			e.hear(*v)
		case <-patience.timer.C:
			if !patience.over() {
				continue
			}
			for len(votes) > 0 { // they were in time
				e.hear(*<-votes)
			}
			e.timeout()
		case <-ctx.Done():
			if slices.ContainsFunc(e.last, func(v vote) bool { return v.other }) {
				return 0, fmt.Errorf("%w: %w", lock.ErrHeld, lease.Ended(ctx))
			}
			return 0, lease.Ended(ctx)
		}
		if all && e.awaited() > 0 {
			continue
		}
		if t := e.elected(); t != 0 {
			return t, nil
		}
		if err := e.hopeless(); err != nil {
			return 0, err
		}
		if held := e.held(); len(held) < e.need || e.open(token) {
			continue
		}
		next := int64(0)
		if round < maxRounds {
			next = e.next(round)
		}
		switch {
		case next != 0:
			token = next
			round++
			e.propose(token, votes)
			patience.begin()
		case e.awaited() == 0: // else those that are to come may agree
			return 0, e.split()
		}
	}
}

// propose asks all nodes, or in a later round those that hold the lock.
func (e *election) propose(token int64, votes chan<- *vote) {
	e.asked = time.Now()
	until := e.asked.Add(most * e.claim.locker.nodeTimeout)
	var tokenArg any = token
	e.count = append(e.count, candidate{token, make([]bool, len(e.last))})
	for i, v := range e.last {
		if v.held || v == (vote{}) && e.due[i] == 0 {
			e.due[i]++
			e.claim.propose(i, token, tokenArg, until, votes)
		}
	}
}

// hear notes what a node said. A vote for less than the node's clock doesn't count, though its
// register allows it. Where all know the clocks it never comes to that: proposals are ahead of them.
// But who knows none, as a new process, would settle on one more than the last
// token, and that may be an old one, if restarts that nobody noticed brought it back.
func (e *election) hear(v vote) {
	e.due[v.node] = max(0, e.due[v.node]-1)
	if e.clocks[v.node] == 0 {
		e.clocks[v.node] = v.now
	}
	if v.voted && v.token < e.clocks[v.node] {
		v.voted, v.last = false, v.token
	}
	for _, c := range e.count {
		if v.voted && c.token == v.token {
			c.voters[v.node] = true
		}
	}
	if v.err != nil && e.last[v.node].held {
		v.held = true // the lock is there all the same; it just has no vote
	}
	e.last[v.node] = v
}

// timeout gives up the answers that are due.
func (e *election) timeout() {
	for i, n := range e.due {
		if n == 0 {
			continue
		}
		e.due[i] = 0
		e.last[i].node = i
		e.last[i].err = noAnswer(e.claim.locker.nodeTimeout)
	}
}

func (e *election) awaited() int {
	n := 0
	for _, due := range e.due {
		n += boolInt(due > 0)
	}
	return n
}

// elected is the token that a quorum voted for, or 0.
func (e *election) elected() int64 {
	for _, c := range e.count {
		if c.votes() >= e.need {
			return c.token
		}
	}
	return 0
}

// held is what is known of the registers of the nodes that hold the lock.
func (e *election) held() []register {
	var held []register
	for i, v := range e.last {
		if !v.held {
			continue
		}
		now := e.claim.locker.nodes[i].clockNow()
		reg := register{last: v.last, now: now, floor: e.clocks[i]}
		switch {
		case v.voted:
			reg.last = v.token
		case v.last == v.now:
			reg.last = now
		}
		held = append(held, reg)
	}
	return held
}

// open reports whether the token may still win by the answers that are due. Once a node that holds the lock has
// refused it, a new round is as quick.
func (e *election) open(token int64) bool {
	for i, v := range e.last {
		if v.held && v.token == token && !v.voted && e.due[i] == 0 {
			return false
		}
	}
	return e.awaited() > 0
}

// hopeless returns an error if no quorum can hold the lock any more. That others hold it is returned at once. Failures
// of nodes are returned when all nodes have answered or had their time: what they say belongs in the error.
func (e *election) hopeless() error {
	held, others, waited := 0, 0, 0
	var free []time.Duration
	for i, v := range e.last {
		switch {
		case v.held:
			held++
		case v.other:
			others++
			free = append(free, v.for_)
		case e.due[i] > 0:
			waited++
		}
	}
	switch {
	case held+waited >= e.need:
		return nil
	case held+others >= e.need:
		return heldByOther{whenFree(free, e.need-held)}
	case waited > 0:
		return nil
	}
	return e.failed(func(v vote) error {
		if v.held || v.other {
			return nil
		}
		return v.err
	}, held)
}

// heldByOther is an ErrHeld that says for how long at most; negative: for ever.
type heldByOther struct{ for_ time.Duration }

func (h heldByOther) Error() string        { return lock.ErrHeld.Error() }
func (h heldByOther) Is(target error) bool { return target == lock.ErrHeld }

// whenFree is when missing more of the nodes will be free.
func whenFree(nodes []time.Duration, missing int) time.Duration {
	for i, d := range nodes {
		switch {
		case d == -2*time.Millisecond:
			nodes[i] = 0 // free already
		case d < 0:
			nodes[i] = 1<<63 - 1
		}
	}
	slices.Sort(nodes)
	if missing > len(nodes) || nodes[missing-1] == 1<<63-1 {
		return -1
	}
	return nodes[missing-1]
}

// next is the token for the round after this one: no less than the clocks of the nodes that are
// known by now. Its margin doubles, and is no less than the time that this round took, since
// the next may take as long.
func (e *election) next(round int) int64 {
	now, _ := newest(e.clocks)
	margin := max(tokenMargin<<(round-1), time.Since(e.asked).Microseconds())
	return agreeable(e.held(), e.need, margin, now)
}

// split is the error if a quorum holds the lock and can't agree on a token.
func (e *election) split() error {
	most := 0
	for _, c := range e.count {
		most = max(most, c.votes())
	}
	now, _ := newest(e.clocks)
	return e.failed(func(v vote) error {
		switch {
		case v.voted:
			return nil
		case v.held && v.err == nil:
			return noVote(v.register, now)
		case v.other:
			return errors.New("another holds the lock there")
		}
		return v.err
	}, most)
}

// noVote is why a node holds the lock and has no vote for the token of the others, whose clocks show
// this. It blames the clock or the register only if that is out by most of an hour. Less may be by
// our own doing: what takes long to get there comes after the clock that it was to be ahead of.
func noVote(r register, now int64) error {
	switch {
	case r.now > now+nearMedian:
		return clockAhead(r.now, now)
	case r.last > now+nearMedian:
		return fmt.Errorf("holds the lock, but its last token (%d) is too far from the others' clocks (%d)", r.last, now)
	case r.now < now-nearMedian:
		return fmt.Errorf("holds the lock, but its clock (%s) is too far behind the others' (%s)", clockText(r.now), clockText(now))
	}
	return errors.New("holds the lock, but voted for none of the tokens that were proposed in time: another attempt, or its clock, was ahead of each")
}

func clockAhead(clock, others int64) error {
	return fmt.Errorf("%w: its clock (%s) is too far from the others' (%s): about an hour ahead or more, and so tokens would be; set it right", lock.ErrInvalid, clockText(clock), clockText(others))
}

func clockText(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339) }

func (e *election) failed(why func(vote) error, held int) error {
	q := &lock.QuorumError{Op: "acquire", Key: e.claim.key, Need: e.need, Held: held}
	for i, v := range e.last {
		if err := why(v); err != nil {
			q.Nodes = append(q.Nodes, lock.NodeError{Node: e.claim.locker.nodes[i].addr, Err: err})
		}
	}
	return q
}
