package worker_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// hears is a middleware that passes the ends of its deliveries to the test.
func hears(ends chan<- signalbox.Settled) signalbox.Middleware {
	return func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			signalbox.OnSettled(ctx, func(s signalbox.Settled) { ends <- s })
			return next.Handle(ctx, job)
		})
	}
}

// A middleware, and a handler, learn how each delivery ended after Redis has confirmed it.
func TestOnSettled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		job  signalbox.Job
		want signalbox.Outcome
		next bool
	}{
		"completed": {nil, signalbox.Job{}, signalbox.OutcomeCompleted, false},
		"retried":   {errBoom, signalbox.Job{}, signalbox.OutcomeRetried, true},
		"dead":      {errBoom, signalbox.Job{MaxAttempts: 1}, signalbox.OutcomeDead, false},
		"snoozed":   {signalbox.Snooze(time.Hour), signalbox.Job{}, signalbox.OutcomeSnoozed, true},
		"at once":   {signalbox.Snooze(0), signalbox.Job{}, signalbox.OutcomeSnoozed, false},
		"cancelled": {signalbox.Cancel(errBoom), signalbox.Job{}, signalbox.OutcomeCancelled, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.worker(2)
			ends, own := make(chan signalbox.Settled, 2), make(chan signalbox.Settled, 1)
			var again atomic.Bool
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
				if again.Swap(true) {
					return nil // after Snooze(0)
				}
				signalbox.OnSettled(ctx, func(s signalbox.Settled) {
					if n := r.counts().Running; n != 0 && name != "at once" {
						t.Errorf("%d jobs run when it is told", n)
					}
					own <- s
				})
				return c.err
			}, worker.With(hears(ends)), worker.Retry(func(int, error) time.Duration { return time.Hour }))
			before := time.Now()
			r.start(w)
			r.addOne(c.job)
			s := get(t, ends, "the middleware hears of the end")
			get(t, own, "the handler hears of the end")
			if s.Outcome != c.want || s.Asked != c.want || !errors.Is(s.Err, c.err) || s.Next.After(s.Returned) != c.next {
				t.Errorf("%+v", s)
			}
			if s.Started.Before(before) || s.Returned.Before(s.Started) || s.Ended.Before(s.Returned) {
				t.Errorf("it started at %v, returned at %v and ended at %v", s.Started, s.Returned, s.Ended)
			}
		})
	}
}

// A handler without any middleware learns of the end, however the delivery ends.
func TestOnSettledInAHandler(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"by a panic": func() { panic("boom") }, "by Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.worker(1)
			ends := make(chan signalbox.Settled, 2)
			worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
				signalbox.OnSettled(ctx, func(s signalbox.Settled) { ends <- s })
				end()
				return nil
			})
			r.start(w)
			r.addOne(signalbox.Job{MaxAttempts: 1})
			if s := get(t, ends, "the handler hears of the end"); s.Outcome != signalbox.OutcomeDead || s.Err == nil {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A worker that stops gives jobs back, and reports their ends before Run returns.
func TestOnSettledReturned(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.config(1)
	cfg.DrainTimeout = -1
	w := r.workerWith(cfg)
	began, ends := make(chan struct{}), make(chan signalbox.Settled, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	}, worker.With(hears(ends)))
	run := r.start(w)
	r.addOne(signalbox.Job{})
	get(t, began, "the job runs")
	run.stop()
	select {
	case s := <-ends:
		if s.Outcome != signalbox.OutcomeReturned || !s.Next.IsZero() {
			t.Errorf("%+v", s)
		}
	default:
		t.Error("nobody heard of it")
	}
}

// If Redis refuses a settlement, or if nobody knows whether it was run, the report says so.
func TestOnSettledInVain(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	cfg := r.short(2)
	cfg.DrainTimeout = -1
	w := r.workerOn(proxy.Client(), cfg)
	began, ends := make(chan struct{}, 1), make(chan signalbox.Settled, 1)
	next := make(chan struct{})
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		began <- struct{}{}
		<-next
		return nil
	}, worker.With(hears(ends)))
	run := r.start(w)
	r.addOne(signalbox.Job{})
	get(t, began, "the job runs")
	if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	next <- struct{}{}
	if s := get(t, ends, "it is refused"); s.Outcome != signalbox.OutcomeSuperseded || s.Asked != signalbox.OutcomeCompleted {
		t.Errorf("%+v", s)
	}
	r.addSoon()
	get(t, began, "another job runs")
	proxy.Refuse(true)
	proxy.Sever()
	run.cancel()
	next <- struct{}{}
	if s := get(t, ends, "the worker gives up"); s.Outcome != signalbox.OutcomeUnknown || s.Asked != signalbox.OutcomeCompleted {
		t.Errorf("%+v", s)
	}
	if err := run.wait(); err == nil {
		t.Error("Run returned nil")
	}
}

// If a function panics, that is logged, and the worker continues.
func TestOnSettledPanics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		signalbox.OnSettled(ctx, func(signalbox.Settled) { panic("boom") })
		return nil
	})
	r.start(w)
	for n := range 3 {
		id := r.addOne(signalbox.Job{})
		r.completed(n + 1)
		if n == 0 {
			redistest.Eventually(t, func() bool { return r.log.count("WARN", "panicked", "boom", id) == 1 }, "it is logged")
		}
	}
	r.until("all are settled", func(c looks.Counts) bool { return c.Running == 0 })
}
