package etcdlock

import (
	"context"
	"errors"
	"testing"
	"time"

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
	release(t, acquire(t, r, key)) // connects
	eventually(t, func() bool { return tap.seen(methodRevoke) > 0 }, "the lease is revoked")
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
