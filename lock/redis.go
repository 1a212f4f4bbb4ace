package lock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/signalbox-go/signalbox/internal/telemetry"
)

const (
	defaultTTL = 30 * time.Second
	minTTL     = 10 * time.Millisecond
	maxTTL     = 24 * time.Hour

	// callTimeout bounds one call, so that a Redis that hangs holds nobody up. A release may take two.
	callTimeout = 5 * time.Second
)

// An Option changes how [New] makes a locker.
type Option func(*config)

type config struct {
	ttl     time.Duration
	minHold time.Duration
	owner   string
	meters  metric.MeterProvider
}

// TTL is how long a lock lives in Redis unless it is extended: from 10 ms to 24 h, in
// whole ms (a fraction is cut off). The default is 30 s. The promised validity is
// 1 % + 2 ms shorter.
func TTL(d time.Duration) Option { return func(c *config) { c.ttl = d } }

// MinHold keeps a lock held for this long from its grant, also if it is released earlier: for
// a short task that several machines start at about the same time, and only one may do.
// It is at most the TTL, since who dies holds the lock no longer. The default is 0.
// The holder's context ends at the release all the same.
func MinHold(d time.Duration) Option { return func(c *config) { c.minHold = d } }

// Owner names the holder to people; see [Redis.Inspect]. It has at most 128 bytes of
// printable ASCII. The default is the host's name and the process ID.
func Owner(name string) Option { return func(c *config) { c.owner = name } }

// check reports every mistake.
func (c *config) check() error {
	var err error
	if c.ttl < minTTL || c.ttl > maxTTL {
		err = errors.Join(err, fmt.Errorf("%w: TTL is %v; it must be from %v to %v", ErrInvalid, c.ttl, minTTL, maxTTL))
	}
	if c.minHold < 0 || c.minHold > c.ttl {
		err = errors.Join(err, fmt.Errorf("%w: MinHold is %v; it must be from 0 to the TTL of %v", ErrInvalid, c.minHold, c.ttl))
	}
	return errors.Join(err, checkOwner(c.owner))
}

// Redis is a [Locker] on one Redis: a single server, one behind Sentinel, or the node
// of a Cluster that serves the key. It is safe for concurrent use and has nothing
// to close. Use one locker for all keys: goroutines that wait for the same key through the
// same locker hand the lock on among themselves.
type Redis struct {
	caller  *caller
	ttl     time.Duration
	minHold time.Duration
	owner   string
	cluster string // "1" if a channel's subscribers may be at another node than the key
	err     error  // of the options; every acquire returns it
	metrics *telemetry.LockMetrics

	ttlArg, offerArg, ownerArg any // what scripts are told

	preflight preflight
	bell      bell

	mu    sync.Mutex
	lines map[string]*line // of the keys that somebody in this process waits for

	missed atomic.Int64 // turns that came when nobody stood in line
}

var _ Locker = (*Redis)(nil)

// New returns a locker over the caller's client, which any [redis.UniversalClient] is. It is
// best made with ContextTimeoutEnabled: then its calls heed the deadlines of contexts, and
// locks are quicker, since no goroutine is needed to leave a call that hangs. It does
// nothing yet. A mistake in the arguments is returned by every acquire, as
// an error that wraps [ErrInvalid].
func New(rdb Client, opts ...Option) *Redis {
	c := config{ttl: defaultTTL, owner: defaultOwner()}
	for _, opt := range opts {
		opt(&c)
	}
	r := &Redis{
		caller:  newCaller(rdb, callTimeout),
		ttl:     c.ttl.Truncate(time.Millisecond),
		minHold: c.minHold,
		owner:   c.owner,
		err:     c.check(),
		metrics: telemetry.NewLockMetrics(c.meters),
		lines:   map[string]*line{},
	}
	r.ttlArg, r.offerArg, r.ownerArg = r.ttl.Milliseconds(), r.offerTTL().Milliseconds(), r.owner
	if rdb == nil {
		r.err = errors.Join(fmt.Errorf("%w: New needs a Redis client, not nil", ErrInvalid), r.err)
	}
	r.bell.init(r)
	switch rdb.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		r.cluster = "1"
	default:
		r.bell.deaf = true
	}
	return r
}

// Acquire waits for the lock, in line with the others who wait for it by this library: in
// this process in order, across processes in about the order of their coming. While a
// client of another library holds it, it looks every 50 to 250 ms.
//
// If ctx ends first the error wraps its cause, and [ErrHeld] if the lock was seen held. A
// failure of Redis is returned and not waited out, since nobody knows for how long; it
// never wraps ErrHeld.
func (r *Redis) Acquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, []string{key}, r.wait)
}

// TryAcquire asks once. The error wraps [ErrHeld] if another holds the lock.
func (r *Redis) TryAcquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, []string{key}, r.tryOnce)
}

// AcquireAll waits until it has the locks of all keys at once. It never holds some
// while it waits for others, so that no two callers can wait for each other, whatever
// the order of their keys. There are 1 to 100 different keys; in a Redis Cluster they need the same
// hash tag.
//
// They are one [Lock], with one token that is larger than those before it for each key. Its
// Key is the sorted keys, separated by spaces. It is lost as soon as one of them is.
func (r *Redis) AcquireAll(ctx context.Context, keys ...string) (Lock, error) {
	return r.acquire(ctx, keys, r.wait)
}

