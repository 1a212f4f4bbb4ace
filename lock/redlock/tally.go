package redlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

// A ruling is a node's answer to a request to extend or release a lock.
type ruling struct {
	node   int
	status int64
	err    error
}

// A tally counts rulings.
type tally struct {
	locker           *Locker
	yes, gone, taken int
	said             []bool  // of each node: whether it answered
	errs             []error // of each node: why its answer is no yes
}

var (
	errGoneThere  = errors.New("the lock is gone there")
	errTakenThere = errors.New("another holds the lock there")
	errNeverThere = errors.New("it never had the lock")
)

// noAnswer returns the error of a node that didn't answer in time.
func noAnswer(d time.Duration) error { return fmt.Errorf("no answer within %v", d) }

func newTally(r *Locker) *tally {
	return &tally{locker: r, said: make([]bool, len(r.nodes)), errs: make([]error, len(r.nodes))}
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
// returns an error if ctx ends before.
func (t *tally) count(ctx context.Context, rulings <-chan ruling, n int, clear func() bool) error {
	patience := newPatience(t.locker.nodeTimeout)
	defer patience.stop()
	for n > 0 && !clear() {
		select {
		case said := <-rulings:
			t.add(said)
			n--
		case <-patience.timer.C:
			if !patience.over() {
				continue
			}
			for ; len(rulings) > 0; n-- { // these came in time
				t.add(<-rulings)
			}
			return nil
		case <-ctx.Done():
			return lease.Ended(ctx)
		}
	}
	return nil
}

func (t *tally) notOurs() int { return t.gone + t.taken }

// lost returns how a lock was lost that no quorum has any more.
func (t *tally) lost() error {
	if t.taken >= t.locker.need {
		return lock.ErrTaken
	}
	return lock.ErrExpired
}

func (t *tally) failed(op, key string) error {
	q := &lock.QuorumError{Op: op, Key: key, Need: t.locker.need, Held: t.yes}
	for i, err := range t.errs {
		if !t.said[i] {
			err = noAnswer(t.locker.nodeTimeout)
		}
		if err != nil {
			q.Nodes = append(q.Nodes, lock.NodeError{Node: t.locker.nodes[i].addr, Err: err})
		}
	}
	return q
}
