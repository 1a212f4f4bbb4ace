package lock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A ruling is what a node said when it was asked to extend or release a lock.
type ruling struct {
	node   int
	status int64
	err    error
}

// A tally counts rulings.
type tally struct {
	redlock          *Redlock
	yes, gone, taken int
	said             []bool  // of each node: it answered
	errs             []error // and why it is no yes
}

var (
	errGoneThere  = errors.New("the lock is gone there")
	errTakenThere = errors.New("another holds the lock there")
	errNeverThere = errors.New("it never had the lock")
)

// noAnswer is why a node that said nothing doesn't count.
func noAnswer(d time.Duration) error { return fmt.Errorf("no answer within %v", d) }

func newTally(r *Redlock) *tally {
	return &tally{redlock: r, said: make([]bool, len(r.nodes)), errs: make([]error, len(r.nodes))}
}

// before counts what earlier releases of the claim have found.
func (t *tally) before(c *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range c.shares {
		switch {
		case s.state == shareNone:
			t.said[i], t.errs[i] = true, errNeverThere
		case s.state == shareReleased:
			t.add(ruling{node: i, status: statusDone})
		case s.state == shareLost && s.taken:
			t.add(ruling{node: i, status: statusTaken})
		case s.state == shareLost:
			t.add(ruling{node: i, status: statusGone})
		}
	}
}

func (t *tally) add(said ruling) {
	t.said[said.node] = true
	switch err := said.err; {
	case err != nil:
		t.errs[said.node] = err
	case said.status == statusDone:
		t.errs[said.node] = nil
		t.yes++
	case said.status == statusGone:
		t.errs[said.node] = errGoneThere
		t.gone++
	default:
		t.errs[said.node] = errTakenThere
		t.taken++
	}
}

// count counts until the outcome is clear, n nodes have answered or the timeout is over. It
// fails if ctx ends before.
func (t *tally) count(ctx context.Context, rulings <-chan ruling, n int, clear func() bool) error {
	timer := time.NewTimer(t.redlock.nodeTimeout)
	defer timer.Stop()
	for ; n > 0 && !clear(); n-- {
		select {
		case said := <-rulings:
			t.add(said)
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return ended(ctx)
		}
	}
	return nil
}

func (t *tally) notOurs() int { return t.gone + t.taken }

// lost is how a lock was lost that no quorum has.
func (t *tally) lost() error {
	if t.taken >= t.redlock.need {
		return ErrTaken
	}
	return ErrExpired
}

func (t *tally) failed(op, key string) error {
	q := &QuorumError{Op: op, Key: key, Need: t.redlock.need, Held: t.yes}
	for i, err := range t.errs {
		if !t.said[i] {
			err = noAnswer(t.redlock.nodeTimeout)
		}
		if err != nil {
			q.Nodes = append(q.Nodes, NodeError{t.redlock.nodes[i].addr, err})
		}
	}
	return q
}
