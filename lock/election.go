package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxRounds bounds the proposals of one attempt. The second is made of what the nodes
// answered to the first, and fails only if they were asked meanwhile.
const maxRounds = 4

// An election is one attempt to have a quorum of nodes hold the lock and vote for the same token.
type election struct {
	claim *claim
	need  int
	last  []vote // of each node, with the zero vote if it hasn't said anything
	due   []int  // how many answers of each node are due
	count []candidate
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
	n := len(c.redlock.nodes)
	return &election{claim: c, need: c.redlock.need, last: make([]vote, n), due: make([]int, n)}
}

// run returns the token, or why there is none: a QuorumError, a held, or the end of ctx.
// all makes it wait for every node, or the timeout.
func (e *election) run(ctx context.Context, all bool) (int64, error) {
	r := e.claim.redlock
	votes := make(chan *vote, maxRounds*len(r.nodes))
	timer := time.NewTimer(r.nodeTimeout)
	defer timer.Stop()
	token := proposal(r.clocks())
	e.propose(token, votes)
	for round := 1; ; {
		select {
		case v := <-votes:
			e.hear(*v)
		case <-timer.C:
			e.timeout()
		case <-ctx.Done():
			if slices.ContainsFunc(e.last, func(v vote) bool { return v.other }) {
				return 0, heldUntilEnd(ctx)
			}
			return 0, ended(ctx)
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
			timer.Reset(r.nodeTimeout)
		case e.awaited() == 0: // else those that are to come may agree
			return 0, e.split()
		}
	}
}

// propose asks all nodes, or in a later round those that hold the lock.
func (e *election) propose(token int64, votes chan<- *vote) {
	until := time.Now().Add(e.claim.redlock.nodeTimeout)
	var tokenArg any = token
	e.count = append(e.count, candidate{token, make([]bool, len(e.last))})
	for i, v := range e.last {
		if v.held || v == (vote{}) && e.due[i] == 0 {
			e.due[i]++
			e.claim.propose(i, token, tokenArg, until, votes)
		}
	}
}

func (e *election) hear(v vote) {
	e.due[v.node] = max(0, e.due[v.node]-1)
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
		e.last[i].err = noAnswer(e.claim.redlock.nodeTimeout)
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
		now, _ := e.claim.redlock.nodes[i].clockNow()
		reg := register{last: v.last, now: now}
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

// open tells whether the token may still win by the answers that are due, and no node
// that holds the lock has refused it: then a new round is as quick.
func (e *election) open(token int64) bool {
	for i, v := range e.last {
		if v.held && v.token == token && !v.voted && e.due[i] == 0 {
			return false
		}
	}
	return e.awaited() > 0
}

// hopeless is the error if no quorum can hold the lock any more. That others hold it is told
// at once, and the failure of nodes when all have had their time: what they say
// belongs in the error, and what they grant must be given up.
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

func (h heldByOther) Error() string        { return ErrHeld.Error() }
func (h heldByOther) Is(target error) bool { return target == ErrHeld }

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

// next is the token for the round after this one, with a margin that doubles.
func (e *election) next(round int) int64 {
	return agreeable(e.held(), e.need, tokenMargin<<(round-1))
}

// split is the error if a quorum holds the lock and can't agree on a token.
func (e *election) split() error {
	most := 0
	for _, c := range e.count {
		most = max(most, c.votes())
	}
	return e.failed(func(v vote) error {
		switch {
		case v.voted:
			return nil
		case v.held && v.err == nil:
			return fmt.Errorf("holds the lock, but its clock (%s) or last token (%d) is too far from the others'", time.UnixMicro(v.now).UTC().Format(time.RFC3339), v.last)
		case v.other:
			return errors.New("another holds the lock there")
		}
		return v.err
	}, most)
}

func (e *election) failed(why func(vote) error, held int) error {
	q := &QuorumError{Op: "acquire", Key: e.claim.key, Need: e.need, Held: held}
	for i, v := range e.last {
		if err := why(v); err != nil {
			q.Nodes = append(q.Nodes, NodeError{e.claim.redlock.nodes[i].addr, err})
		}
	}
	return q
}
