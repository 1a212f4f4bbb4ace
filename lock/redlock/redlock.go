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

// Locker is a [lock.Locker] on N independent Redis masters, by the algorithm of
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ with a fencing token.
// A lock is held when more than half of the nodes hold it, so that it works
// while fewer than half of them are down, and none of them replicates to another.
//
// All nodes vote for the token, each only for one that is larger than all it voted for before,
// and a quorum must: two quorums share a node, so tokens are unique, and larger than
// those of all locks that were granted before. This needs no clock, TTL or process to keep
// time; it needs nodes that keep their memory. One that restarted, or was flushed, doesn't
// count for MaxTTL, whatever its persistence: by two markers on each node, signalbox:redlock:run
// and signalbox:redlock:fresh, all clients know. What it voted for before is then taken to
// be less than its clock. That is so if the nodes' clocks agree to within MaxTTL.
//
// A node's answer is waited for as long as NodeTimeout says. What it does later is undone as
// soon as it can be reached, in the background. After a long pause the next
// lock may take two round trips instead of one, and the very first more, for connections:
// see [Locker.Check].
//
// It is safe for concurrent use, and must be closed. Use one for all keys: goroutines that
// wait for the same key through the same Redlock take turns.
type Locker struct {
	nodes       []*node
	need        int // a quorum
	ttl         time.Duration
	nodeTimeout time.Duration
	tries       int
	minHold     time.Duration
	lines       lineup
	metrics     *telemetry.LockMetrics

	ttlArg, ownerArg any // for the scripts; the TTL in ms

	// met: all nodes were waited for once, so that the clocks of all are known.
	met atomic.Bool
	// slept is how long the machine is known to have been suspended since the Redlock was made, ns.
	slept atomic.Int64
	made  lease.Instant

	ctx    context.Context // of what runs in the background
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	servers map[string]*node // by run_id
}

var _ lock.Locker = (*Locker)(nil)

var runMarkerArg any = runMarker

var errClosed = errors.New("the Redlock is closed")

// New returns a Locker on these nodes: at least 3, and an odd number is best. It makes
// connections of its own from copies of the options, when they are needed, with its own
// timeouts and without retries; it does no I/O yet.
//
// The set of nodes is part of the lock: all clients must name the same. To replace one counts
// as its loss of memory. The error wraps [lock.ErrInvalid] and names every mistake.
//
// On first use it waits until each node has answered, or for the NodeTimeout, so that it
// knows the clocks of all. A node doesn't count, with an [lock.ErrInvalid], that is a replica or a node of a
// Redis Cluster, evicts keys, is the same server as another, or whose clock is about an hour
// or more ahead of the others'. An acquire fails by it only if too few are left; [Locker.Check]
// names it in any case.
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

// Acquire tries until a quorum of the nodes holds the lock, with a random pause between the
// tries, which doubles to about 150 ms. Goroutines of this Redlock wait in line, and a
// release by one wakes the next.
//
// If ctx ends first, or the tries are used up, the error wraps [lock.ErrHeld] if the lock was
// last seen held by another, and is a [*lock.QuorumError] if too few nodes answered as they should.
func (r *Locker) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	return r.acquire(ctx, key, r.wait)
}

// TryAcquire tries once. The error wraps [lock.ErrHeld] if another holds the lock, or tried to get
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

// Check asks all nodes now, and waits for each for about a second, or until ctx ends. It
// returns nil if all of them count, and else a [*lock.QuorumError] that names those that
// don't answer, that are unfit, or that don't count yet. So it says what the next acquire will, and
// the delay of a node that lost its memory begins with it. It is for the start of a program,
// as it also makes the connections, and for its health checks.
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

// Close ends what runs in the background and closes the connections. Locks that are held are
// not released: they expire. What can be released of failed tries within the NodeTimeout
// is. An acquire after it, or that waits, fails.
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

// goes runs f in the background, and returns false if the Redlock is closed.
func (r *Locker) goes(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Go(f)
	}
	return !r.closed
}

// enlist notes which server a node is. It returns the other node that is the same, if there is one.
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

// clocks are what the clocks of the nodes show, µs; 0: unknown.
func (r *Locker) clocks() []int64 {
	clocks := make([]int64, len(r.nodes))
	for i, n := range r.nodes {
		clocks[i] = n.clockNow()
	}
	return clocks
}

// doubt has the nodes looked at whose clocks are later than now, the latest that is believed.
func (r *Locker) doubt(clocks []int64, now int64) {
	for i, n := range r.nodes {
		if clocks[i] > now {
			n.doubt()
		}
	}
}

// wake forgets the nodes' clocks if the machine was suspended since the last attempt: for slept since the Redlock was made. Go's monotonic
// clock, by which they are reckoned, stood still then.
func (r *Locker) wake(slept time.Duration) {
	if slept-time.Duration(r.slept.Swap(int64(slept))) < time.Second {
		return
	}
	for _, n := range r.nodes {
		n.forgetClock()
	}
}
