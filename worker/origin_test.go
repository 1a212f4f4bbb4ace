package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/worker"
)

// A handler finds its job and its lease in its context. Two deliveries of a job have one key and one issuer, but each has a holder of its own.
func TestHandlersOrigin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	type seen struct{ key, issuer, holder, effect string }
	deliveries := make(chan seen, 2)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute) // as a middleware does
		defer cancel()
		found, ok := signalbox.FromContext(ctx)
		if !ok || found != job {
			t.Errorf("%v, %v instead of the job", found, ok)
			return nil
		}
		l, _ := lock.FromContext(ctx)
		o, ok := l.(lock.Origin)
		if !ok {
			t.Errorf("%T is no Origin", l)
			return nil
		}
		deliveries <- seen{l.Key(), o.Issuer(), o.Holder(), found.EffectKey()}
		if len(deliveries) < 2 {
			return signalbox.Snooze(0)
		}
		return nil
	})
	r.start(w)
	id := r.addOne(signalbox.Job{})
	a, b := get(t, deliveries, "the first delivery"), get(t, deliveries, "the second")
	r.completed(1)
	if a.key != r.name()+"/"+id || a.issuer != "redis-queue" || a.holder == "" || a.effect != "{"+r.name()+"}"+id {
		t.Errorf("%+v", a)
	}
	if a.key != b.key || a.issuer != b.issuer || a.effect != b.effect || a.holder == b.holder {
		t.Errorf("%+v, and then %+v", a, b)
	}
}
