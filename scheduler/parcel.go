package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

func init() {
	parcelseam.New = func(config any) (parcelseam.Maker, error) {
		s, err := encoder(config.(Config), telemetry.Who{})
		if err != nil {
			return nil, err
		}
		return s.parcel, nil
	}
}

// parcel makes a job for an outbox, and passes it to write.
func (s *Scheduler) parcel(ctx context.Context, args signalbox.Args, opts any, now time.Time, write func(context.Context, parcelseam.Made) error) (string, error) {
	k, kind, payload, err := marshal(args, s.codec)
	o, optErr := resolve(k, s.trace.reserved, opts.([]EnqueueOption))
	if err := errors.Join(optErr, err); err != nil {
		return "", err
	}
	if o.durable != (store.Durability{}) {
		return "", fmt.Errorf("%w WaitReplicas or WaitAOF: a transaction can't wait for Redis; leave the option out", signalbox.ErrInvalid)
	}
	id := o.id
	if id == "" {
		id = store.NewID()
	}
	ctx, span := s.trace.start(ctx, id, kind, o)
	err = s.writeParcel(ctx, id, kind, args, payload, o, now, write)
	end(span, err)
	return id, err
}

func (s *Scheduler) writeParcel(ctx context.Context, id, kind string, args signalbox.Args, payload []byte, o *options, now time.Time, write func(context.Context, parcelseam.Made) error) error {
	job := o.job(id, kind, payload)
	job.Incarnation = o.incarnationOf()
	job.Born = now.Truncate(time.Microsecond) // a relay may send the row again, after Redis went back: then EnqueuedAt is later
	job.Headers = s.trace.inject(ctx, o.headers, o.mode)
	absolute := *o
	if o.when.At.IsZero() && o.when.After > 0 {
		absolute.when = store.When{At: now.Add(o.when.After)}
	} else {
		absolute.when.After = 0
	}
	if absolute.when.At.After(now) {
		job.Born = absolute.when.At.Truncate(time.Microsecond)
	}
	absolute.cautious = o.cautious || o.id == "" // if Redis has the ID, it has this job
	item, err := s.item(&job, args, &absolute)
	if err != nil {
		return err
	}
	parcel, err := item.Parcel()
	if err != nil {
		return err
	}
	return write(ctx, parcelseam.Made{Namespace: s.namespace, Queue: o.queue, Group: o.group, Parcel: parcel})
}
