package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// redlockLock is the lock that a [Redlock] grants.
type redlockLock struct {
	redlock     *Redlock
	key, record string
	claim       *claim
	token       int64
	since       time.Time // when it was granted
	validity    *Validity
	holding     *telemetry.Holding

	mu       sync.Mutex // one release at a time
	released bool       // Release was called: the context has ended
	lost     error      // how the lease had ended before that
	done     bool       // enough nodes have answered the release
}

func (l *redlockLock) Key() string              { return l.key }
func (l *redlockLock) Token() int64             { return l.token }
func (l *redlockLock) Until() time.Time         { return l.validity.Until() }
func (l *redlockLock) Context() context.Context { return l.validity.Context() }

func (l *redlockLock) granted(c *claim, token int64) {
	l.claim, l.token, l.since = c, token, time.Now()
}

func (l *redlockLock) Extend(ctx context.Context) error {
	if l.validity.Err() != nil {
		return l.failed("extend", ErrLost)
	}
	if ctx.Err() != nil {
		return l.failed("extend", ended(ctx))
	}
	start := Now()
	err := l.claim.extend(ctx)
	if errors.Is(err, ErrLost) {
		l.validity.End(err)
	} else if err == nil && !l.validity.Extend(start, l.redlock.ttl) {
		err = ErrExpired
	}
	if err == nil {
		l.holding.Renewed()
	}
	return l.failed("extend", err)
}

func (l *redlockLock) Release(ctx context.Context) error {
	return l.failed("release", l.release(ctx))
}

func (l *redlockLock) release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.released {
		l.released = true
		if l.validity.Err() != nil {
			l.lost = ErrExpired // unless the nodes know more
		} else {
			l.holding.Released()
		}
		l.validity.End(context.Canceled) // nothing starts under it from here on
	}
	if !l.done {
		keep := l.since.Add(l.redlock.minHold)
		if !keep.After(time.Now()) {
			keep = time.Time{}
		}
		err := l.claim.release(context.WithoutCancel(ctx), keep)
		l.holding.Lost(howLost(err))
		switch {
		case err == nil:
			l.done = true
		case errors.Is(err, ErrLost):
			l.done, l.lost = true, err
		case l.lost == nil:
			return err
		}
	}
	return l.lost
}

func (l *redlockLock) failed(what string, err error) error {
	if _, ok := err.(*QuorumError); ok || err == nil {
		return err
	}
	return fmt.Errorf("lock: %s %q: %w", what, l.key, err)
}

// extend asks all nodes that may have the claim to keep it.
func (c *claim) extend(ctx context.Context) error {
	r := c.redlock
	rulings := make(chan ruling, len(r.nodes))
	until := time.Now().Add(r.nodeTimeout)
	for i, n := range r.nodes {
		n.wire.send(&request{
			script: redlockExtend, until: until,
			args: []any{nil, nil, 2, c.lockArg, c.recordArg, c.valueArg, r.ttlArg},
			done: func(out outcome) {
				status, err := parseStatus(out)
				rulings <- ruling{i, status, err}
			},
		})
	}
	t := newTally(r)
	err := t.count(ctx, rulings, len(r.nodes), func() bool { return t.yes >= r.need || t.notOurs() >= r.need })
	switch {
	case t.yes >= r.need:
		return nil
	case t.notOurs() >= r.need: // and another may have those
		return t.lost()
	case err != nil:
		return err
	}
	return t.failed("extend", c.key)
}

// release gives the claim up on all nodes. It returns an ErrLost if no quorum can have
// had it any more, and a QuorumError if too few answered; then the rest is done in the background.
func (c *claim) release(ctx context.Context, keep time.Time) error {
	r := c.redlock
	t := newTally(r)
	t.before(c)
	rulings := make(chan ruling, len(r.nodes))
	asked, _, never := c.giveUp(keep, rulings)
	if keep.IsZero() {
		r.lines.wake(c.key) // its try gets to the nodes after this
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
