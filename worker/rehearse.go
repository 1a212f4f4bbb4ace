package worker

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/lease"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/testseam"
)

func init() {
	testseam.Work = func(ctx context.Context, w any, job *signalbox.Job) testseam.Verdict {
		return w.(*Worker).rehearse(ctx, job)
	}
	testseam.Works = func(w any, queue string) (string, bool) {
		_, works := w.(*Worker).cfg.Queues[queue]
		return w.(*Worker).namespace(), works
	}
}

// rehearsalLease is the promised validity of the session in a rehearsal: nobody renews it.
const rehearsalLease = 100 * 365 * 24 * time.Hour

// rehearse runs one delivery of a job as a queue does: through the whole chain, under a lease, with the verdict of judge. But it does
// so without Redis, in the goroutine that calls it. Functions passed to signalbox.OnSettled hear what the worker would ask Redis for.
// The end of ctx is the shutdown: then Draining is closed, and the handler's context ends after Config.DrainTimeout.
func (w *Worker) rehearse(ctx context.Context, job *signalbox.Job) testseam.Verdict {
	w.mu.Lock()
	w.started = true
	w.mu.Unlock()
	w.build()

	s := store.New(w.rdb, w.cfg.Namespace, job.Queue)
	q := newQueue(w, s, s, 1, nil)
	base := trace.ContextWithSpanContext(baggage.ContextWithoutBaggage(context.WithoutCancel(ctx)), trace.SpanContext{})
	q.base = handlerctx.WithHold(handlerctx.WithDraining(base, q.drain.sign), func(context.Context, time.Time) error { return nil })
	current := &session{queue: q, id: store.NewSession(w.id), validity: lease.NewValidity(q.base)}
	current.validity.Extend(lease.Now(), rehearsalLease)
	defer current.end(context.Canceled)
	defer q.rehearseShutdown(ctx, current)()

	d := &delivery{}
	d.begin(current, nil, store.NewDelivery(job), time.Now())
	if w.watches() {
		d.watch = &watch{}
	}
	claimed := *d.claimed.Job
	result := d.settlement(&claimed)
	err := errGoexit
	defer func() {
		if err == errGoexit { // the test has ended in the handler, by t.FailNow
			q.handlers.conclude(&result, d, &claimed, err)
		}
	}()
	err = q.handlers.handle(d)
	q.handlers.conclude(&result, d, &claimed, err)
	v := testseam.Verdict{Outcome: outcomeOf(&result, d.claimed.Err == nil && err != errPutBack && err != errNoCodec), Err: err, Delay: result.Delay}
	if result.Outcome != store.Completed {
		v.Next = d.claimed.Next(claimed, &result, time.Now())
	} else if f := d.long.follows.Load(); f != nil {
		v.FollowUps = f.end()
	}
	if result.Outcome == store.Completed && d.result() != nil {
		v.Result = d.long.saves.Load().decodeResult
	}
	q.tellSettled([]store.Settlement{result}, nil, nil, false)
	w.hooks.wait()
	return v
}

// rehearseShutdown drains the queue when ctx ends. The function that it returns puts an end to that.
func (q *queue) rehearseShutdown(ctx context.Context, current *session) func() {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		close(q.drain.sign)
		if q.w.cfg.DrainTimeout > 0 {
			select {
			case <-over:
				return
			case <-time.After(q.w.cfg.DrainTimeout):
			}
		}
		current.end(signalbox.ErrShutdown)
	})
	return func() {
		close(over)
		stop()
	}
}
