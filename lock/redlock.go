package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// Redlock is a [Locker] on N independent Redis masters, by the algorithm of
// https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/ with a fencing token.
// A lock is held when more than half of the nodes hold it, so that it works
// while fewer than half of them are down, and none of them replicates to another.
//
// All nodes vote for the token, each only for one that is larger than all it voted for before,
// and a quorum must: two quorums share a node, so tokens are unique, and larger than
// those of all locks that were granted before. This needs no clock, TTL or process to keep
// time; it needs nodes that keep their memory. One that restarted, or was flushed, doesn't
// count for MaxTTL: by two markers on each node, signalbox:redlock:run and
// signalbox:redlock:fresh, all clients know. With appendonly yes, appendfsync always and
// no-appendfsync-on-rewrite no a node counts at once after a restart, if CONFIG GET tells.
//
// A node's answer is waited for as long as NodeTimeout says. What it does later is undone as
// soon as it can be reached, in the background. After a long pause the next
// lock may take two round trips instead of one, and the very first more, for connections:
// see [Redlock.Check].
//
// It is safe for concurrent use, and must be closed. Use one for all keys: goroutines that
// wait for the same key through the same Redlock take turns.
type Redlock struct {
	nodes       []*node
	need        int // a quorum
	ttl         time.Duration
	nodeTimeout time.Duration
	tries       int
	minHold     time.Duration
	lines       lineup
	metrics     *telemetry.LockMetrics

	ttlArg, ownerArg any // for the scripts; the TTL in ms

	// met: all nodes were waited for once, so that one that breaks Redlock is seen at the start.
	met atomic.Bool

	ctx    context.Context // of what runs in the background
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	servers map[string]*node // by run_id
}

var _ Locker = (*Redlock)(nil)

var runMarkerArg any = runMarker

var errClosed = errors.New("the Redlock is closed")

// NewRedlock returns a Redlock on these nodes: at least 3, and an odd number is best. It makes
// connections of its own from copies of the options, when they are needed, with its own
// timeouts and without retries; it does no I/O yet.
//
// The set of nodes is part of the lock: all clients must name the same. To replace one counts
// as its loss of memory. The error wraps [ErrInvalid] and names every mistake.
//
// On first use it waits until each node has said that it is fit, or for the NodeTimeout.
// A node that is found to be a replica, a node of a Redis Cluster, to evict keys, or to be
// the same server as another makes every acquire fail, with an [ErrInvalid].
func NewRedlock(nodes []*redis.Options, c RedlockConfig) (*Redlock, error) {
	c = c.withDefaults()
	if err := errors.Join(checkNodes(nodes), c.check()); err != nil {
		return nil, fmt.Errorf("lock: new Redlock: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Redlock{
		need:        len(nodes)/2 + 1,
		ttl:         c.TTL,
		ttlArg:      c.TTL.Milliseconds(),
		nodeTimeout: c.NodeTimeout,
		tries:       c.Tries,
		minHold:     c.MinHold,
		ownerArg:    c.Owner,
		metrics:     telemetry.NewLockMetrics(c.MeterProvider),
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
// If ctx ends first, or the tries are used up, the error wraps [ErrHeld] if the lock was
// last seen held by another, and is a [*QuorumError] if too few nodes answered as they should.
func (r *Redlock) Acquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, key, r.wait)
}

// TryAcquire tries once. The error wraps [ErrHeld] if another holds the lock, or tried to get
// it at the same time.
func (r *Redlock) TryAcquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, key, r.try)
}

func (r *Redlock) acquire(ctx context.Context, key string, grant func(context.Context, *redlockLock) error) (Lock, error) {
	record, err := fenceKey(key)
	if err != nil {
		return nil, err
	}
	spanCtx, asking := telemetry.StartAcquire(ctx, r.metrics)
	l := &redlockLock{redlock: r, key: key, record: record, validity: NewValidity(context.WithoutCancel(ctx))}
	if err := grant(spanCtx, l); err != nil {
		l.validity.End(err)
		outcome := telemetry.LockFailed
		if errors.Is(err, ErrHeld) {
			outcome = telemetry.LockHeld
		}
		asking.End(outcome, 0, err)
		if _, ok := err.(*QuorumError); ok {
			return nil, err // it says all of that
		}
		return nil, fmt.Errorf("lock: acquire %q: %w", key, err)
	}
	asking.End(telemetry.LockAcquired, l.token, nil)
	l.holding = r.metrics.Hold(l.validity.Context(), howLost)
	return l, nil
}

// Check asks all nodes now, and waits for each for about a second, or until ctx ends. It
// returns nil if all of them count, and else a [*QuorumError] that names those that
// don't answer, that are unfit, or that don't count yet. It is for the start of a program,
// as it also makes the connections, and for its health checks.
func (r *Redlock) Check(ctx context.Context) error {
	errs := make([]error, len(r.nodes))
	var all sync.WaitGroup
	for i, n := range r.nodes {
		all.Go(func() { errs[i] = n.check(ctx) })
	}
	all.Wait()
	q := &QuorumError{Op: "check", Need: len(r.nodes)}
	for i, err := range errs {
		if err == nil {
			q.Held++
		} else {
			q.Nodes = append(q.Nodes, NodeError{r.nodes[i].addr, err})
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
func (r *Redlock) Close() error {
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
func (r *Redlock) goes(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.work.Go(f)
	}
	return !r.closed
}

// enlist notes which server a node is. It returns the other node that is the same, if there is one.
func (r *Redlock) enlist(run string, n *node) *node {
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

// clocks are what the clocks of the nodes show.
func (r *Redlock) clocks() []int64 {
	clocks := make([]int64, 0, len(r.nodes))
	for _, n := range r.nodes {
		if now, ok := n.clockNow(); ok {
			clocks = append(clocks, now)
		}
	}
	return clocks
}

// unfit is why this is no Redlock, as far as is known.
func (r *Redlock) unfit() error {
	for _, n := range r.nodes {
		if err := n.found(); err != nil {
			return err
		}
	}
	return nil
}
