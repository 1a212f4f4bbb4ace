package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// Locker is a [lock.Locker] on N independent Redis masters. None of them may replicate to another. It follows
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ and adds a fencing token.
// A lock is held when a quorum holds it: more than half of the nodes. So it works while fewer than
// half of them are down.
//
// All nodes vote for the token. A node votes only for a token that is larger than all it voted for
// before, and a quorum must vote for the same. Two quorums share a node. So tokens are unique, and each
// is larger than those of all earlier locks of the key. This needs no clock, TTL or process
// to keep time. It needs nodes that keep their memory.
//
// A node that restarted or was flushed doesn't count for MaxTTL, whatever its persistence. All clients see that by
// two markers on each node, signalbox:redlock:run and signalbox:redlock:fresh. When the node counts
// again, all its earlier votes are taken to be less than its clock. That is true if the
// nodes' clocks agree to within MaxTTL.
//
// NodeTimeout bounds the wait for a node's answer. If the node does what it was asked after that, this is
// undone in the background, as soon as the node can be reached. After a long pause the next lock may take two
// round trips instead of one. The very first takes more, since it makes connections: see [Locker.Check].
//
// A Locker is safe for concurrent use, and must be closed. Use one for all keys: goroutines that
// wait for the same key through the same Locker take turns.
type Locker struct {
	nodes       []*node
	need        int // the size of a quorum
	ttl         time.Duration
	nodeTimeout time.Duration
	tries       int
	minHold     time.Duration
	lines       lineup
	metrics     *telemetry.LockMetrics

	ttlArg, ownerArg any // arguments of the scripts; the TTL in ms

	// met says that all nodes were waited for once. So all clocks are known, except those of nodes that didn't answer.
	met atomic.Bool
	// slept is how long the machine is known to have been suspended since the Locker was made, ns.
	slept atomic.Int64
	made  lease.Instant

	ctx    context.Context // of all that runs in the background
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	servers map[string]*node // by run_id
}

var _ lock.Locker = (*Locker)(nil)

var runMarkerArg any = runMarker

var errClosed = errors.New("the Redlock is closed")

// New returns a Locker on these nodes: at least 3. An odd number is best. It makes connections of its own
// from copies of the options, with its own timeouts and without retries. It makes them when
// they are needed: New itself does no I/O.
//
// The set of nodes is part of the lock: all clients must name the same. A node that is replaced counts
// as one that lost its memory. The error wraps [lock.ErrInvalid] and names every mistake.
//
// The first acquire waits until each node has answered, or for the NodeTimeout. So it knows the clocks of
// all. A node is unfit, and doesn't count, if
//
//   - it is a replica or a node of a Redis Cluster,
//   - it evicts keys,
//   - it is the same server as another node, or
//   - its clock is about an hour or more ahead of the others'.
//
// The error of an unfit node wraps [lock.ErrInvalid]. An acquire fails by it only if too few nodes
// are left. [Locker.Check] names every unfit node.
func New(nodes []*redis.Options, c Config) (*Locker, error) {
	c = c.withDefaults()
	if err := errors.Join(checkNodes(nodes), c.check()); err != nil {
		return nil, fmt.Errorf("redlock: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Locker{
		need:        len(nodes)/2 + 1,
		ttl:         c.TTL,
		ttlArg:      c.TTL.Milliseconds(),
		nodeTimeout: c.NodeTimeout,
		tries:       c.Tries,
		minHold:     c.MinHold,
		ownerArg:    c.Owner,
		metrics:     telemetry.NewLockMetrics(c.MeterProvider),
		made:        lease.Now(),
		ctx:         ctx,
		cancel:      cancel,
		servers:     map[string]*node{},
	}
	delay := c.MaxTTL
	if c.NoRestartDelay {
		delay = 0
	}
	for i, o := range nodes {
		r.nodes = append(r.nodes, newNode(r, i, o, delay))
	}
	return r, nil
}

// Acquire tries until a quorum of the nodes holds the lock. The pauses between tries are random, and
// double to about 150 ms. Goroutines of this Locker wait in line, and a release by one of them
// wakes the first.
//
// If ctx ends first, or the tries are used up, there are two cases. If somebody else was last seen to hold the
// lock, the error wraps [lock.ErrHeld]. If too few nodes answered as they should, it is a [*lock.QuorumError].
func (r *Locker) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	return r.acquire(ctx, key, r.wait)
}

