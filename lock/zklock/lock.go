package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
)

// releaseTimeout bounds a release, whatever its ctx.
const releaseTimeout = 5 * time.Second

// zkLock is the lock that a [Locker] grants.
type zkLock struct {
	held.Lock
	locker  *Locker
	parent  context.Context // of the lock's context
	key     string
	path    string      // of the key's node
	id      string      // in the names of this acquire's nodes
	unwatch func() bool // stops ended from being called

	mu      sync.Mutex // allows one drop at a time
	unsure  bool       // the reply to a drop was lost
	dropped bool       // the lease is known to be gone
}

func (k *zkLock) leasePath() string { return k.path + "/" + leaseName(k.id, k.TTL) }
func (k *zkLock) markPath() string  { return k.path + "/" + markPrefix + k.id }

func (k *zkLock) Key() string { return k.key }

// Issuer is part of lock.Origin: the tokens of a key come from ZooKeeper's counter of transactions.
func (k *zkLock) Issuer() string { return "zookeeper" }

// Holder is part of lock.Origin. It is different for each grant.
func (k *zkLock) Holder() string { return k.id }

func (k *zkLock) Extend(ctx context.Context) error { return k.failed("extend", k.ExtendBy(ctx, k)) }

func (k *zkLock) Release(ctx context.Context) error { return k.failed("release", k.ReleaseBy(ctx, k)) }

// Renew is part of [held.Service].
func (k *zkLock) Renew(ctx context.Context) error {
	_, err := ask(ctx, k.locker.session, func(c *zk.Conn) (struct{}, error) {
		_, err := c.Multi(
			&zk.CheckVersionRequest{Path: k.markPath(), Version: -1}, // it exists: the session lives
			&zk.SetDataRequest{Path: k.leasePath(), Data: k.locker.owner, Version: -1})
		return struct{}{}, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return k.how(ctx)
	}
	return k.locker.advise(err, "write", k.path)
}

// how returns how the lock was lost: as lock.ErrTaken if somebody else has it now.
func (k *zkLock) how(ctx context.Context) error {
	v, err := k.locker.lookNow(ctx, k.path)
	switch {
	case err == nil && v.lease != "" && v.holder != k.id:
		return lock.ErrTaken
	case err == nil:
		return lock.ErrExpired
	}
	return err
}

// GiveUp is part of [held.Service].
func (k *zkLock) GiveUp(ctx context.Context, _ time.Time) error {
	k.unwatch()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), releaseTimeout, errAway)
	defer cancel()
	lapsed := errors.Is(context.Cause(k.Validity.Context()), lock.ErrLost)
	before := k.isDropped()
	gone, err := k.drop(ctx)
	switch {
	case err != nil:
		k.locker.sweeper.add(k)
		return err
	case gone == byOther, lapsed && (before || gone == byUnknown), gone == byUnknown && k.Earlier(lock.ErrLost) != nil:
		return k.how(ctx)
	}
	return nil
}

// ended gives up a lock whose validity has ended, so that the next waiter gets it at once.
func (k *zkLock) ended() {
	if !errors.Is(context.Cause(k.Validity.Context()), lock.ErrLost) {
		return // it is being released
	}
	k.locker.session.run(func() {
		ctx, cancel := context.WithTimeoutCause(k.locker.session.ctx, releaseTimeout, errAway)
		defer cancel()
		if _, err := k.drop(ctx); err != nil {
			k.locker.sweeper.add(k)
		}
	})
}

func (k *zkLock) isDropped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dropped
}

// How a lease went.
type going int

const (
	byUs      going = iota
	byUnknown       // by an earlier try whose reply was lost, or by somebody else
	byOther
)

// drop deletes the lease and the mark, unless that is done.
func (k *zkLock) drop(ctx context.Context) (going, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dropped {
		return byUs, nil
	}
	missing := byOther
	if k.unsure {
		missing = byUnknown
	}
	how, err := ask(ctx, k.locker.session, func(c *zk.Conn) (going, error) {
		gone, err := k.remove(c)
		if cut(err) {
			missing = byUnknown // for the next try
		}
		if gone {
			return missing, err
		}
		return byUs, err
	})
	if err != nil {
		k.unsure = true
		return how, k.locker.advise(err, "delete", k.path)
	}
	k.dropped = true
	k.locker.forget(k)
	return how, nil
}

// remove deletes the lease and the mark. It reports whether there was no lease.
func (k *zkLock) remove(c *zk.Conn) (gone bool, err error) {
	ops := dropOps(k.path, k.leasePath())
	done, err := c.Multi(append(ops, &zk.DeleteRequest{Path: k.markPath(), Version: -1})...)
	if errors.Is(err, zk.ErrNoNode) && len(done) > 0 && done[0].Error == nil { // the mark went with its session
		_, err = c.Multi(ops...)
	}
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	return false, err
}

// dropOps deletes a lease and its guard, if the lease is there.
func dropOps(path, leasePath string) []any {
	return []any{
		&zk.DeleteRequest{Path: leasePath, Version: -1},
		&zk.DeleteRequest{Path: path + "/" + guardName, Version: -1},
	}
}

func (k *zkLock) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock: %s %.200q: %w", what, k.key, err)
}

var _ interface {
	lock.Lock
	Issuer() string
	Holder() string
} = (*zkLock)(nil)
