package zklock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

// wait takes the lock when it is this waiter's turn.
func (l *Locker) wait(ctx context.Context, k *zkLock) error {
	v, err := l.look(ctx, k.path)
	if err != nil {
		return err
	}
	if v.lease == "" && len(v.queue) == 0 {
		if err := l.grant(ctx, k, v, "", nil); !errors.Is(err, errRaced) {
			return err
		}
	}
	w := turn{Locker: l, lock: k}
	if err = w.await(ctx); err != nil {
		l.sweeper.add(k) // its place
		if w.waited && ctx.Err() != nil && l.session.up() {
			return fmt.Errorf("%w: %w", lock.ErrHeld, err)
		}
	}
	return err
}

// A turn is one waiter's way through the queue.
type turn struct {
	*Locker
	lock   *zkLock
	joined bool      // it has a node in the queue
	waited bool      // for somebody ahead
	seen   old       // the lease in the way
	since  time.Time // when it was first seen
}

// await returns when the lock is granted.
func (w *turn) await(ctx context.Context) error {
	for {
		granted, err := w.step(ctx)
		switch {
		case granted:
			return nil
		case err != nil && !errors.Is(err, errRaced) && !errors.Is(err, zk.ErrNoNode):
			return w.advise(err, "read", w.lock.path)
		}
	}
}

// step looks at the queue and takes the lock, or waits until something has changed.
func (w *turn) step(ctx context.Context) (granted bool, err error) {
	if !w.joined {
		if _, err := w.join(ctx, w.lock); err != nil {
			return false, err
		}
		w.joined = true
	}
	v, err := w.look(ctx, w.lock.path)
	if err != nil {
		return false, err
	}
	own, previous, joined := v.ahead(w.lock.id)
	switch {
	case !joined: // the session has ended
		w.joined = false
		return false, nil
	case previous.name != "":
		_, watched, err := w.session.watch(ctx, w.lock.path+"/"+previous.name)
		if err != nil {
			return false, err
		}
		return false, w.until(ctx, watched, nil)
	case v.lease == "":
		err := w.grant(ctx, w.lock, v, own.name, nil)
		return err == nil, err
	}
	return w.first(ctx, v, own.name)
}

// first waits for the end of the lease: until it is deleted, or has had one version for its whole TTL.
func (w *turn) first(ctx context.Context, v view, place string) (granted bool, err error) {
	stat, watched, err := w.session.watch(ctx, w.lock.path+"/"+v.lease)
	if err != nil {
		return false, err
	}
	// The holder sent its last write before it could be seen here. So its lease is over a TTL after that at the latest.
	if now := (old{v.lease, stat.Version}); now != w.seen {
		w.seen, w.since = now, time.Now()
	}
	left := v.ttl - time.Since(w.since)
	if left <= 0 {
		err := w.grant(ctx, w.lock, v, place, &w.seen)
		return err == nil, err
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	return false, w.until(ctx, watched, timer.C)
}

// until waits for the end of a node.
func (w *turn) until(ctx context.Context, watched *watch, over <-chan time.Time) error {
	w.waited = true
	select {
	case <-watched.done:
	case <-over:
	case <-w.session.gone():
		return w.session.silence()
	case <-w.session.ctx.Done():
		return errClosed
	case <-ctx.Done():
		return lease.Ended(ctx)
	}
	return nil
}

// join puts a waiter at the end of the queue and returns the name of its node.
func (l *Locker) join(ctx context.Context, k *zkLock) (string, error) {
	prefix := k.path + "/" + queuePrefix + k.id + "-"
	for {
		bound, cancel := context.WithTimeoutCause(ctx, l.session.patience, errAway)
		path, err := once(bound, l.session, func(c *zk.Conn) (string, error) {
			return c.Create(prefix, nil, zk.FlagEphemeralSequential, l.acl)
		}, func(_ string, err error) {
			if err == nil || cut(err) {
				l.sweeper.add(k)
			}
		})
		cancel()
		switch {
		case err == nil:
			return strings.TrimPrefix(path, k.path+"/"), nil
		case errors.Is(err, zk.ErrNoNode):
			if err := l.create(ctx, k.path); err != nil {
				return "", err
			}
			continue
		case errors.Is(err, errAway) && ctx.Err() == nil:
			return "", l.session.silence()
		case !cut(err):
			return "", l.advise(err, "create a node in", k.path)
		}
		// The reply was lost: the node may be there. The ID in its name tells.
		v, err := l.lookNow(ctx, k.path)
		if err != nil {
			l.sweeper.add(k)
			return "", err
		}
		if own, _, joined := v.ahead(k.id); joined {
			return own.name, nil
		}
	}
}
