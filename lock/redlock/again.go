package redlock

import (
	"math/rand/v2"
	"sync"
	"time"
)

// againPause is the pause before a node is asked again that doesn't count yet, or where another holds the lock: most likely for
// a moment, in a try that fails. Up to as much is added at random.
const againPause = 50 * time.Millisecond

// An extension is one request to all nodes to extend a lock.
//
// A node that restarted has lost its lock. A holder that only extends would lose one node after the other that way, and
// with the majority its lock. So it sets the lock again, on nodes that said that it is gone:
//
//   - It does so only after a majority has confirmed that it still has the lock, and while the validity has not ended. So a
//     lock that was lost is never brought back.
//   - A node is asked for it as by an acquire: it must count, with the memory that we know. It takes the lock
//     only if that is free there, and only before the request's deadline.
//   - The token 0 is proposed. No node votes for it: its register and its floor stay as they are. The token of the
//     lock is below them.
//   - The node counts for the holder from the next extension on, as each node that still has the lock then.
//   - A lock that went within one memory of a node isn't set again: somebody has deleted it.
//
// If the node doesn't count yet, or another try has the lock there, the node is asked again, until the extension's validity
// is over. By then there is another extension, or the lock is lost. So it is after an acquire, where another try had the lock: see complete.
type extension struct {
	claim *claim

	until time.Time // the validity that it gives ends before that

	mu        sync.Mutex
	confirmed bool
	gone      []lostShare // as said before it was confirmed
}

// A lostShare is what a node said that has the lock no more.
type lostShare struct {
	node   int
	memory string // the marker of its memory
}

// answered notes a node's answer, whether it comes in time or late.
func (e *extension) answered(i int, status int64, memory string) {
	switch status {
	case statusDone:
		e.claim.stillHas(i, memory)
	case statusGone:
		e.mu.Lock()
		now := e.confirmed
		if !now {
			e.gone = append(e.gone, lostShare{i, memory})
		}
		e.mu.Unlock()
		if now {
			e.claim.setAgain(i, memory, e.until)
		}
	}
}

// confirm is called when a majority has confirmed the extension, within the validity.
func (e *extension) confirm() {
	e.mu.Lock()
	gone := e.gone
	e.confirmed, e.gone = true, nil
	e.mu.Unlock()
	for _, s := range gone {
		e.claim.setAgain(s.node, s.memory, e.until)
	}
}

// stillHas notes that a node has the lock. The reply that gave it may have been lost.
func (c *claim) stillHas(i int, memory string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares[i].memory = memory
}

// setAgain asks a node that said that the lock is gone to set it again, unless its memory had the lock before. memory is the
// marker of the memory that said so. The node is asked until that moment.
func (c *claim) setAgain(i int, memory string, until time.Time) {
	c.mu.Lock()
	s := &c.shares[i]
	had := memory == "" || s.memory == memory
	if !had {
		s.wanted = until
	}
	ask := !had && !s.waits
	c.mu.Unlock()
	switch {
	case ask:
		c.askAgain(i)
	case had && memory != "":
		c.locker.nodes[i].doubt() // or it was flushed, and has another memory by now
	}
}

// complete is called when the lock is granted, until that moment. Where another try had it, which fails now, it is set after a pause. Until then
// it may have no more than a majority, and would be lost with one node.
func (c *claim) complete(until time.Time) {
	for i := range c.shares {
		c.mu.Lock()
		s := &c.shares[i]
		if s.state != shareHeld {
			s.wanted = until
		}
		ask := s.refused
		c.mu.Unlock()
		if ask {
			c.later(i)
		}
	}
}

// askAgain makes one request of setAgain, or says when the next one is made.
func (c *claim) askAgain(i int) {
	r := c.locker
	k := &request{script: acquireScript, grant: true, until: time.Now().Add(most * r.nodeTimeout), args: c.acquireArgs(0, 1)}
	k.done = func(out outcome) {
		if v := c.heard(i, 0, true, out); !v.held && !isUnknown(out.err) {
			c.later(i)
		}
	}
	c.mu.Lock()
	s := &c.shares[i]
	s.waits = false
	ask := !c.over && time.Now().Before(s.wanted) && s.state != shareAsked &&
		(s.state != shareUnsure || time.Since(s.asked) > lookTwice(r)) // what was asked before arrives no more
	if ask {
		*s = share{state: shareAsked, acquire: k, asked: time.Now(), wanted: s.wanted}
	}
	c.mu.Unlock()
	if ask {
		r.nodes[i].wire.send(k)
	}
}

// later asks a node again after a pause, when it may count.
func (c *claim) later(i int) {
	n := c.locker.nodes[i]
	n.mu.Lock()
	pause := max(time.Until(n.memory.rests), againPause+rand.N(againPause))
	n.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.shares[i]
	if c.over || c.locker.ctx.Err() != nil || s.waits || time.Now().Add(pause).After(s.wanted) {
		return
	}
	s.waits = true
	time.AfterFunc(pause, func() { c.askAgain(i) })
}
