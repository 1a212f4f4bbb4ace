package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/server"
)

// A follower has the jobs that are to follow that of a delivery.
type follower struct {
	d *delivery

	mu    sync.Mutex
	maker *signalbox.Job // without its arguments; nil: the record wasn't read yet
	codec signalbox.Codec
	asked int // for how many the handler has asked
	items []store.Item
	size  int  // of the items, in bytes
	over  bool // the handler has returned
}

// follower returns what takes the delivery's follow-ups. It is made when it is first asked for.
func (d *delivery) follower() *follower {
	if f := d.long.follows.Load(); f != nil {
		return f
	}
	d.long.follows.CompareAndSwap(nil, &follower{d: d})
	return d.long.follows.Load()
}

// end has the delivery take no more follow-ups, and returns those that it has.
func (f *follower) end() []store.Item {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
	return f.items
}

// errManyFollowUps says that a delivery has as many follow-ups as it may have.
var errManyFollowUps = fmt.Errorf("%w follow-ups: the delivery has %d, which is the most; have one of them make the others", signalbox.ErrInvalid, store.MaxFollowUps)

// Enter implements [parcelseam.Follower], as Follow does.
func (f *follower) Enter() (*parcelseam.Origin, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil, errReturned
	}
	if f.asked == store.MaxFollowUps {
		return nil, errManyFollowUps
	}
	origin, err := f.made()
	if err != nil {
		return nil, err
	}
	f.asked++
	origin.Place = f.asked - 1
	return origin, nil
}

// origin returns what jobs are made by that the delivery adds to its batch.
func (f *follower) origin() (*parcelseam.Origin, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return nil, errReturned
	}
	return f.made()
}

// made returns what jobs of the delivery are made by. f.mu is held.
func (f *follower) made() (*parcelseam.Origin, error) {
	w := f.d.session.queue.w
	if f.maker == nil {
		job := &signalbox.Job{ID: f.d.id, Namespace: w.namespace(), Queue: f.d.session.queue.store.Name(), Token: f.d.token}
		if err := f.d.claimed.Decoded(job); err != nil {
			return nil, err
		}
		if job.Encoding != "" {
			f.codec = w.codecs[job.Encoding]
		}
		job.Payload, job.Saved = nil, nil
		f.maker = job
	}
	return &parcelseam.Origin{House: houseOf(w), Maker: f.maker, Codec: f.codec}, nil
}

func (f *follower) Follow(item store.Item) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return errReturned
	}
	size := f.size + item.Size()
	if len(f.items) > 0 && size > store.MaxBytes {
		return fmt.Errorf("%w follow-ups: with this one they count as %d bytes, at most %d are allowed; have one of them make the others", signalbox.ErrInvalid, size, store.MaxBytes)
	}
	f.items, f.size = append(f.items, item), size
	return nil
}

// houseOf returns what all follow-ups of the worker have in common.
func houseOf(w *Worker) *parcelseam.House {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.houses == nil {
		w.houses = &parcelseam.House{Namespace: w.namespace(), TracerProvider: w.cfg.TracerProvider, Propagator: w.cfg.Propagator}
	}
	return w.houses
}

// completing returns the call that completes the next job of the session that has follow-ups. The queue's mu is held.
func (cl *claimer) completing(s *session) *call {
	then := s.thens[0]
	s.thens = s.thens[1:]
	c := &call{session: s, last: cl.q.dispatch.stopping, completion: &then}
	c.Session, c.Settle = s.id, []store.Settlement{then.Settle}
	if then.Settle.Suspect {
		s.suspects--
		s.barred = false
	}
	s.calls++
	cl.q.dispatch.began(1, false)
	return c
}

// complete makes the completion, once.
func (c *call) complete(ctx context.Context, q *store.Queue, lane *store.Lane) (*store.ClaimReply, error) {
	reply, err := q.Sessions().Complete(ctx, lane, c.completion)
	if err != nil {
		return nil, err
	}
	c.fates = reply.Fates
	return &reply.ClaimReply, nil
}

// isFinal reports whether Redis refuses a completion for good, and has not run it: the queue's layout isn't one of this release, or the user lacks a command that puts jobs in.
func isFinal(err error) bool {
	_, misfits := errors.AsType[*layout.Error](err)
	return misfits || server.IsDenied(err)
}

// refusedForGood notes that Redis has answered a completion with a final error. The call isn't made again, and claims may well be accepted.
func (cl *claimer) refusedForGood(began time.Time, err error) {
	cl.q.contact.answered(began)
	if misfit, ok := errors.AsType[*layout.Error](err); ok {
		cl.q.mu.Lock()
		cl.q.orders.misfits(misfit, began)
		cl.q.mu.Unlock()
	}
}

// completed acts on what a completion came back with.
func (cl *claimer) completed(c *call, reply *store.ClaimReply, err error) {
	switch {
	case err != nil && isFinal(err):
		cl.putOff(c, err)
		return
	case err != nil:
		cl.giveUp(c, err)
		return
	}
	cl.heedLosses(c, reply)
	s := c.session
	cl.q.mu.Lock()
	if s == cl.q.session && !reply.Alive {
		cl.q.keeper.lose(s)
	}
	cl.q.contact.accepted("claim")
	over := cl.finished(c)
	cl.q.dispatch.summon()
	cl.q.mu.Unlock()

	if len(reply.Overruled) > 0 {
		cl.q.overruled(c.Settle, reply.Overruled)
	}
	cl.q.tellSettled(c.Settle, reply.Refused, reply.Overruled, false)
	for i := range c.fates {
		if fate := store.Fate(c.fates[i]); !fate.In() {
			job := &c.Settle[0]
			cl.q.log.Info("signalbox: a follow-up was left out: another job has its ID, or its unique key",
				"job", job.ID, "kind", job.Kind, "token", job.Token, "follow_up", c.completion.FollowUps[i].ID(), "updated", fate == store.Updated)
		}
	}
	if over {
		cl.q.keeper.closeSession(s, false)
	}
}

// putOff has a job run again later whose completion Redis refuses for good: by then the Redis user may have its rights, or a worker of a newer release takes the job.
func (cl *claimer) putOff(c *call, err error) {
	r := c.Settle[0]
	r.Outcome, r.Delay, r.Keep = store.Delay, putBack(), nil
	if d, ok := r.Ref.(*delivery); ok && d.end != nil {
		d.end.Asked = signalbox.OutcomeReturned
	}
	s := c.session
	cl.q.mu.Lock()
	s.others = append(s.others, r) // before the call is finished: a session that no longer claims has this to settle yet, and stays
	s.unconfirmed++
	if r.Suspect {
		s.suspects++
	}
	cl.q.dispatch.unsent++
	cl.finished(c)
	cl.q.dispatch.summon()
	cl.q.mu.Unlock()
	cl.q.warn("follow-ups", "signalbox: Redis refuses the follow-ups of a job; it is put back, and runs again", "job", r.ID, "kind", r.Kind, "token", r.Token, "next_try", r.Delay.String(), "error", brief(err))
}
