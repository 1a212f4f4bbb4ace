package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/internal/held"
)

var (
	_ held.Service = (*heldLock)(nil)
	_ lock.Origin  = (*heldLock)(nil)
)

// heldLock is the lock that a [Locker] grants.
type heldLock struct {
	held.Lock
	key   string
	place *place

	renewed atomic.Pointer[lease.Instant] // what the last renewal counts from; nil: there was none

	asked bool // a release was sent whose reply never came; GiveUp is called by one goroutine at a time
}

func (l *heldLock) Key() string { return l.key }

// Issuer names the counter that tokens come from: the revisions of an etcd.
func (l *heldLock) Issuer() string { return "etcd" }

// Holder returns the random value of this grant. It is not in etcd.
func (l *heldLock) Holder() string { return l.place.value }

func (l *heldLock) Extend(ctx context.Context) error { return l.failed("extend", l.ExtendBy(ctx, l)) }

// Renew is part of [held.Service].
func (l *heldLock) Renew(ctx context.Context) error {
	proven, err := l.place.renew(ctx)
	if err == nil {
		l.renewed.Store(&proven)
	}
	return err
}

func (l *heldLock) Release(ctx context.Context) error {
	return l.failed("release", l.ReleaseBy(ctx, l))
}

// GiveUp is part of [held.Service]. It deletes the place, if it is there. The lease is kept for another lock if that is
// certain. Otherwise it is revoked in the background.
func (l *heldLock) GiveUp(ctx context.Context, _ time.Time) error {
	p := l.place
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	again := l.asked
	l.asked = true
	resp, err := p.locker.client.Txn(ctx).
		If(p.mine()).
		Then(clientv3.OpDelete(p.name)).
		Else(p.first()).
		Commit()
	g := p.grant
	if renewed := l.renewed.Load(); renewed != nil {
		g.proven = *renewed
	}
	if err == nil && resp.Succeeded && !again {
		p.locker.spare(g)
		return nil
	}
	p.leave()
	if err == nil && !resp.Succeeded {
		if err = lostTo(resp); again {
			err = l.Earlier(err)
		}
	}
	return p.locker.answer(ctx, ctx, err)
}

// lostTo returns how a place was lost, by what is left of the queue.
func lostTo(resp *clientv3.TxnResponse) error {
	if len(resp.Responses[0].GetResponseRange().Kvs) > 0 {
		return lock.ErrTaken
	}
	return lock.ErrExpired
}

func (l *heldLock) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, lock.ErrInvalid) {
		return err
	}
	return fmt.Errorf("lock: %s %.200q: %w", what, l.key, err)
}
