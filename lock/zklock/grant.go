package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

// errRaced means that the key has changed since it was read.
var errRaced = errors.New("zklock: the key has changed")

// An old lease is one that is taken over, with the version that nobody has extended.
type old struct {
	name    string
	version int32
}

// grant takes the lock, if the key is still as in the view. place is the waiter's node in the queue, or "". If the key
// has changed the error is errRaced.
func (l *Locker) grant(ctx context.Context, k *zkLock, v view, place string, over *old) error {
	if err := l.add(k); err != nil {
		return err
	}
	ops := grantOps(k, v, place, over)
	for {
		start := lease.Now()
		bound, cancel := context.WithTimeoutCause(ctx, l.session.patience, errAway)
		token, err := once(bound, l.session, func(c *zk.Conn) (int64, error) {
			done, err := c.Multi(ops...)
			if err != nil {
				return 0, err
			}
			return done[0].Stat.Mzxid, nil // that of the whole transaction, so the lease's czxid
		}, func(_ int64, err error) {
			if err == nil || cut(err) {
				l.sweeper.add(k)
			}
		})
		cancel()
		switch {
		case err == nil:
			return l.granted(ctx, k, start, token)
		case errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrNodeExists):
			l.forget(k)
			return errRaced
		case errors.Is(err, errAway) && ctx.Err() == nil:
			l.forget(k)
			return l.session.silence()
		case !cut(err):
			l.forget(k)
			return l.advise(err, "write", k.path)
		}
		// The reply was lost: the lease may be there. Before it is granted it must be seen, by a server that knows.
		now, err := l.lookNow(ctx, k.path)
		switch {
		case err != nil:
			l.sweeper.add(k)
			return err
		case now.holder == k.id && now.marked:
			return l.granted(ctx, k, start, now.last)
		case now.holder == k.id: // the session has ended since
			l.sweeper.add(k)
			return fmt.Errorf("%w: ZooKeeper ended the session during the grant", lock.ErrLost)
		case now.version != v.version || now.lease != v.lease:
			l.forget(k)
			return errRaced
		}
	}
}

// grantOps is the transaction of a grant. Its first operation fails if another grant came first.
func grantOps(k *zkLock, v view, place string, over *old) []any {
	l := k.locker
	ops := []any{&zk.SetDataRequest{Path: k.path, Version: v.version}}
	if v.version == -2 {
		// The next version would be -1. Asked for, it means any, so it must never be current: two steps at once skip it.
		ops = append(ops, &zk.SetDataRequest{Path: k.path, Version: -1})
	}
	if over != nil {
		ops = append(ops, &zk.DeleteRequest{Path: k.path + "/" + over.name, Version: over.version})
	}
	if place != "" {
		ops = append(ops, &zk.DeleteRequest{Path: k.path + "/" + place, Version: -1})
	}
	return append(ops,
		&zk.CreateRequest{Path: k.leasePath(), Data: l.owner, Acl: l.acl, Flags: zk.FlagPersistent},
		&zk.CreateRequest{Path: k.markPath(), Acl: l.acl, Flags: zk.FlagEphemeral})
}

// granted fills in a grant. Its TTL began after start.
func (l *Locker) granted(ctx context.Context, k *zkLock, start lease.Instant, token int64) error {
	k.Grant(token)
	if !k.Validity.Extend(start, l.ttl) {
		l.sweeper.add(k)
		return fmt.Errorf("%w: it was granted with no validity left: ZooKeeper took %v of a TTL of %v", lock.ErrLost, time.Since(start.Time()), l.ttl)
	}
	k.unwatch = context.AfterFunc(k.Validity.Context(), k.ended)
	return nil
}

// orphanAge is how old a lease must be, besides twice its TTL, before TryAcquire takes it over.
const orphanAge = 10 * time.Second

// takeOrphan takes over a lease whose holder's session has ended, if it is old. Its age is the time from its last
// extension to the creation of a node, both by the clocks of ZooKeeper's leaders.
func (l *Locker) takeOrphan(ctx context.Context, k *zkLock, v view) error {
	stat, err := ask(ctx, l.session, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, err := c.Children(k.path + "/" + v.lease)
		return stat, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return lock.ErrHeld // it changes hands just now
	} else if err != nil {
		return l.advise(err, "read", k.path)
	}
	place, err := l.join(ctx, k)
	if err != nil {
		return err
	}
	now, err := ask(ctx, l.session, func(c *zk.Conn) (*zk.Stat, error) {
		_, stat, err := c.Children(k.path + "/" + place)
		return stat, err
	})
	if err == nil && time.Duration(now.Ctime-stat.Mtime)*time.Millisecond < 2*v.ttl+l.orphanAge {
		err = lock.ErrHeld
	}
	if err == nil {
		if err = l.grant(ctx, k, v, place, &old{v.lease, stat.Version}); errors.Is(err, errRaced) {
			err = lock.ErrHeld
		}
	}
	if err != nil {
		l.sweeper.add(k)
	}
	return l.advise(err, "read", k.path)
}
