package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/lock"
)

const (
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
	// shortestCall is what a renewal may take at least: etcd may be slow, and the lease longer than the TTL.
	shortestCall = time.Second
)

// errPlaceLost means that a waiter's place is gone: its lease ended, or somebody deleted it.
var errPlaceLost = errors.New("the place in the queue was lost")

// wait makes a place and waits until it is the first. If the place is lost meanwhile, wait makes another.
func (p *place) wait(ctx context.Context) error {
	for {
		err := p.enter(ctx, false)
		if err == nil {
			err = p.queued(ctx)
		}
		if !errors.Is(err, errPlaceLost) {
			return err
		}
		p.leave()
	}
}

// queued waits until the place is the first. It goes on through an outage of the TTL or of [callTimeout], whichever is
// longer: after that the place has ended.
func (p *place) queued(ctx context.Context) error {
	var failure error // the last call failed
	for pause := firstPause; p.before != ""; {
		err := p.locker.answer(ctx, ctx, p.await(ctx))
		if err == nil {
			err = p.turn(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return p.ended(ctx, failure)
		case err == nil:
			failure, pause = nil, firstPause
			continue
		case errors.Is(err, errPlaceLost), permanent(err):
			return err
		case time.Since(p.kept.Time()) > max(p.ttl, callTimeout):
			return fmt.Errorf("etcd failed for longer than %v: %w", max(p.ttl, callTimeout), err)
		}
		failure = err
		if !sleep(ctx, min(pause, p.ttl/10)) {
			return p.ended(ctx, failure)
		}
		pause = min(2*pause, longestPause)
	}
	return nil
}

// ended returns the error of a wait that ended with ctx. The lock was seen held. That counts unless etcd failed since.
func (p *place) ended(ctx context.Context, failure error) error {
	if failure != nil {
		return fmt.Errorf("%w; etcd failed while it was waited for: %w", lease.Ended(ctx), failure)
	}
	return fmt.Errorf("%w: %w", lock.ErrHeld, lease.Ended(ctx))
}

// turn looks whether the place is the first by now. The place may also be lost: its lease may have ended while this
// process or etcd was paused.
func (p *place) turn(ctx context.Context) error {
	if time.Since(p.proven.Time()) > p.ttl/8 {
		err := p.prove(ctx)
		if errors.Is(err, lock.ErrLost) {
			return errPlaceLost
		}
		return err
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := p.look(callCtx, false)
	if errors.Is(err, lock.ErrLost) {
		return errPlaceLost
	}
	return p.locker.answer(ctx, callCtx, err)
}

// await returns nil when the place before this one is gone, or may be. Meanwhile it renews the lease, once in a third of
// the TTL. The watch begins with what was last read. So nothing is missed if await is called again after an error.
func (p *place) await(ctx context.Context) error {
	// A member without a leader ends the watch instead of staying silent.
	watchCtx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	made := make(chan clientv3.WatchChan, 1)
	go func() { // Watch returns when etcd has confirmed it, or when its context ends
		made <- p.locker.client.Watch(watchCtx, p.before, clientv3.WithRev(p.seen+1), clientv3.WithFilterPut())
	}()
	var gone clientv3.WatchChan
	renewal := time.NewTimer(p.untilRenewal())
	defer renewal.Stop()
	for {
		select {
		case <-ctx.Done():
			return lease.Ended(ctx)
		case gone = <-made:
		case resp, ok := <-gone:
			switch {
			case !ok:
				return errors.New("etcd's watch ended")
			case errors.Is(resp.Err(), rpctypes.ErrCompacted):
				return nil // look: the place before may be gone
			case resp.Err() != nil:
				return resp.Err()
			case len(resp.Events) > 0:
				return nil
			}
		case <-renewal.C:
			if err := p.stay(ctx); err != nil {
				return err
			}
			renewal.Reset(p.untilRenewal())
		}
	}
}

// untilRenewal returns when the next renewal of a waiter is due.
func (p *place) untilRenewal() time.Duration {
	return max(p.ttl/3-time.Since(p.kept.Time()), 0)
}

// stay renews the lease of a waiter.
func (p *place) stay(ctx context.Context) error {
	// A call that hangs must leave time for another.
	callCtx, cancel := context.WithTimeout(ctx, min(callTimeout, max((p.ttl-time.Since(p.kept.Time()))/2, shortestCall)))
	defer cancel()
	_, err := p.keep(callCtx)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return errPlaceLost
	}
	return p.locker.answer(ctx, callCtx, err)
}

// sleep returns false at once when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
