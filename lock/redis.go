package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/internal/deadline"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock/internal/batch"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/lua"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// callTimeout bounds one call, so that a Redis that hangs holds nobody up.
const callTimeout = 5 * time.Second

// Client is what a locker needs of its Redis client. Any [redis.UniversalClient] has it.
type Client interface {
	redis.Scripter
	// Pipeline carries the calls of many goroutines in one round trip.
	Pipeline() redis.Pipeliner
	// Subscribe receives the messages that offer a lock to waiters.
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Redis is a [Locker] on one Redis: a single server, one behind Sentinel, or the node
// of a Cluster that serves the key. It is safe for concurrent use and has nothing
// to close. Use one locker for all keys: then goroutines that wait for the same key hand the lock
// over among themselves.
type Redis struct {
	rdb     Client
	caller  *batch.Caller
	ttl     time.Duration
	minHold time.Duration
	owner   string
	cluster string // "1" if subscribers of a channel may be at another node than the key; else empty
	metrics *telemetry.LockMetrics

	ttlArg, offerArg, ownerArg any           // arguments of the scripts
	askTimeout                 time.Duration // of a call that asks for a lock or extends one: after the TTL its answer is worth nothing

	preflight preflight
	bell      bell

	mu    sync.Mutex
	lines map[string]*line // by key, where somebody in this process waits

	missed  atomic.Int64 // counts turns that found no waiter, and places in Redis' queues that were given up
	repeats atomic.Int64 // releases that wait to be sent again
}

var _ Locker = (*Redis)(nil)

// New returns a locker that uses the caller's client. Any [redis.UniversalClient] will do. The client stays the
// caller's to close. New makes no call to Redis. The error names every mistake in the arguments, and wraps [ErrInvalid].
//
// Set ContextTimeoutEnabled in the client's options. Then calls end at the deadlines of contexts, and
// locks are quicker: a call needs no goroutine of its own to be left when it hangs. New warns of a client
// without it by [slog.Default], once in a process for each client.
func New(rdb Client, c Config) (*Redis, error) {
	c = c.withDefaults()
	err := c.check()
	if isNil(rdb) {
		err = errors.Join(fmt.Errorf("%w: New needs a Redis client, not nil", ErrInvalid), err)
	}
	if err != nil {
		return nil, err
	}
	deadline.Warn(rdb, slog.Default())
	r := &Redis{
		rdb:     rdb,
		caller:  batch.New(rdb, callTimeout),
		ttl:     c.TTL.Truncate(time.Millisecond),
		minHold: c.MinHold,
		owner:   c.Owner,
		metrics: telemetry.NewLockMetrics(c.MeterProvider),
		lines:   map[string]*line{},
	}
	r.askTimeout = min(r.ttl, callTimeout)
	r.ttlArg, r.offerArg, r.ownerArg = r.ttl.Milliseconds(), r.offerTTL().Milliseconds(), r.owner
	r.bell.redis = r
	switch rdb.(type) {
	case *redis.Client:
	case *redis.ClusterClient:
		r.cluster = "1"
	default:
		r.bell.deaf = true
	}
	return r, nil
}

// isNil reports whether the client is nil, or an interface that holds a nil pointer.
func isNil(rdb Client) bool {
	if rdb == nil {
		return true
	}
	v := reflect.ValueOf(rdb)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Acquire waits for the lock. Waiters of one process get it in the order of their coming. Among processes
// that use this library the order is about that. While a client of another library holds the
// lock, Acquire asks every 50 to 250 ms.
//
// If ctx ends first, the error wraps its cause. It also wraps [ErrHeld] if the lock was seen held. A
// failure of Redis is returned at once: nobody knows how long it lasts. That error never wraps ErrHeld.
func (r *Redis) Acquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, []string{key}, r.wait)
}

// TryAcquire asks once. The error wraps [ErrHeld] if somebody else holds the lock.
func (r *Redis) TryAcquire(ctx context.Context, key string) (Lock, error) {
	return r.acquire(ctx, []string{key}, r.tryOnce)
}

// AcquireAll waits until it gets the locks of all keys at once. It never holds some of them while it waits
// for others. So no two callers can wait for each other, whatever the order of their keys.
// There are 1 to 100 different keys. In a Redis Cluster they need the same hash tag.
//
// The locks are one [Lock]. It has one token, larger than all earlier tokens of each key. Its
// Key is the sorted keys, separated by spaces. It is lost as soon as one of the locks is.
func (r *Redis) AcquireAll(ctx context.Context, keys ...string) (Lock, error) {
	return r.acquire(ctx, keys, r.wait)
}

// TryAcquireAll asks once for the locks of all keys; see [Redis.AcquireAll]. The error
// wraps [ErrHeld] if somebody else holds one of them.
func (r *Redis) TryAcquireAll(ctx context.Context, keys ...string) (Lock, error) {
	return r.acquire(ctx, keys, r.tryOnce)
}

const maxKeys = 100

func (r *Redis) acquire(ctx context.Context, keys []string, grant func(context.Context, *redisLock) error) (Lock, error) {
	places, err := placesOf(keys)
	if err != nil {
		return nil, err
	}
	spanCtx, asking := telemetry.StartAcquire(ctx, r.metrics)
	l := &redisLock{Lock: held.Lock{TTL: r.ttl, MinHold: r.minHold}, redis: r, places: places}
	if err = r.preflight.check(ctx, r, places[0].lock); err == nil {
		// The span covers only the asking, so the lock's context has the values of the caller's ctx.
		l.asked = lease.Now()
		l.Validity = lease.NewValidityAt(context.WithoutCancel(ctx), l.asked)
		err = grant(spanCtx, l)
	}
	if l.Asked(asking, r.metrics, err); err != nil {
		return nil, l.failed("acquire", err)
	}
	return l, nil
}

