package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// callTimeout bounds one call, so that an etcd that hangs holds nobody up.
const callTimeout = 5 * time.Second

// Locker is a [lock.Locker] on one etcd, of one server or several. It is safe for concurrent use and has nothing to
// close: what it does in the background ends with the client.
type Locker struct {
	client  *clientv3.Client
	ttl     time.Duration
	owner   string
	prefix  string
	metrics *telemetry.LockMetrics
	login   loginCheck

	mu     sync.Mutex
	spares []grant
}

var _ lock.Locker = (*Locker)(nil)

// New returns a locker that uses the caller's client. The client stays the caller's to close. New makes no call to etcd.
// The error names every mistake in the arguments, and wraps [lock.ErrInvalid].
func New(client *clientv3.Client, c Config) (*Locker, error) {
	c = c.withDefaults()
	err := c.check()
	if client == nil {
		err = errors.Join(fmt.Errorf("%w: New needs an etcd client, not nil", lock.ErrInvalid), err)
	}
	if err != nil {
		return nil, err
	}
	return &Locker{client: client, ttl: c.TTL, owner: c.Owner, prefix: c.Prefix, metrics: telemetry.NewLockMetrics(c.MeterProvider)}, nil
}

// Acquire waits for the lock. Waiters get it in the order in which etcd noted them, across all processes.
//
// If ctx ends first, the error wraps its cause. It also wraps [lock.ErrHeld] if the lock was seen held. If etcd fails
// when it is first asked, Acquire returns the error at once, or after 5 s without an answer. A waiter goes on through an
// outage of the TTL, or of 5 s if that is longer. Then it returns the error. No error of a failure wraps ErrHeld.
func (r *Locker) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	return r.acquire(ctx, key, (*place).wait)
}

// TryAcquire asks once. The error wraps [lock.ErrHeld] if somebody else holds the lock, or waits for it.
func (r *Locker) TryAcquire(ctx context.Context, key string) (lock.Lock, error) {
	return r.acquire(ctx, key, (*place).try)
}

func (r *Locker) acquire(ctx context.Context, key string, ask func(*place, context.Context) error) (lock.Lock, error) {
	queue, err := queueOf(r.prefix, key)
	if err != nil {
		return nil, err
	}
	spanCtx, asking := telemetry.StartAcquire(ctx, r.metrics)
	// The span covers only the asking, so the lock's context has the values of the caller's ctx.
	l := &heldLock{key: key, place: &place{locker: r, queue: queue}}
	l.Validity = lease.NewValidity(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		err = lease.Ended(ctx)
	} else if err = r.login.check(spanCtx, r); err == nil {
		err = l.ask(spanCtx, ask)
	}
	if l.Asked(asking, r.metrics, err); err != nil {
		return nil, l.failed("acquire", err)
	}
	return l, nil
}

// ask makes a place that holds the lock, and promises its validity. A place that is lost at once was too slow: this
// process or etcd hung. Then ask makes another.
func (l *heldLock) ask(ctx context.Context, ask func(*place, context.Context) error) error {
	for n := 1; ; n++ {
		err := ask(l.place, ctx)
		if err == nil {
			err = l.granted(ctx)
		}
		if err == nil {
			return nil
		}
		l.place.leave()
		if !errors.Is(err, lock.ErrLost) || n == entryTries {
			return err
		}
	}
}

// granted promises the validity of a place that is first in the queue. If the call that proved its lease was too long
// ago, it proves it anew.
func (l *heldLock) granted(ctx context.Context) error {
	l.Lock.TTL = l.place.ttl
	l.Grant(l.place.revision)
	for n := range proofTries {
		soon := time.Since(l.place.proven.Time()) < l.place.ttl/2 || n == proofTries-1
		if soon && l.Validity.Extend(l.place.proven, l.place.ttl) {
			return nil
		}
		if err := l.place.prove(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: it was granted with no validity left: etcd takes longer for a call than the TTL of %v", lock.ErrLost, l.place.ttl)
}
