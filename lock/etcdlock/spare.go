package etcdlock

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// maxSpares bounds the leases that a locker keeps for its next locks.
const maxSpares = 100

// A grant is a lease in etcd, and what is known of its time.
type grant struct {
	id   clientv3.LeaseID
	ttl  time.Duration // that asked for, or the lease's if that is shorter
	name string        // random; the end of the names of its places
	last string        // the queue of its last place
	// proven is before the last call that is known to have renewed the lease.
	proven lease.Instant
}

// A spare is a lease whose lock was released, and which has no key. The next lock takes it: that saves etcd two writes to
// disk. Nobody renews a spare. If no lock takes it, it ends by itself.

// spare keeps a lease for the next lock. Only a lease whose last lock is known to be deleted may be kept: no key can
// come late.
func (r *Locker) spare(g grant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.spares) < maxSpares {
		r.spares = append(r.spares, g)
	}
}

// takeSpare returns the lease that was spared last by a lock of this queue, since etcd knows its name there, or else by
// any. It returns none of which too little time may be left.
func (r *Locker) takeSpare(queue string) (g grant, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, g := range slices.Backward(r.spares) {
		if g.last == queue && time.Since(g.proven.Time()) < g.ttl/2 {
			r.spares = slices.Delete(r.spares, i, i+1)
			return g, true
		}
	}
	if n := len(r.spares); n > 0 {
		g, r.spares = r.spares[n-1], r.spares[:n-1]
		ok = time.Since(g.proven.Time()) < g.ttl/2
		if !ok {
			r.spares = nil // the others are about as old
		}
	}
	return g, ok
}

// lend returns a lease for a place: a spare or a new one. term is that in which an old spare was renewed, or 0. The
// renewal counts if the place is made in the same term; see prove.
func (r *Locker) lend(ctx context.Context, queue string, fresh bool) (g grant, renewed lease.Instant, term uint64, err error) {
	start := lease.Now()
	if !fresh {
		if g, ok := r.takeSpare(queue); ok {
			if time.Since(g.proven.Time()) < g.ttl/8 {
				return g, g.proven, 0, nil
			}
			if kept, err := r.client.KeepAliveOnce(ctx, g.id); err == nil {
				return g, start, kept.RaftTerm, nil
			}
		}
	}
	granted, err := r.client.Grant(ctx, seconds(r.ttl))
	if err != nil {
		return grant{}, start, 0, err // a lease that was granted all the same has no key and ends by itself
	}
	return grant{granted.ID, min(r.ttl, time.Duration(granted.TTL)*time.Second), spec.NewValue(), queue, start}, start, 0, nil
}
