package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// MaxFollowUps is how many jobs a delivery can have follow its own, see [Then].
const MaxFollowUps = store.MaxFollowUps

// Then has another job follow the one whose handler calls it: a follow-up. Redis puts it in by the script that completes the job. So it is there if the job has completed, and only then. A handler mostly
// ends with it:
//
//	return scheduler.Then(ctx, SendReceipt{Order: in.ID})
//
// There is no follow-up if the handler returns an error, also of [signalbox.Snooze] and [signalbox.Cancel], if the job is cancelled while it runs, and if its lease is lost: then the next delivery asks for its
// own. If a worker dies after its handler has returned and before Redis has heard of it, the job runs again and asks again, and there is one set of follow-ups in the end.
//
// ctx is the handler's context, or one that was made from it; in worker.HandleMany that of a job of the call. Middleware can call it too. A delivery can have up to [MaxFollowUps] of them, together about 1 MiB, or one that is
// larger; one with a group, a unique key or [ExpireAfter] counts as at least 6.5 KiB. They are put in all at once, in the order of the calls.
//
// args and opts are those of [Scheduler.Enqueue], with these differences:
//
//   - The queue is that of the job, also if opts don't say it. Another one is an error.
//   - [After] counts from the completion.
//   - If opts have no [ID], it follows from the job's and from the place among the calls. So has the job run again by Redis' going back to an older state, the follow-up has the effect key that it had.
//     It never replaces a job that is kept with this ID.
//   - A follow-up is put in however full the queue is. [WaitForRoom] has no effect. [WaitReplicas] and [WaitAOF] are errors.
//   - A follow-up that another job keeps out, by its ID or its unique key, is left out. The worker logs that. What the job itself had, its ID and its unique key, is free by then.
//   - The arguments are encoded as those of the job are: as JSON, or by its codec.
//
// Then makes no call to Redis. An error wraps [signalbox.ErrInvalid] if an argument is wrong or there are too many, and [signalbox.ErrSuperseded] if the handler has returned. The follow-up is not asked
// for then, and others that were stay asked for, so return the error. If the delivery is traced, the follow-up's span is a child of the handler's.
func Then(ctx context.Context, args signalbox.Args, opts ...EnqueueOption) error {
	f, _ := ctx.Value(parcelseam.FollowerKey{}).(parcelseam.Follower)
	if f == nil {
		return fmt.Errorf("scheduler: then: %w ctx: it is not that of a handler; pass on the context that the handler got", signalbox.ErrInvalid)
	}
	origin, err := f.Enter()
	if err == nil {
		err = makeFollowUp(ctx, f, origin, args, opts)
	}
	if err != nil {
		return fmt.Errorf("scheduler: then: %w", err)
	}
	return nil
}

func makeFollowUp(ctx context.Context, f parcelseam.Follower, origin *parcelseam.Origin, args signalbox.Args, opts []EnqueueOption) error {
	s, err := makerOf(origin)
	if err != nil {
		return err
	}
	k, kind, payload, err := marshal(args, s.codec)
	base := defaults
	base.queue = origin.Maker.Queue
	o := base.begin()
	if k != (kindDefaults{}) {
		o.take(k)
	}
	if err := errors.Join(o.apply(s.trace.reserved, opts), err); err != nil {
		return err
	}
	if o.queue != origin.Maker.Queue {
		return fmt.Errorf("%w Queue: %s; a follow-up goes into the queue of its job, which is %s: give it Queue(%q), or enqueue a job in %s from its handler",
			signalbox.ErrInvalid, o.queue, origin.Maker.Queue, origin.Maker.Queue, o.queue)
	}
	if o.durable != (store.Durability{}) {
		return fmt.Errorf("%w WaitReplicas or WaitAOF: a follow-up is put in when its job completes, and nobody waits for that; leave the option out", signalbox.ErrInvalid)
	}
	id, incarnation := store.FollowUpID(origin.Maker, kind, origin.Place)
	if o.id == "" {
		o.id, o.cautious, incarnation = id, true, 0
	}
	job := o.job(o.id, kind, payload)
	job.Born = o.born()
	if o.effect == "" {
		job.Incarnation = incarnation
	}
	ctx, span := s.trace.start(ctx, o.id, kind, o)
	job.Headers = s.trace.inject(ctx, o.headers, o.mode)
	item, err := s.item(&job, args, o)
	if err == nil {
		err = f.Follow(item)
	}
	end(span, err)
	return err
}

// makerOf returns what makes the follow-ups of a worker that have an encoding. It is made once.
func makerOf(origin *parcelseam.Origin) (*Scheduler, error) {
	encoding := ""
	if origin.Codec != nil {
		encoding = origin.Codec.Encoding()
	}
	if s, ok := origin.Makers.Load(encoding); ok {
		return s.(*Scheduler), nil
	}
	s, err := encoder(Config{Namespace: origin.Namespace, Codec: origin.Codec, TracerProvider: origin.TracerProvider, Propagator: origin.Propagator}, telemetry.Who{})
	if err != nil {
		return nil, err
	}
	origin.Makers.Store(encoding, s)
	return s, nil
}
