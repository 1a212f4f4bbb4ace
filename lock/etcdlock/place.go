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
	"github.com/signalbox-go/signalbox/lock/internal/spec"
)

const (
	// proofTries bounds the renewals that are repeated because the leader changed, or because they took too long.
	proofTries = 3
	// entryTries bounds the places that are made because the lease of the one before ended at once.
	entryTries = 3
)

// A place is one in the queue of a lock: a key in etcd with a lease of its own. The first place holds the lock.
type place struct {
	locker *Locker
	queue  string // the names of all places of the lock begin with it

	value    string // random; "" if the place was never asked for
	name     string
	revision int64 // the create revision of name
	grant

	before string // the name of the place before this one; "" if this one is the first
	seen   int64  // the revision at which before was read

	// kept is before the last renewal that was acknowledged. A leader that was replaced acknowledges renewals, too: see
	// prove.
	kept lease.Instant

	left bool // leave was called
}

// try takes the place if the queue is empty.
func (p *place) try(ctx context.Context) error {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// Somebody who asks again and again while another has the lock should cost etcd no write.
	held, err := p.locker.client.Get(callCtx, p.queue, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return p.locker.answer(ctx, callCtx, err)
	}
	if held.Count > 0 {
		return lock.ErrHeld
	}
	return p.enter(ctx, true)
}

// enter makes the place and reads which one is before it, in one transaction. If alone is true, it makes none unless the
// queue is empty, and returns [lock.ErrHeld] otherwise.
func (p *place) enter(ctx context.Context, alone bool) error {
	for n := 1; ; n++ {
		err := p.enterOnce(ctx, alone, n > 1)
		if !errors.Is(err, rpctypes.ErrLeaseNotFound) || n == entryTries {
			return err
		}
	}
}

func (p *place) enterOnce(ctx context.Context, alone, fresh bool) error {
	r := p.locker
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	g, renewed, term, err := r.lend(callCtx, p.queue, fresh)
	if err != nil {
		return r.answer(ctx, callCtx, err)
	}
	g.last = p.queue
	p.value = spec.NewValue()
	p.name, p.left, p.grant, p.kept = p.queue+g.name, false, g, renewed

	last := clientv3.OpGet(p.queue, append(clientv3.WithLastCreate(), clientv3.WithPrefix(), clientv3.WithKeysOnly())...)
	put := clientv3.OpPut(p.name, r.owner, clientv3.WithLease(p.id))
	txn := r.client.Txn(callCtx)
	if alone {
		txn = txn.If(clientv3.Compare(clientv3.CreateRevision(p.queue), "=", 0).WithPrefix())
	}
	resp, err := txn.Then(last, put).Commit()
	switch {
	case err != nil: // the key may come late: leave revokes its lease
		p.leave()
		return r.answer(ctx, callCtx, err)
	case resp.Header.RaftTerm == term:
		p.proven = renewed
	}
	if !resp.Succeeded {
		r.spare(p.grant)
		p.value = "" // there is nothing to leave
		return lock.ErrHeld
	}
	p.revision = resp.Header.Revision
	p.follow(resp)
	return nil
}

// mine is the condition that the place is still there.
func (p *place) mine() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(p.name), "=", p.revision)
}

// first reads the first place of the queue.
func (p *place) first() clientv3.Op {
	return clientv3.OpGet(p.queue, append(clientv3.WithFirstCreate(), clientv3.WithPrefix(), clientv3.WithKeysOnly())...)
}

// follow notes the place before this one, which the first operation of a transaction has read.
func (p *place) follow(resp *clientv3.TxnResponse) {
	p.before, p.seen = "", resp.Header.Revision
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		p.before = string(kv.Key)
	}
}

// look finds out whether the place is still there, and which one is before it. It returns the term in which a majority
// confirmed that. If the place is gone, the error wraps [lock.ErrLost].
//
// With write it writes the place anew, as it is: so it is no read. Some releases of etcd may answer a read with old data.
func (p *place) look(ctx context.Context, write bool) (term uint64, err error) {
	before := clientv3.OpGet(p.queue, append(clientv3.WithLastCreate(), clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithMaxCreateRev(p.revision-1))...)
	then := []clientv3.Op{before}
	if write {
		then = append(then, clientv3.OpPut(p.name, p.locker.owner, clientv3.WithLease(p.id)))
	}
	resp, err := p.locker.client.Txn(ctx).If(p.mine()).Then(then...).Else(p.first()).Commit()
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return 0, lostTo(resp)
	}
	p.follow(resp)
	return resp.Header.RaftTerm, nil
}

// keep renews the lease. The acknowledgement may be that of a leader that was replaced: see prove.
func (p *place) keep(ctx context.Context) (term uint64, err error) {
	start := lease.Now()
	kept, err := p.locker.client.KeepAliveOnce(ctx, p.id)
	if err != nil {
		return 0, err
	}
	p.kept = start
	return kept.RaftTerm, nil
}

// prove renews the lease and looks, until a renewal is proven: it was acknowledged in the term in which a majority
// confirmed that the place is there. etcd's leader acknowledges renewals without asking a majority. So one that was
// paused and replaced still does, for a moment, though the new leader knows nothing of them.
//
// The term of the acknowledgement is read before the renewal, and that of the look after it. If they are the same, that
// term's leader renewed the lease and was still the leader afterwards. The look writes, so that no old data can prove
// anything.
func (p *place) prove(ctx context.Context) error {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for range proofTries {
		start := lease.Now()
		kept, err := p.keep(callCtx)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			kept, err = 0, nil // look says how the place was lost
		}
		var looked uint64
		if err == nil {
			looked, err = p.look(callCtx, kept != 0)
		}
		switch {
		case errors.Is(err, rpctypes.ErrLeaseNotFound): // it ended in between
		case err != nil:
			return p.locker.answer(ctx, callCtx, err)
		case kept == looked:
			p.proven = start
			return nil
		}
	}
	return fmt.Errorf("etcd's leader changed during each of %d renewals; try again", proofTries)
}

// renew proves the lease of a place that holds the lock. It returns the moment that the renewal counts from.
func (p *place) renew(ctx context.Context) (proven lease.Instant, err error) {
	// Renewals may run at the same time, and beside a release.
	own := place{locker: p.locker, queue: p.queue, name: p.name, revision: p.revision, grant: p.grant}
	err = own.prove(ctx)
	return own.proven, err
}

// leave deletes the place in the background, by revoking its lease. A key that is still on its way is refused then.
// leave tries until etcd answers, the lease must have ended, or the client is closed.
func (p *place) leave() {
	if p.value == "" || p.left {
		return
	}
	p.left = true
	go p.locker.revoke(p.id, p.ttl+callTimeout)
}

func (r *Locker) revoke(id clientv3.LeaseID, patience time.Duration) {
	ctx, cancel := context.WithTimeout(r.client.Ctx(), patience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		callCtx, cancelCall := context.WithTimeout(ctx, callTimeout)
		_, err := r.client.Revoke(callCtx, id)
		cancelCall()
		if err == nil || permanent(err) || !sleep(ctx, pause) {
			return
		}
	}
}