// TryAcquireAll asks once for the locks of all keys; see [Redis.AcquireAll]. The error
// wraps [ErrHeld] if another holds one of them.
func (r *Redis) TryAcquireAll(ctx context.Context, keys ...string) (Lock, error) {
	return r.acquire(ctx, keys, r.tryOnce)
}

const maxKeys = 100

func (r *Redis) acquire(ctx context.Context, keys []string, grant func(context.Context, *redisLock) error) (Lock, error) {
	places, err := placesOf(keys)
	if r.err != nil {
		err = r.err
	}
	if err != nil {
		return nil, err
	}
	spanCtx, asking := telemetry.StartAcquire(ctx, r.metrics)
	l := &redisLock{redis: r, places: places}
	if err = r.preflight.check(ctx, r, places[0].lock); err == nil {
		// The span is for the asking only, so the lock's context has the values of ctx.
		l.asked = Now()
		l.validity = newValidity(context.WithoutCancel(ctx), boottime, l.asked)
		if err = grant(spanCtx, l); err != nil {
			l.validity.End(err)
		}
	}
	if err != nil {
		outcome := telemetry.LockFailed
		if errors.Is(err, ErrHeld) {
			outcome = telemetry.LockHeld
		}
		asking.End(outcome, 0, err)
		return nil, fmt.Errorf("lock: acquire %q: %w", l.Key(), err)
	}
	asking.End(telemetry.LockAcquired, l.token, nil)
	l.holding.Store(r.metrics.Hold(l.validity.Context(), howLost))
	return l, nil
}

// A place is where the parts of one lock are.
type place struct{ lock, fence, line string }

// placesOf sorts the keys and finds their places.
func placesOf(keys []string) ([]place, error) {
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%w: %d keys; it must be 1 to %d", ErrInvalid, len(keys), maxKeys)
	}
	keys = slices.Clone(keys)
	slices.Sort(keys)
	places := make([]place, len(keys))
	for i, key := range keys {
		fence, err := fenceKey(key)
		if err != nil {
			return nil, err
		}
		if i > 0 && key == keys[i-1] {
			return nil, fmt.Errorf("%w: key %q is named twice", ErrInvalid, key)
		}
		places[i] = place{lock: key, fence: fence, line: waitKey(fence)}
	}
	return places, nil
}

// A refusal is how a lock was found held.
type refusal struct {
	key  int           // which of the keys
	for_ time.Duration // at most; negative: for ever
	ours bool          // by a client of this library, which tells when it releases
	at   int64         // the call that found it put us in line, at this µs of the server's clock; 0: no
	sent Instant       // and was sent then
}

// try asks for the locks once with this value, after start, and fills in l if they are granted.
// Else the error is ErrHeld and says how, or another.
func (r *Redis) try(ctx context.Context, l *redisLock, start Instant, value, channel string) (refusal, error) {
	if ctx.Err() != nil {
		return refusal{}, ended(ctx)
	}
	if channel != "" {
		channel += " " + r.owner
	}
	keys := make([]string, 0, 3*len(l.places))
	for _, p := range l.places {
		keys = append(keys, p.lock, p.fence, p.line)
	}
	reply, err := r.caller.call(ctx, min(r.ttl, callTimeout), acquireScript, keys,
		[]any{value, r.ttlArg, r.ownerArg, channel},
		func(ctx context.Context, reply any, err error) { r.undo(ctx, l.places, value, reply, err) })
	switch {
	case err == nil:
	case isWrongType(err) || redis.HasErrorPrefix(err, "BADRECORD"):
		return refusal{}, fmt.Errorf("%w: the key, or its record, which ends in %q, holds something else: %w", ErrInvalid, fenceSuffix, err)
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return refusal{}, fmt.Errorf("%w: in a Redis Cluster the keys need the same hash tag: %w", ErrInvalid, err)
	default:
		return refusal{}, err
	}
	token, held, err := parseGrant(reply, len(l.places))
	if err != nil {
		return refusal{}, err
	}
	if token == 0 {
		held.sent = start
		return held, ErrHeld
	}
	return refusal{}, l.granted(ctx, start, r.ttl, value, token, row{})
}

// undo releases what an acquire may have taken though its caller didn't get it: the answer
// came too late, or the connection broke and the command may or may not have run.
// If this fails too, the lock is gone after its TTL.
func (r *Redis) undo(ctx context.Context, places []place, value string, reply any, err error) {
	if err == nil {
		if token, _, err := parseGrant(reply, len(places)); err == nil && token == 0 {
			return
		}
	} else if isAnswer(err) {
		return
	}
	for _, p := range places {
		_ = r.give(ctx, p, value, row{}, 0)
	}
}

// newValue is a lock's random value. Each attempt has a new one, so that a late answer to an
// earlier one can't be mistaken for this one's.
func newValue() string { return rand.Text() }

// joinKeys is the name of a lock of several keys.
func joinKeys(places []place) string {
	keys := make([]string, len(places))
	for i, p := range places {
		keys[i] = p.lock
	}
	return strings.Join(keys, " ")
}
