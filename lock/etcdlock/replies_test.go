package etcdlock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
)

// An acquire whose reply is lost fails, and not because the lock is held. The key that etcd made all the same is deleted.
func TestLostReplyOfAcquire(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	see := dial(t, nil, addr)
	for _, method := range []string{methodGrant, methodTxn} {
		for name, ask := range map[string]func(*Locker, context.Context, string) (lock.Lock, error){"TryAcquire": (*Locker).TryAcquire, "Acquire": (*Locker).Acquire} {
			key, tap := newKey(), newTap()
			r := newLocker(t, dial(t, tap.options(), addr), Config{TTL: time.Minute})
			tap.loseNext(method, 1)
			made := make(chan int64, 1)
			tap.onReply(func(m string, _, _ any) {
				if m == methodTxn {
					select {
					case made <- places(t, see, key):
					default:
					}
				}
			})
			l, err := ask(r, t.Context(), key)
			if l != nil || !errors.Is(err, errReplyLost) || errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrLost) {
				t.Errorf("%s without the reply of %s: %v, %v", name, method, l, err)
			}
			if method == methodTxn && <-made != 1 {
				t.Errorf("%s: etcd did not do what was asked: the test shows nothing", name)
			}
			tap.onReply(nil)
			eventually(t, func() bool { return places(t, see, key) == 0 }, "the key is deleted")
			release(t, acquire(t, r, key))
		}
	}
}

// The same if the network holds the replies, and the caller gives up: the call returns at once.
func TestAcquireThatGivesUpLeavesNothing(t *testing.T) {
	t.Parallel()
	server, key := sharedEtcd(t), newKey()
	link, see := servertest.NewLink(t, server.Addr()), dial(t, nil, server.Addr())
	tap := newTap()
	r := newLocker(t, dial(t, tap.options(), link.Addr()), Config{TTL: time.Minute})
	acquire(t, r, newKey()) // connects
	tap.onReply(func(method string, _, _ any) {
		if method == methodGrant {
			link.HoldReplies() // the key is made, and nobody hears of it
		}
	})
	why := errors.New("waited long enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	results := make(chan result, 1)
	go func() {
		l, err := r.Acquire(ctx, key)
		results <- result{l, err}
	}()
	eventually(t, func() bool { return places(t, see, key) == 1 }, "the key is made")
	cancel(why)
	if l, err := get(t, results); l != nil || !errors.Is(err, why) || errors.Is(err, lock.ErrHeld) {
		t.Errorf("Acquire: %v, %v", l, err)
	}
	eventually(t, func() bool { return places(t, see, key) == 0 }, "the key is deleted, though replies are still held")
	tap.onReply(nil)
	link.Heal()
	release(t, acquire(t, r, key))
}

// An extension whose reply is lost is no loss. The next one succeeds.
func TestLostReplyOfExtend(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	for _, method := range []string{methodKeep, methodTxn} {
		key, tap := newKey(), newTap()
		l := acquire(t, newLocker(t, dial(t, tap.options(), addr), Config{TTL: time.Minute}), key)
		until := l.Until()
		tap.loseNext(method, 1)
		if err := l.Extend(t.Context()); !errors.Is(err, errReplyLost) || errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend without the reply of %s: %v", method, err)
		}
		if l.Context().Err() != nil || !l.Until().Equal(until) {
			t.Errorf("Extend without the reply of %s: context %v, validity moved by %v", method, l.Context().Err(), l.Until().Sub(until))
		}
		if err := l.Extend(t.Context()); err != nil || !l.Until().After(until) {
			t.Errorf("the next Extend: %v, validity moved by %v", err, l.Until().Sub(until))
		}
		release(t, l)
	}
}

