package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
)

// heldLock is the lock that a [Locker] grants.
type heldLock struct {
	held.Lock
	locker      *Locker
	key, record string
	claim       *claim

	asked bool // a release was sent that too few nodes confirmed, and a node of the others gave no answer; GiveUp is called by one goroutine at a time
}

func (l *heldLock) Key() string { return l.key }

// Issuer and Holder implement [lock.Origin]. The holder is the value that the key has on the nodes.
func (l *heldLock) Issuer() string { return "redlock" }
func (l *heldLock) Holder() string { return l.claim.valueArg.(string) }

func (l *heldLock) Extend(ctx context.Context) error { return l.failed("extend", l.ExtendBy(ctx, l)) }

// Renew is part of [held.Service].
func (l *heldLock) Renew(ctx context.Context) error {
	e := &extension{claim: l.claim, until: time.Now().Add(l.TTL)}
	err := e.run(ctx)
	if err == nil && l.Validity.Err() == nil {
		e.confirm()
	}
	return err
}

func (l *heldLock) Release(ctx context.Context) error {
	return l.failed("release", l.ReleaseBy(ctx, l))
}

// ReleaseNow is Release without [Config.MinHold]: the lock is free at once. MinHold keeps others from
// repeating the holder's work. A holder that didn't do the work calls this.
func (l *heldLock) ReleaseNow(ctx context.Context) error {
	l.DropMinHold()
	return l.Release(ctx)
}

// GiveUp is part of [held.Service].
func (l *heldLock) GiveUp(ctx context.Context, keep time.Time) error {
	if !keep.After(time.Now()) {
		keep = time.Time{}
	}
	err := l.claim.release(context.WithoutCancel(ctx), keep)
	if l.asked && errors.Is(err, lock.ErrLost) {
		return l.Earlier(err)
	}
	l.asked = l.asked || unanswered(err)
	return err
}

// unanswered reports whether a node gave no answer to a release, so that it may have run it.
func unanswered(err error) bool {
	var q *lock.QuorumError
	if !errors.As(err, &q) {
		return false
	}
	return slices.ContainsFunc(q.Nodes, func(n lock.NodeError) bool { return n.Err != nil && !lua.IsAnswer(n.Err) })
}

func (l *heldLock) failed(what string, err error) error {
	if _, ok := err.(*lock.QuorumError); ok || err == nil {
		return err // it says all that is known
	}
	return fmt.Errorf("lock: %s %.200q: %w", what, l.key, err)
}

// run asks all nodes that may have the claim to extend it.
func (e *extension) run(ctx context.Context) error {
	c := e.claim
	r := c.locker
	rulings := make(chan ruling, len(r.nodes))
	until := time.Now().Add(most * r.nodeTimeout)
	for i, n := range r.nodes {
		n.wire.send(&request{
			script: extendScript, until: until,
			args: []any{nil, nil, 2, c.lockArg, c.recordArg, c.valueArg, r.ttlArg},
			done: func(out outcome) {
				status, err := parseStatus(out)
				rulings <- ruling{i, status, err}
				if err == nil {
					e.answered(i, status, out.memory)
				}
			},
		})
	}
	t := newTally(r)
	err := t.count(ctx, rulings, len(r.nodes), func() bool { return t.yes >= r.need || t.notOurs() >= r.need })
	switch {
	case t.yes >= r.need:
		return nil
	case t.notOurs() >= r.need: // and somebody else may have the lock there
		return t.lost()
	case err != nil:
		return err
	}
	return t.failed("extend", c.key)
}

// release gives the claim up on all nodes. It returns an ErrLost if no quorum can have had it
// any more. It returns a QuorumError if too few nodes answered: the rest is done in the background.
func (c *claim) release(ctx context.Context, keep time.Time) error {
	r := c.locker
	t := newTally(r)
	t.before(c)
	rulings := make(chan ruling, len(r.nodes))
	asked, _, never := c.giveUp(keep, rulings)
	if keep.IsZero() {
		r.lines.wake(c.key) // its try reaches the nodes after this release
	}
	_ = t.count(ctx, rulings, asked, func() bool { return t.yes >= r.need || t.taken >= r.need })
	switch {
	case t.yes >= r.need:
		return nil
	case len(r.nodes)-never-t.notOurs() < r.need:
		return t.lost()
	case never+t.yes+t.notOurs() >= r.need: // so no quorum has it
		return nil
	}
	return t.failed("release", c.key)
}
