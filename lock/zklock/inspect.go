package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/lock"
)

// Inspect returns who holds the lock of a key. It changes nothing. Info.Token is 0 if the key's node was deleted since
// the last grant. Info.For compares this process's clock with that of ZooKeeper's leader.
func (l *Locker) Inspect(ctx context.Context, key string) (lock.Info, error) {
	info := lock.Info{Key: key}
	path, err := pathOf(l.root, key)
	if err != nil {
		return lock.Info{}, err
	}
	for range 3 { // the lock may change hands between two reads
		info, err = l.inspect(ctx, key, path)
		if !errors.Is(err, zk.ErrNoNode) {
			break
		}
	}
	if errors.Is(err, zk.ErrNoNode) { // of a lock that changes hands all the time
		return lock.Info{}, fmt.Errorf("lock: inspect %.200q: it changed hands three times; try again", key)
	} else if err != nil {
		return lock.Info{}, fmt.Errorf("lock: inspect %.200q: %w", key, l.advise(err, "read", path))
	}
	return info, nil
}

func (l *Locker) inspect(ctx context.Context, key, path string) (lock.Info, error) {
	info := lock.Info{Key: key}
	v, err := ask(ctx, l.session, func(c *zk.Conn) (view, error) {
		if err := catchUp(c, path); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return view{}, err
		}
		children, stat, err := c.Children(path)
		if errors.Is(err, zk.ErrNoNode) {
			return view{}, nil // never locked, or not for long
		} else if err != nil {
			return view{}, err
		}
		return parseView(children, stat)
	})
	info.Token = v.last
	if err != nil || v.lease == "" {
		return info, err
	}
	type node struct {
		data []byte
		stat *zk.Stat
	}
	n, err := ask(ctx, l.session, func(c *zk.Conn) (node, error) {
		data, stat, err := c.Get(path + "/" + v.lease)
		return node{data, stat}, err
	})
	if err != nil {
		return info, err
	}
	info.Held, info.Owner, info.Token = true, string(n.data), n.stat.Czxid
	info.Since = time.UnixMilli(n.stat.Ctime)
	info.For = min(max(time.Until(time.UnixMilli(n.stat.Mtime).Add(v.ttl)), 0), v.ttl)
	return info, nil
}
