package etcdlock

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signalbox-go/signalbox/lock"
)

// Inspect returns who holds the lock of a key. It changes nothing.
//
// Token is that of the holder, and 0 if the lock is free. For is in whole seconds: the lease's time left, which may be
// longer than the holder's validity. Since is always zero, since etcd keeps no times.
//
// A key without a lease, which somebody else has written below the lock's name, holds the lock for ever: For is negative
// then. It must be deleted by hand.
func (r *Locker) Inspect(ctx context.Context, key string) (lock.Info, error) {
	queue, err := queueOf(r.prefix, key)
	if err != nil {
		return lock.Info{}, err
	}
	info := lock.Info{Key: key}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	first, err := r.client.Get(callCtx, queue, append(clientv3.WithFirstCreate(), clientv3.WithPrefix())...)
	if err == nil && len(first.Kvs) > 0 {
		kv := first.Kvs[0]
		info.Held, info.Owner, info.Token = true, string(kv.Value[:min(len(kv.Value), maxOwner)]), kv.CreateRevision
		var left *clientv3.LeaseTimeToLiveResponse
		if kv.Lease == 0 {
			info.For = -1
		} else if left, err = r.client.TimeToLive(callCtx, clientv3.LeaseID(kv.Lease)); err == nil {
			info.For = time.Duration(left.TTL) * time.Second
			if left.TTL <= 0 { // it has ended since, and its key with it
				info = lock.Info{Key: key}
			}
		}
	}
	if err != nil {
		return lock.Info{}, fmt.Errorf("lock: inspect %.200q: %w", key, r.answer(ctx, callCtx, err))
	}
	return info, nil
}
