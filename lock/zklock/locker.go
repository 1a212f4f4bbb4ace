package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

// closeWait bounds the time in which Close gives locks up.
const closeWait = time.Second

// A Locker is a [lock.Locker] on ZooKeeper. It has one session, is safe for concurrent use, and must be closed. Use one
// for all keys.
type Locker struct {
	session   *session
	sweeper   sweeper
	root      string
	ttl       time.Duration
	orphanAge time.Duration
	owner     []byte
	acl       []zk.ACL
	metrics   *telemetry.LockMetrics

	mu     sync.Mutex
	closed bool
	locks  map[*zkLock]struct{} // granted or being granted, and not given up
}

var _ lock.Locker = (*Locker)(nil)

// New returns a locker on the servers of one ZooKeeper. Each is a host, or host:port; the default port is 2181. New makes
// no call: the first acquire connects. The error wraps [lock.ErrInvalid] and names every mistake.
func New(servers []string, c Config) (*Locker, error) {
	c = c.withDefaults()
	addrs, err := checkServers(servers)
	if err = errors.Join(err, c.check()); err != nil {
		return nil, fmt.Errorf("zklock: %w", err)
	}
	l := &Locker{
		root: c.Root, ttl: c.TTL.Truncate(time.Millisecond), owner: []byte(c.Owner), acl: c.ACL,
		metrics:   telemetry.NewLockMetrics(c.MeterProvider),
		locks:     map[*zkLock]struct{}{},
		orphanAge: orphanAge,
	}
	l.session = newSession(addrs, c, l.sessionEnded)
	l.sweeper.locker = l
	return l, nil
}

// Acquire waits for the lock, in a queue that all clients of ZooKeeper share.
//
// If ctx ends first, the error wraps its cause. It also wraps [lock.ErrHeld] if somebody else was seen to hold the lock
// or to wait for it, and ZooKeeper still answers. If ZooKeeper doesn't answer for the
// SessionTimeout, and for at least 5 s, that is the error.
func (l *Locker) Acquire(ctx context.Context, key string) (lock.Lock, error) {
	return l.acquire(ctx, key, l.wait)
}

// TryAcquire asks once. The error wraps [lock.ErrHeld] if somebody else holds the lock. It doesn't mind those who wait.
func (l *Locker) TryAcquire(ctx context.Context, key string) (lock.Lock, error) {
	return l.acquire(ctx, key, l.try)
}

func (l *Locker) acquire(ctx context.Context, key string, grant func(context.Context, *zkLock) error) (lock.Lock, error) {
	path, err := pathOf(l.root, key)
	if err != nil {
		return nil, err
	}
	spanCtx, asking := telemetry.StartAcquire(ctx, l.metrics)
	// The span covers only the asking, so the lock's context has the values of the caller's ctx.
	k := &zkLock{Lock: held.Lock{TTL: l.ttl}, locker: l, parent: context.WithoutCancel(ctx), key: key, path: path, id: spec.NewValue()}
	if ctx.Err() != nil {
		err = lease.Ended(ctx)
	} else {
		err = grant(spanCtx, k)
	}
	if k.Asked(asking, l.metrics, err); err != nil {
		l.forget(k)
		return nil, k.failed("acquire", err)
	}
	return k, nil
}

// try takes the lock if nobody holds it.
func (l *Locker) try(ctx context.Context, k *zkLock) error {
	v, err := l.look(ctx, k.path)
	for fresh := false; ; {
		if err != nil {
			return err
		}
		switch {
		case v.lease == "" && !v.guarded:
			if err = l.grant(ctx, k, v, "", nil); !errors.Is(err, errRaced) {
				return err
			}
		case fresh && (v.marked || v.lease == ""):
			return lock.ErrHeld
		case fresh:
			return l.takeOrphan(ctx, k, v)
		}
		// A server may be behind the others. Here it must know all that was granted or released before this call.
		fresh = true
		v, err = l.lookNow(ctx, k.path)
	}
}

// look returns the view of a key by the server that the client is connected to. It creates the key's node if necessary.
func (l *Locker) look(ctx context.Context, path string) (view, error) {
	for {
		v, err := ask(ctx, l.session, func(c *zk.Conn) (view, error) {
			children, stat, err := c.Children(path)
			if err != nil {
				return view{}, err
			}
			return parseView(children, stat)
		})
		if !errors.Is(err, zk.ErrNoNode) {
			return v, l.advise(err, "read", path)
		}
		if err := l.create(ctx, path); err != nil {
			return view{}, err
		}
	}
}

