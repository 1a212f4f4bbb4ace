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

// maxRounds bounds the rounds of proposals in one attempt. The second proposal follows from the answers to the first.
// It fails only if other clients asked the nodes meanwhile, or if it takes longer to
// arrive than was allowed for.
const maxRounds = 4

// An election is one attempt: a quorum of the nodes shall hold the lock and vote for the same token.
type election struct {
	claim *claim
	need  int
	last  []vote // of each node: its latest answer, or the zero vote
	due   []int  // of each node: how many answers are due
	count []candidate
	// clocks has what each node's clock showed when the attempt began, or else in its first
	// answer, µs; 0: unknown.
	clocks []int64
	asked  time.Time // when the last proposal was made
}

// A candidate is a token that was proposed, and the nodes that voted for it. A node may vote twice for the same.
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

// run returns the token. Else it returns a *QuorumError, ErrHeld or ctx's error. all makes it wait until every
// node has answered, or for the timeout.
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
			for len(votes) > 0 { // these answers came in time
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
		case e.awaited() == 0: // else the answers that are due may agree
			return 0, e.split()
		}
	}
}

// propose asks all nodes. In a later round it asks those that hold the lock.
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

// hear notes a node's answer. A vote for a token below the node's clock doesn't count, though the node's register
// allows it. A client that knows the clocks never makes such a proposal: its proposals are ahead of them. But a new
// process knows none, and would settle on the last token plus one. That token may be an old one, if a restart
// that nobody noticed brought it back.
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
		v.held = true // the node still has the lock for the claim; only the vote is missing
	}
	e.last[v.node] = v
}

// timeout stops waiting for the answers that are due.
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

// elected returns the token that a quorum voted for, or 0.
func (e *election) elected() int64 {
	for _, c := range e.count {
		if c.votes() >= e.need {
			return c.token
		}
	}
	return 0
}

// held returns the registers of the nodes that hold the lock, as far as they are known.
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

// open reports whether the token may still win by the answers that are due. If a node that holds the lock has
// refused it, open returns false: a new round is as quick.
func (e *election) open(token int64) bool {
	for i, v := range e.last {
		if v.held && v.token == token && !v.voted && e.due[i] == 0 {
			return false
		}
	}
	return e.awaited() > 0
}

// hopeless returns an error if no quorum can hold the lock any more. If others hold it, it says so at once. It waits
// with failures of nodes until all nodes have answered or had their time: the error names them all.
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

// heldByOther is an ErrHeld. It says for how long the lock is held at most; negative: for ever.
type heldByOther struct{ for_ time.Duration }

func (h heldByOther) Error() string        { return lock.ErrHeld.Error() }
func (h heldByOther) Is(target error) bool { return target == lock.ErrHeld }

// whenFree returns when as many more nodes will be free as are missing.
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

// next returns the token for the next round. It is ahead of all node clocks that are known by now. The margin
// doubles with each round. It is at least the time that this round took, since the next may take as long.
func (e *election) next(round int) int64 {
	now, _ := newest(e.clocks)
	margin := max(tokenMargin<<(round-1), time.Since(e.asked).Microseconds())
	return agreeable(e.held(), e.need, margin, now)
}

// split returns the error of a quorum that holds the lock and can't agree on a token.
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

// noVote returns why a node holds the lock and has no vote for the others' token. now is what the others' clocks
// show. It blames the node's clock or register only if that is out by most of an hour. A smaller difference may
// be of our own making: a proposal that is slow to arrive comes after the clock that it should be ahead of.
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