// A release whose reply is lost has freed the lock. When it is repeated it returns nil, even if somebody else has the
// lock by then.
func TestLostReplyOfRelease(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	for _, taken := range []bool{false, true} {
		key, tap := newKey(), newTap()
		l := acquire(t, newLocker(t, dial(t, tap.options(), addr), Config{TTL: time.Minute}), key)
		tap.loseNext(methodTxn, 1)
		if err := l.Release(t.Context()); !errors.Is(err, errReplyLost) || errors.Is(err, lock.ErrLost) {
			t.Errorf("Release without its reply: %v", err)
		}
		if l.Context().Err() == nil {
			t.Error("the context goes on after Release")
		}
		other := lockerOn(t, time.Minute, addr)
		if taken {
			next := acquire(t, other, key)
			defer release(t, next)
		}
		for range 2 {
			if err := l.Release(t.Context()); err != nil {
				t.Errorf("the repetition, while another has it is %v: %v", taken, err)
			}
		}
		if taken {
			refused(t, other, key)
		}
	}
}

// A release that didn't reach etcd is made in the background, and may be repeated.
func TestReleaseThatIsNotSent(t *testing.T) {
	t.Parallel()
	server, key := sharedEtcd(t), newKey()
	link := servertest.NewLink(t, server.Addr())
	l := acquire(t, lockerOn(t, time.Minute, link.Addr()), key)
	link.Cut()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Release has a timeout of its own
	began := time.Now()
	if err := l.Release(ctx); err == nil || errors.Is(err, lock.ErrLost) {
		t.Errorf("Release without a connection: %v", err)
	}
	if took := time.Since(began); took > callTimeout+patience/2 {
		t.Errorf("it took %v", took)
	}
	other := lockerOn(t, time.Minute, server.Addr())
	refused(t, other, key)
	link.Heal()
	next := acquire(t, other, key) // by far before the TTL is over
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("the repetition: %v", err)
	}
	release(t, next)
}

// A release that failed has begun to revoke its lease. When the caller repeats it, and that is what deletes the lock, the
// lease is not kept for the next lock: the revocation may come late, and would delete that one.
func TestRepeatedReleaseKeepsNoLease(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	errNotSent := errors.New("not sent")
	var refuse atomic.Bool // the next transaction
	revokes := make(chan struct{})
	revoked := make(chan error, 10)
	client := dial(t, []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		switch {
		case method == methodTxn && refuse.Swap(false):
			return errNotSent
		case method == methodRevoke:
			select {
			case <-revokes:
			case <-ctx.Done():
			}
			err := invoke(ctx, method, req, reply, cc, opts...)
			revoked <- err
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})}, addr)
	r, key := newLocker(t, client, Config{TTL: time.Minute}), newKey()
	l := acquire(t, r, key)
	refuse.Store(true)
	if err := l.Release(t.Context()); !errors.Is(err, errNotSent) {
		t.Fatalf("Release that was not sent: %v", err)
	}
	release(t, l)
	next := acquire(t, r, key)
	close(revokes)
	if err := <-revoked; err != nil {
		t.Fatalf("the revocation: %v", err)
	}
	refused(t, lockerOn(t, time.Minute, addr), key)
	if err := next.Extend(t.Context()); err != nil {
		t.Errorf("the next lock, after the revocation came late: %v", err)
	}
	release(t, next)
}

// A revocation that fails is repeated: the key of an acquire that failed is deleted long before its lease ends.
func TestRevocationIsRepeated(t *testing.T) {
	t.Parallel()
	addr := sharedEtcd(t).Addr()
	see, key, tap := dial(t, nil, addr), newKey(), newTap()
	var refusals atomic.Int64
	refusals.Store(3)
	options := append(tap.options(), grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method == methodRevoke && refusals.Add(-1) >= 0 {
			return errors.New("not sent")
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}))
	r := newLocker(t, dial(t, options, addr), Config{TTL: 10 * time.Minute})
	tap.loseNext(methodTxn, 1)
	if l, err := r.TryAcquire(t.Context(), key); l != nil || !errors.Is(err, errReplyLost) {
		t.Fatalf("TryAcquire: %v, %v", l, err)
	}
	eventually(t, func() bool { return refusals.Load() < 0 && places(t, see, key) == 0 }, "the key is deleted")
}
