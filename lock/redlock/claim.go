package redlock

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// A claim is what one attempt has at all nodes: the same random value. The attempt asks for it, the lock holds
// it, and in the end it is given up everywhere.
type claim struct {
	locker *Locker
	key    string
	// Arguments of the scripts: the lock, its record and the random value.
	lockArg, recordArg, valueArg any

	mu     sync.Mutex
	shares []share
	over   bool // it was given up: no node is asked for it any more
}

// A share is what a claim has at one node.
type share struct {
	state   shareState
	acquire *request
	asked   time.Time // when the acquire was made
	memory  string    // the marker of the node's memory that surely had the lock; empty: none
	wanted  time.Time // until then the node is asked to set it again
	waits   bool      // and will be, after a pause
	refused bool      // somebody else had the lock
	taken   bool      // it was lost, and somebody else has the lock
}

type shareState int

const (
	shareNone     shareState = iota // nothing, for sure
	shareAsked                      // the node was asked, and its answer is due
	shareHeld                       // the lock: the node said so
	shareUnsure                     // the connection was lost: the node may have the lock, or will
	shareReleased                   // nothing any more: it was given up
	shareLost                       // nothing any more: it was lost before it was given up
)

func (r *Locker) claim(key, record string) *claim {
	return &claim{
		locker: r, key: key, lockArg: key, recordArg: record, valueArg: spec.NewValue(),
		shares: make([]share, len(r.nodes)),
	}
}

// More replies of acquire.lua.
const (
	statusForgot = -1
	statusLate   = -2
)

// errCameLate means that a request reached the node after its deadline. The node did nothing.
var errCameLate = errors.New("it got the request too late, or its clock jumped ahead, and did nothing")

// A vote is a node's answer to a proposal.
type vote struct {
	node  int
	token int64 // the proposed token
	held  bool  // the node has the lock for this claim
	voted bool  // and voted for the token
	register
	other bool          // somebody else has the lock, or nobody any more
	for_  time.Duration // for at most so long; negative: for ever, or nobody has it
	err   error         // if there was no such answer
}

// propose asks a node for its vote for a token. It also asks for the lock, unless the claim has it there.
func (c *claim) propose(i int, token int64, tokenArg any, until time.Time, votes chan<- *vote) {
	k := &request{script: acquireScript, grant: true, until: until}
	c.mu.Lock()
	set := c.shares[i].state == shareNone
	if set {
		c.shares[i] = share{state: shareAsked, acquire: k, asked: time.Now()}
	}
	c.mu.Unlock()
	k.args = c.acquireArgs(tokenArg, boolInt(set))
	k.done = func(out outcome) {
		v := c.heard(i, token, set, out)
		if v.other {
			c.later(i) // if the others have granted the lock meanwhile
		}
		votes <- v
	}
	c.locker.nodes[i].wire.send(k)
}

// acquireArgs returns the arguments of acquire.lua.
func (c *claim) acquireArgs(tokenArg any, set int) []any {
	r := c.locker
	return []any{
		scriptRoom + 11: nil, // the marker, the floor and the deadline
		2:               3, 3: c.lockArg, 4: c.recordArg, 5: runMarkerArg,
		6: c.valueArg, 7: r.ttlArg, 8: tokenArg, 9: r.ownerArg, 10: set,
	}
}

// heard notes the outcome of a proposal, whether it comes in time or late.
func (c *claim) heard(i int, token int64, set bool, out outcome) *vote {
	n := c.locker.nodes[i]
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
	case !set && s.state != shareHeld: // the claim was given up meanwhile
	case v.held:
		s.state, s.memory = shareHeld, out.memory
	case isUnknown(out.err):
		if set {
			s.state = shareUnsure
		}
	case v.other || set:
		s.state, s.refused = shareNone, v.other
	}
	return &v
}

// isUnknown reports whether nobody knows if the script ran.
func isUnknown(err error) bool {
	if err == nil {
		return false
	}
	_, never := errors.AsType[notSent](err)
	return !never && !lua.IsAnswer(err)
}

// parseVote reads a reply of acquire.lua.
func parseVote(out outcome) vote {
	if err := out.err; err != nil {
		if lua.IsWrongType(err) || redis.HasErrorPrefix(err, "BADRECORD") {
			err = fmt.Errorf("%w: the key, or its record, holds something else there: %w", lock.ErrInvalid, err)
		}
		return vote{err: err}
	}
	fields, _ := out.reply.([]any)
	var status, voted, ms int64
	var reg register
	switch {
	case lua.Numbers(fields, &status, &voted, &reg.last, &reg.now) && status == 1:
		return vote{held: true, voted: voted == 1, register: reg}
	case lua.Numbers(fields, &status, &ms, &reg.now) && status == 0:
		reg.last = 0
		return vote{other: true, for_: time.Duration(ms) * time.Millisecond, register: reg}
	case lua.Numbers(fields, &status) && status == statusForgot:
		return vote{err: errForgot}
	case lua.Numbers(fields, &status, &reg.now) && status == statusLate:
		return vote{err: errCameLate, register: register{now: reg.now}}
	}
	return vote{err: lua.Unexpected(out.reply)}
}

// The replies of extend.lua and release.lua.
const (
	statusDone  = 1
	statusGone  = 0
	statusTaken = -1
)

func parseStatus(out outcome) (int64, error) {
	if out.err != nil {
		if lua.IsWrongType(out.err) {
			return statusTaken, nil // somebody put another type at the lock's key
		}
		return 0, out.err
	}
	status, ok := out.reply.(int64)
	if !ok || status < statusTaken || status > statusDone {
		return 0, lua.Unexpected(out.reply)
	}
	return status, nil
}

// releaseRequest returns the request that gives the claim up on a node, or makes it expire at the moment keep.
func (c *claim) releaseRequest(keep time.Time, done func(outcome)) *request {
	ms := int64(0)
	if left := time.Until(keep); !keep.IsZero() && left > 0 {
		ms = (left + time.Millisecond - 1).Milliseconds()
	}
	return &request{script: releaseScript, args: []any{nil, nil, 1, c.lockArg, c.valueArg, ms}, done: done}
}

// giveUp sends releases of the claim to all nodes that have it or may have it, and doesn't wait. A node runs its
// release after all earlier requests of this process. Each node that is asked sends one ruling. giveUp returns how
// many nodes were asked, how many of those had said that they have the claim, and how many nodes never had it.
func (c *claim) giveUp(keep time.Time, rulings chan<- ruling) (asked, held, never int) {
	c.mu.Lock()
	c.over = true
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
			c.locker.nodes[i].wire.send(k)
		}
	}
	return asked, held, never
}

// gaveUp notes the outcome of a release. What is left to do is done in the background.
func (c *claim) gaveUp(i int, keep time.Time, status int64, err error) ruling {
	unsure, said := c.settle(i, status, err)
	if err != nil || unsure && said.status != statusDone {
		o := &leftover{
			claim: c, node: i, keep: keep, again: unsure && err != nil,
			drop: time.Now().Add(c.locker.ttl + leftoverTTL),
		}
		if err == nil {
			o.after = time.Now().Add(lookTwice(c.locker))
		}
		c.locker.nodes[i].leftovers.add(o)
	}
	return said
}

// settle notes a node's answer to a release. unsure says that an acquire may still be under way there. said is the
// answer, corrected by earlier ones: a later release doesn't find what an earlier one released.
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