// TryAcquire tries once. The error wraps [lock.ErrHeld] if somebody else holds the lock, or tried to get
// it at the same time.
func (r *Locker) TryAcquire(ctx context.Context, key string) (lock.Lock, error) {
	return r.acquire(ctx, key, r.try)
}

func (r *Locker) acquire(ctx context.Context, key string, grant func(context.Context, *heldLock) error) (lock.Lock, error) {
	record, err := spec.FenceKey(key)
	if err != nil {
		return nil, err
	}
	spanCtx, asking := telemetry.StartAcquire(ctx, r.metrics)
	l := &heldLock{
		Lock:   held.Lock{TTL: r.ttl, MinHold: r.minHold, Validity: lease.NewValidity(context.WithoutCancel(ctx))},
		locker: r, key: key, record: record,
	}
	err = grant(spanCtx, l)
	if l.Asked(asking, r.metrics, err); err != nil {
		return nil, l.failed("acquire", err)
	}
	return l, nil
}

// Check asks all nodes now. It waits for each for about a second, or until ctx ends. It returns nil if
// all of them count. Else it returns a [*lock.QuorumError] that names the nodes that don't answer,
// are unfit, or don't count yet. The next acquire finds the same. Check also makes the connections, and begins the
// delay of a node that lost its memory. So call it at the start of a program and in its health checks.
func (r *Locker) Check(ctx context.Context) error {
	errs := make([]error, len(r.nodes))
	var all sync.WaitGroup
	for i, n := range r.nodes {
		all.Go(func() { errs[i] = n.check(ctx) })
	}
	all.Wait()
	q := &lock.QuorumError{Op: "check", Need: len(r.nodes)}
	for i, err := range errs {
		if err == nil {
			err = r.nodes[i].clockFault() // by now the others' clocks are known
		}
		if err == nil {
			q.Held++
		} else {
			q.Nodes = append(q.Nodes, lock.NodeError{Node: r.nodes[i].addr, Err: err})
		}
	}
	if len(q.Nodes) > 0 {
		return q
	}
	return nil
}

// Close ends what runs in the background and closes the connections. It doesn't release locks that are held:
// they expire. What failed tries left on the nodes is released, as far as the NodeTimeout allows.
// An acquire that waits fails, and so does a later one.
func (r *Locker) Close() error {
	r.mu.Lock()
	closed := r.closed
	r.closed = true
	r.mu.Unlock()
	if closed {
		return nil
	}
	settle, done := context.WithTimeout(r.ctx, r.nodeTimeout)
	defer done()
	for _, n := range r.nodes {
		n.wire.settle(settle)
	}
	r.cancel()
	var err error
	for _, n := range r.nodes {
		n.wire.close()
		err = errors.Join(err, n.rdb.Close())
	}
	for _, n := range r.nodes {
		n.wire.work.Wait()
	}
	r.work.Wait()
	return err
}

// goes runs f in the background. It returns false if the Locker is closed.
func (r *Locker) goes(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Go(f)
	}
	return !r.closed
}

// enlist notes which server a node is. It returns another node that is the same server, if there is one.
func (r *Locker) enlist(run string, n *node) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.servers[run]; other != nil && other != n {
		return other
	}
	for old, other := range r.servers {
		if other == n {
			delete(r.servers, old)
		}
	}
	r.servers[run] = n
	return nil
}

// clocks returns what the clocks of the nodes show, µs; 0: unknown.
func (r *Locker) clocks() []int64 {
	clocks := make([]int64, len(r.nodes))
	for i, n := range r.nodes {
		clocks[i] = n.clockNow()
	}
	return clocks
}

// doubt makes the nodes be checked again whose clocks are later than now, the latest clock that is believed.
func (r *Locker) doubt(clocks []int64, now int64) {
	for i, n := range r.nodes {
		if clocks[i] > now {
			n.doubt()
		}
	}
}

// wake forgets the nodes' clocks if the machine was suspended since the last attempt. slept is how long it was
// suspended since the Locker was made. The clocks are estimated by Go's monotonic clock, which
// stood still then.
func (r *Locker) wake(slept time.Duration) {
	if slept-time.Duration(r.slept.Swap(int64(slept))) < time.Second {
		return
	}
	for _, n := range r.nodes {
		n.forgetClock()
	}
}