// lookNow is look by a server that has seen all writes that ended before this call.
func (l *Locker) lookNow(ctx context.Context, path string) (view, error) {
	if _, err := ask(ctx, l.session, func(c *zk.Conn) (struct{}, error) { return struct{}{}, catchUp(c, path) }); err != nil && !errors.Is(err, zk.ErrNoNode) {
		return view{}, l.advise(err, "read", path)
	}
	return l.look(ctx, path)
}

// catchUp makes a transaction that changes nothing. When it has ended, the server knows all transactions before it. A sync
// isn't enough: at the leader it doesn't wait for what followers have applied already.
func catchUp(c *zk.Conn, path string) error {
	_, err := c.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
	return err
}

// create creates the node of a key, and those above it.
func (l *Locker) create(ctx context.Context, path string) error {
	container := func(c *zk.Conn) (string, error) {
		return c.CreateContainer(path, nil, zk.FlagContainer, l.acl)
	}
	_, err := ask(ctx, l.session, container)
	if errors.Is(err, zk.ErrNoNode) {
		for i := 1; i <= len(l.root); i++ {
			if i < len(l.root) && l.root[i] != '/' {
				continue
			}
			_, err := ask(ctx, l.session, func(c *zk.Conn) (string, error) { return c.Create(l.root[:i], nil, zk.FlagPersistent, l.acl) })
			if err != nil && !errors.Is(err, zk.ErrNodeExists) {
				return l.advise(err, "create", l.root[:i])
			}
		}
		_, err = ask(ctx, l.session, container)
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return l.advise(err, "create", path)
}

// advise adds to an error of ZooKeeper what can be done about it.
func (l *Locker) advise(err error, what, path string) error {
	switch {
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("%w: ZooKeeper doesn't let this client %s %s: the login of Config.Auth needs the rights cdrw (create, delete, read, write) there, and r and c above it", err, what, path)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("%w: ZooKeeper refuses Config.ACL: each entry needs a known scheme and an ID of its form; the scheme auth needs Config.Auth", err)
	case errors.Is(err, zk.ErrAuthFailed):
		return fmt.Errorf("%w: ZooKeeper refuses Config.AuthScheme or Config.Auth", err)
	}
	if err != nil && err.Error() == errQuota {
		return fmt.Errorf("ZooKeeper's quota of nodes or bytes on %s, or on a node above it, is used up, so it refuses to %s there: raise it (setquota), or let fewer keys be locked: %w", bounded(path), what, err)
	}
	return err
}

// errQuota is how the client calls ZooKeeper's error for a quota that is enforced (3.7 or later). It knows no name for it.
const errQuota = "unknown error: -125"

// bounded returns the beginning of a text for people.
func bounded(s string) string { return s[:min(len(s), 300)] }

// add begins a grant. If the session ends from here on, so does the validity.
func (l *Locker) add(k *zkLock) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	k.Validity = lease.NewValidity(k.parent)
	l.locks[k] = struct{}{}
	return nil
}

func (l *Locker) forget(k *zkLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.locks, k)
}

// sessionEnded ends the locks of the session. They look lost at once, before another session begins.
func (l *Locker) sessionEnded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.locks {
		k.Validity.End(lease.ErrExpired)
	}
}

// Close ends all locks, gives them up and ends the session. Contexts of locks end with cause [lock.ErrLost], and waiters
// get an error. If ZooKeeper doesn't answer, Close takes up to 5 s, and locks stay until their TTL is over.
func (l *Locker) Close() error {
	l.mu.Lock()
	l.closed = true
	locks := make([]*zkLock, 0, len(l.locks))
	for k := range l.locks {
		k.Validity.End(lease.ErrExpired)
		locks = append(locks, k)
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	var all sync.WaitGroup
	for _, k := range locks {
		all.Go(func() { _, _ = k.drop(ctx) })
	}
	all.Go(func() { l.sweeper.wait(ctx) })
	all.Wait()
	l.session.close()
	return nil
}
