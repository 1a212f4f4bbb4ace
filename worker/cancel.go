package worker

import (
	"context"
	"errors"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// maxEarly bounds the cancelled deliveries that a queue notes since it doesn't know them yet.
const maxEarly = 10_000

// cancel ends the contexts of the handlers of some deliveries, tokens by job ID, with signalbox.ErrCancelled. Those that aren't known
// yet may be in the reply of a call that is under way: they are noted until it comes.
//
// It is only for speed. In Redis each of these jobs has a mark, with which it ends cancelled whatever its delivery is settled with.
func (cl *claimer) cancel(tokens map[string]int64) {
	var cancelled []*delivery
	cl.q.mu.Lock()
	for d := range cl.q.slots.running() {
		if tokens[d.id] == d.token {
			cancelled = append(cancelled, d)
			delete(tokens, d.id)
		}
	}
	if cl.q.dispatch.calls > 0 {
		for id, token := range tokens {
			cl.early[id] = token
		}
		if len(cl.early) > maxEarly {
			clear(cl.early)
			cl.unsure = true
		}
	}
	cl.q.mu.Unlock()
	for _, d := range cancelled {
		d.own.End(signalbox.ErrCancelled)
	}
}

// cancelEarly ends the contexts of deliveries that a call came back with and that were cancelled before. The queue's mu is held.
func (cl *claimer) cancelEarly(deliveries []delivery) {
	if cl.unsure {
		cl.q.keeper.lookForCancels()
	}
	for i := range deliveries {
		if d := &deliveries[i]; cl.early[d.id] == d.token {
			delete(cl.early, d.id)
			d.own.End(signalbox.ErrCancelled)
		}
	}
}

// forgetEarly forgets deliveries that no call can come back with any more. The queue's mu is held.
func (cl *claimer) forgetEarly() {
	if cl.q.dispatch.calls == 0 {
		clear(cl.early)
		cl.unsure = false
	}
}

// lookForCancels has the keeper look which of the jobs that run were cancelled: a message may have been missed.
func (k *keeper) lookForCancels() {
	select {
	case k.marked <- struct{}{}:
	default: // it is about to
	}
}

// endCancelled asks Redis which of the jobs that run were cancelled, and ends their contexts. It reports whether Redis answered.
func (k *keeper) endCancelled(ctx context.Context) bool {
	running := make(map[string]int64)
	k.q.mu.Lock()
	for d := range k.q.slots.running() {
		if !d.returned && d.Err() == nil {
			running[d.id] = d.token
		}
	}
	k.q.mu.Unlock()
	began := time.Now()
	cancelled, err := k.q.own.Sessions().Cancelled(ctx, running)
	k.q.claimer.cancel(cancelled)
	if err != nil && !ended(ctx) {
		k.q.contact.failed("look for cancelled jobs", began, err)
	}
	return err == nil
}

// isCancelled reports whether the delivery's context has ended since its job was cancelled.
func (d *delivery) isCancelled() bool {
	return d.Err() != nil && errors.Is(context.Cause(d), signalbox.ErrCancelled)
}

// overruled logs the deliveries whose jobs ended cancelled, since they were cancelled while they ran.
func (q *queue) overruled(settled []store.Settlement, indices []int) {
	for _, i := range indices {
		s := &settled[i]
		about := []any{"job", s.ID, "token", s.Token, "asked", s.Outcome}
		if s.Kind != "" { // it could be read
			about = append(about, "kind", s.Kind, "attempt", s.Attempt)
		}
		if d, ok := s.Ref.(*delivery); ok && d.watch != nil {
			about = append(about, telemetry.LogAttrs(d.watch.SpanContext())...)
		}
		q.log.Info("signalbox: a job is cancelled, as was asked for while it ran", about...)
	}
}
