package lock

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A claim is one random value at all nodes: an attempt asks for it, a lock has it, and in
// the end it is given up everywhere.
type claim struct {
	redlock *Redlock
	key     string
	// What the scripts are called with: the lock, its record, the random value.
	lockArg, recordArg, valueArg any

	mu     sync.Mutex
	shares []share
}

// A share is what a claim has of one node.
type share struct {
	state   shareState
	acquire *request
	taken   bool // lost, to another
}

type shareState int

const (
	shareNone     shareState = iota // none, for sure
	shareAsked                      // it was asked for, and the answer is due
	shareHeld                       // the node said so
	shareUnsure                     // the connection was lost: the node may have it, or will
	shareReleased                   // it was given up
	shareLost                       // it was given up, and had been lost before
)

var (
	redlockAcquire = newNodeScript("redlock_acquire")
	redlockExtend  = newNodeScript("redlock_extend")
	redlockRelease = newNodeScript("redlock_release")
)

func (r *Redlock) claim(key, record string) *claim {
	return &claim{
		redlock: r, key: key, lockArg: key, recordArg: record, valueArg: newValue(),
		shares: make([]share, len(r.nodes)),
	}
}

// A vote is what a node said to a proposal.
type vote struct {
	node  int
	token int64 // what was proposed
	held  bool  // the lock is the claim's there
	voted bool  // and the token has its vote
	register
	other bool          // the lock is another's, or nobody's any more
	for_  time.Duration // for at most so long; negative: for ever, or for not at all
	err   error         // else
}

// propose asks a node for its vote for a token, and for the lock unless the claim has it there.
func (c *claim) propose(i int, token int64, tokenArg any, until time.Time, votes chan<- *vote) {
	r := c.redlock
	set := 0
	k := &request{script: redlockAcquire, grant: true, until: until}
	c.mu.Lock()
	if c.shares[i].state == shareNone {
		set = 1
		c.shares[i] = share{state: shareAsked, acquire: k}
	}
	c.mu.Unlock()
	k.args = []any{
		scriptRoom + 9: nil, // the marker
		2:              3, 3: c.lockArg, 4: c.recordArg, 5: runMarkerArg,
		6: c.valueArg, 7: r.ttlArg, 8: tokenArg, 9: r.ownerArg, 10: set,
	}
	k.done = func(out outcome) { votes <- c.heard(i, token, set == 1, out) }
	r.nodes[i].wire.send(k)
}

// heard notes what came of a proposal, be it late.
func (c *claim) heard(i int, token int64, set bool, out outcome) *vote {
	n := c.redlock.nodes[i]
	v := parseVote(out)
	v.node, v.token = i, token
	if v.now != 0 {
		n.setClock(v.now, out.sent)
	}
	if errors.Is(v.err, errForgot) {
		n.forgot()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.shares[i]
	switch {
	case !set && s.state != shareHeld: // it was given up meanwhile
	case v.held:
		s.state = shareHeld
	case isUnknown(out.err):
		if set {
			s.state = shareUnsure
		}
	case v.other || set:
		s.state = shareNone
	}
	return &v
}

// isUnknown tells whether nobody knows if the script ran.
func isUnknown(err error) bool {
	if err == nil {
		return false
	}
	_, never := errors.AsType[notSent](err)
	return !never && !isAnswer(err)
}

// parseVote reads a reply of redlock_acquire.lua.
func parseVote(out outcome) vote {
	if err := out.err; err != nil {
		if isWrongType(err) || redis.HasErrorPrefix(err, "BADRECORD") {
			err = fmt.Errorf("%w: the key, or its record, holds something else there: %w", ErrInvalid, err)
		}
		return vote{err: err}
	}
	fields, _ := out.reply.([]any)
	var status, voted, ms int64
	var reg register
	switch {
	case numbers(fields, &status, &voted, &reg.last, &reg.now) && status == 1:
		return vote{held: true, voted: voted == 1, register: reg}
	case numbers(fields, &status, &ms, &reg.now) && status == 0:
		reg.last = 0
		return vote{other: true, for_: time.Duration(ms) * time.Millisecond, register: reg}
	case numbers(fields, &status) && status == -1:
		return vote{err: errForgot}
	}
	return vote{err: unexpected(out.reply)}
}

// What redlock_extend.lua and redlock_release.lua reply.
const (
	statusDone  = 1
	statusGone  = 0
	statusTaken = -1
)

func parseStatus(out outcome) (int64, error) {
	if out.err != nil {
		if isWrongType(out.err) {
			return statusTaken, nil // somebody put another type in its place
		}
		return 0, out.err
	}
	status, ok := out.reply.(int64)
	if !ok || status < statusTaken || status > statusDone {
		return 0, unexpected(out.reply)
	}
	return status, nil
}

// releaseRequest gives the claim up on a node, or has it expire at the moment keep.
func (c *claim) releaseRequest(keep time.Time, done func(outcome)) *request {
	ms := int64(0)
	if left := time.Until(keep); !keep.IsZero() && left > 0 {
		ms = (left + time.Millisecond - 1).Milliseconds()
	}
	return &request{script: redlockRelease, args: []any{nil, nil, 1, c.lockArg, c.valueArg, ms}, done: done}
}

// giveUp releases the claim on all nodes that have it or may. It doesn't wait: each node does it
// after what it was asked before, those that don't answer when they do. It
// returns how many will tell rulings, how many of those have said that they had it, and how
// many nodes never had it.
func (c *claim) giveUp(keep time.Time, rulings chan<- ruling) (asked, held, never int) {
	c.mu.Lock()
	requests := make([]*request, len(c.shares))
	for i := range c.shares {
		s := &c.shares[i]
		if s.state == shareAsked && s.acquire.withdraw() {
			s.state = shareNone
		}
		switch s.state {
		case shareHeld:
			held++
		case shareAsked, shareUnsure:
		case shareNone:
			never++
			continue
		default:
			continue
		}
		asked++
		requests[i] = c.releaseRequest(keep, func(out outcome) {
			status, err := parseStatus(out)
			rulings <- c.gaveUp(i, keep, status, err)
		})
	}
	c.mu.Unlock()
	for i, k := range requests {
		if k != nil {
			c.redlock.nodes[i].wire.send(k)
		}
	}
	return asked, held, never
}

// gaveUp notes what came of a release, and leaves the rest to be done in the background.
func (c *claim) gaveUp(i int, keep time.Time, status int64, err error) ruling {
	unsure, said := c.settle(i, status, err)
	if err != nil || unsure && said.status != statusDone {
		o := &leftover{
			claim: c, node: i, keep: keep, again: unsure && err != nil,
			drop: time.Now().Add(c.redlock.ttl + leftoverTTL),
		}
		if err == nil {
			o.after = time.Now().Add(secondLook)
		}
		c.redlock.nodes[i].leftovers.add(o)
	}
	return said
}

// settle notes what a node said to a release. It tells whether an acquire may still be under
// way there, and what it means: a later release doesn't find what an earlier one released.
func (c *claim) settle(i int, status int64, err error) (unsure bool, said ruling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.shares[i]
	unsure = s.state == shareUnsure || s.state == shareAsked
	switch {
	case err != nil, s.state == shareNone, s.state == shareLost:
	case s.state == shareReleased:
		status = statusDone
	case status == statusDone:
		s.state = shareReleased
	default:
		s.state, s.taken = shareLost, status == statusTaken
	}
	return unsure, ruling{i, status, err}
}