// A place has the names of the keys of one lock: the lock, its record and its queue of waiters.
type place struct{ lock, fence, line string }

// placesOf sorts the keys and returns their places.
func placesOf(keys []string) ([]place, error) {
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%w: %d keys; it must be 1 to %d", ErrInvalid, len(keys), maxKeys)
	}
	keys = slices.Clone(keys)
	slices.Sort(keys)
	places := make([]place, len(keys))
	for i, key := range keys {
		fence, err := spec.FenceKey(key)
		if err != nil {
			return nil, err
		}
		if i > 0 && key == keys[i-1] {
			return nil, fmt.Errorf("%w: key %.200q is named twice", ErrInvalid, key)
		}
		places[i] = place{lock: key, fence: fence, line: spec.WaitKey(fence)}
	}
	return places, nil
}

// A refusal says how a lock was found held.
type refusal struct {
	key  int           // the index of the key
	for_ time.Duration // for how long it is held at most; negative: for ever
	ours bool          // by a client of this library, whose release sends a message
	at   int64         // when the call put this process in Redis' queue, by the server's clock, µs; 0: it did not
	sent lease.Instant // when that call was sent
}

// lateTries bounds the tries of a call that comes too late by the server's clock. That happens when the clock was
// stepped, or when this machine slept. The last try has no deadline.
const lateTries = 3

// try asks for the locks with this value. start is before the call, and timeout bounds it. try fills in l if the
// locks are granted. If one is held, it returns ErrHeld and the refusal says how.
func (r *Redis) try(ctx context.Context, l *redisLock, start lease.Instant, timeout time.Duration, value, channel string) (refusal, error) {
	if channel != "" {
		channel += " " + r.owner
	}
	for n := 1; ; n++ {
		if ctx.Err() != nil {
			return refusal{}, lease.Ended(ctx)
		}
		until := batch.Due
		if n == lateTries {
			until = 0
		}
		g, err := r.ask(ctx, l, timeout, value, channel, until)
		if err != nil {
			return refusal{}, err
		}
		r.caller.Clock.Saw(g.now, start.Time())
		switch {
		case g.late && n < lateTries:
			start, value = lease.Now(), spec.NewValue()
		case g.late:
			return refusal{}, batch.NoReply(timeout)
		case g.token == 0:
			g.refusal.sent = start
			return g.refusal, ErrHeld
		default:
			return refusal{}, l.granted(ctx, start, r.ttl, value, g.token, row{})
		}
	}
}

// ask makes one call of acquire.lua.
func (r *Redis) ask(ctx context.Context, l *redisLock, timeout time.Duration, value, channel string, until any) (granting, error) {
	keys := make([]string, 0, 3*len(l.places))
	for _, p := range l.places {
		keys = append(keys, p.lock, p.fence, p.line)
	}
	places := l.places
	reply, err := r.caller.Call(ctx, timeout, acquireScript, keys,
		[]any{value, r.ttlArg, r.ownerArg, channel, until},
		func(ctx context.Context, reply any, err error) { r.undo(ctx, places, value, channel, reply, err) })
	switch {
	case err == nil:
	case lua.IsWrongType(err) || redis.HasErrorPrefix(err, "BADRECORD"):
		return granting{}, fmt.Errorf("%w: the key, or its record, which ends in %q, holds something else: %w", ErrInvalid, spec.FenceSuffix, err)
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return granting{}, fmt.Errorf("%w: in a Redis Cluster the keys need the same hash tag: %w", ErrInvalid, err)
	default:
		return granting{}, advise(err, l.places[0])
	}
	g, err := parseGrant(reply, len(l.places))
	if g.late {
		// The client may have sent the call before, without a reply. That copy may have been in time.
		r.caller.Go(func() { r.undoNow(context.WithoutCancel(ctx), places, value) })
	}
	return g, err
}

// undoAgain is added to the time in which a call can still run. After it an undo looks once more.
const undoAgain = time.Second

// undo gives up what an acquire may have taken for nobody: its answer came too late, or the connection broke. After a
// broken connection nobody knows whether the command ran, or still will. So undo looks again when it can't run any more.
func (r *Redis) undo(ctx context.Context, places []place, value, channel string, reply any, err error) {
	if err == nil {
		// If this call came too late, an earlier copy of it may have been in time.
		if g, err := parseGrant(reply, len(places)); err == nil && g.token == 0 && !g.late {
			if g.refusal.at != 0 && !r.waitedFor(places) {
				r.unline(ctx, places[g.refusal.key], channel)
			}
			return
		}
	} else if lua.IsAnswer(err) {
		return
	}
	if err != nil {
		looks := []time.Duration{callTimeout + undoAgain}
		if r.caller.Clock.At(time.Now()) == 0 {
			looks = append(looks, 2*callTimeout+undoAgain) // without a deadline it runs whenever it arrives
		}
		for _, d := range looks {
			r.later(d, func() { r.undoNow(context.Background(), places, value) })
		}
	}
	r.undoNow(ctx, places, value)
}

func (r *Redis) undoNow(ctx context.Context, places []place, value string) {
	for _, p := range places {
		_ = r.give(ctx, &handover{place: p, value: value, ttl: r.ttl})
	}
}

// joinKeys returns the name of a lock of several keys.
func joinKeys(places []place) string {
	keys := make([]string, len(places))
	for i, p := range places {
		keys[i] = p.lock
	}
	return strings.Join(keys, " ")
}
