package worker

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox/internal/store"
)

// A tender looks after the batches of a queue: it cancels those that last too long or that nobody has sealed, ends the members of those that were cancelled, has callbacks go on that a call has left, and has batches forgotten. Its
// goroutine waits for nobody but Redis, and nobody waits for it. All workers of a queue do so; whatever one does not do, or has begun when it dies, another one does within a minute or so.
type tender struct {
	q       *queue
	news    chan struct{} // a job has ended that may have cancelled its batch
	failing atomic.Int64  // how many such jobs are to be settled
	cursor  string        // of what members have added
}

const (
	tendEvery = time.Minute // how often a tender looks, if no batch needs it earlier
	tendSoon  = time.Second // the earliest after a look
	tendCalls = 100         // how many calls of a look go through batches whose time has come, 20 in each
)

// failed has a look follow if there are jobs in a batch of settlements that may have cancelled their flows.
func (t *tender) failed(batch []store.Settlement) {
	n := int64(0)
	for i := range batch {
		if endsFlows(&batch[i]) {
			n++
		}
	}
	if n > 0 {
		t.failing.Add(-n)
		t.wake()
	}
}

// wake has a look follow soon. It doesn't block.
func (t *tender) wake() {
	select {
	case t.news <- struct{}{}:
	default: // one follows
	}
}

// run looks after batches until ctx ends.
func (t *tender) run(ctx context.Context) {
	timer := time.NewTimer(rand.N(tendSoon))
	defer timer.Stop()
	var began time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.news:
			timer.Reset(max(0, time.Until(began.Add(tendSoon))))
			continue
		case <-timer.C:
		}
		began = time.Now()
		next, err := t.look(ctx)
		if err != nil && ctx.Err() == nil {
			t.q.contact.failed("tend", began, err)
			t.q.hint(true) // a lane's call says when Redis is back
		}
		timer.Reset(next - rand.N(next/8))
	}
}

// look does what there is to do. It returns when it is to look again.
func (t *tender) look(ctx context.Context) (next time.Duration, err error) {
	there, err := t.q.store.Flows().Any(ctx)
	if err != nil || !there {
		return tendEvery, err
	}
	if t.cursor == "" {
		t.cursor = "0"
	}
	next = 0
	for n := 0; next == 0 && n < tendCalls; n++ {
		tended, err := t.q.store.Flows().Tend(ctx, t.cursor)
		if err != nil {
			return tendEvery, err
		}
		for _, id := range tended.Unsealed {
			t.q.log.Warn("signalbox: a batch is cancelled, since nobody has sealed it in time; has its producer died?", "batch", id)
		}
		for _, id := range tended.Late {
			t.q.log.Warn("signalbox: a batch is cancelled, since its FlowTimeout is over", "batch", id)
		}
		t.cursor, next = tended.Cursor, tendEvery
		if tended.Next >= 0 {
			next = min(next, tended.Next)
		}
	}
	for page, begun := uint64(0), false; !begun || page != 0; begun = true {
		released, cancelled, after, err := t.q.store.Flows().Notes(ctx, page)
		if err != nil {
			return tendEvery, err
		}
		for _, name := range released {
			if err := t.q.store.Flows().Release(ctx, name); err != nil {
				return tendEvery, err
			}
			next = 0 // there may be more
		}
		for _, name := range cancelled {
			wait, err := t.pass(ctx, name)
			if err != nil {
				return tendEvery, err
			}
			next = min(next, wait)
		}
		page = after
	}
	return max(next, tendSoon), nil
}

// pass ends the members of a batch that was cancelled, page by page, until the pass has ended. It returns when the next one is due.
func (t *tender) pass(ctx context.Context, name string) (wait time.Duration, err error) {
	for {
		more, over, wait, err := t.q.store.Flows().Pass(ctx, name)
		switch {
		case err != nil:
			return tendEvery, err
		case over:
			return tendEvery, nil
		case !more:
			return wait, nil
		}
	}
}
