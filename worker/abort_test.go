package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// A handler hears of a shutdown at once. Its context continues.
func TestHandlersHearOfADrain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient(2)
	cfg.DrainTimeout = time.Hour
	w := r.workerWith(cfg)
	began := make(chan struct{}, 2)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		draining := signalbox.Draining(ctx)
		select {
		case <-draining:
			t.Error("it says so before the worker was asked to stop")
		default:
		}
		began <- struct{}{}
		get(t, draining, "the handler hears of the shutdown")
		if ctx.Err() != nil {
			t.Errorf("its context has ended: %v", context.Cause(ctx))
		}
		if job.ID == "hands-over" {
			return signalbox.Snooze(0)
		}
		return nil
	})
	r.add(signalbox.Job{}, signalbox.Job{ID: "hands-over"})
	run := r.start(w)
	get(t, began, "a job runs")
	get(t, began, "both run")
	run.stop()
	if c := r.counts(); c.Total.Completed != 1 || c.Ready+c.Due != 1 || c.Total.Retried != 0 {
		t.Errorf("counts %+v, want one completed, and one that was handed over", c)
	}
}

// When handlers hear of a shutdown they may enqueue jobs. Other workers get these jobs: the handlers' own worker claims nothing more.
func TestHandedOverInADrain(t *testing.T) {
	t.Parallel()
	const n = 100
	r := newRig(t)
	cfg := r.patient(n)
	cfg.DrainTimeout = time.Hour
	w := r.workerWith(cfg)
	began := make(chan struct{}, 10*n)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		began <- struct{}{}
		<-signalbox.Draining(ctx)
		return signalbox.Snooze(0)
	})
	r.add(make([]signalbox.Job, n)...)
	run := r.start(w)
	for range n {
		get(t, began, "all jobs run")
	}
	run.stop()
	if c := r.counts(); len(began) != 0 || c.Total.Delayed != n || c.Ready+c.Due != n {
		t.Errorf("%d jobs were claimed again; counts %+v", len(began), c)
	}
}

// A hard stop ends the handlers' contexts at once, before a drain and during one.
func TestAbort(t *testing.T) {
	t.Parallel()
	for name, drains := range map[string]bool{"while it works": false, "while it drains": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.patient(1)
			cfg.DrainTimeout = 30 * time.Second // longer than patience
			w := r.workerWith(cfg)
			w.Abort() // does nothing yet
			began := make(chan struct{})
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
				close(began)
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, signalbox.ErrShutdown) {
					t.Errorf("the context's cause is %v", cause)
				}
				return ctx.Err()
			})
			r.addOne(signalbox.Job{})
			run := r.start(w)
			get(t, began, "the job runs")
			if drains {
				run.cancel()
				redistest.Eventually(t, func() bool { return r.log.count("stopping") == 1 }, "the worker drains")
			}
			w.Abort()
			w.Abort()
			if err := run.wait(); err != nil {
				t.Errorf("Run = %v", err)
			}
			w.Abort()
			if c := r.counts(); c.Ready != 1 || c.Total.Returned != 1 {
				t.Errorf("counts %+v, want the job given back", c)
			}
		})
	}
}

// If Redis is away, a hard stop doesn't wait for it, however long the drain timeout and the lease are.
func TestAbortWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	cfg := r.config(1)
	cfg.SessionTTL, cfg.DrainTimeout = time.Hour, time.Hour
	w := r.workerOn(proxy.Client(), cfg)
	began := make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	})
	r.addOne(signalbox.Job{})
	run := r.start(w)
	get(t, began, "the job runs")
	proxy.Pause()
	defer proxy.Resume()
	w.Abort()
	if err := run.wait(); err == nil || !strings.Contains(err.Error(), "the delivery of 1 job ended") {
		t.Errorf("Run = %v, want an error that says what was not delivered", err)
	}
}

// A worker that has nothing to report stops at once, even if Redis is away and the drain timeout is long.
func TestIdleWorkerStopsWithoutRedis(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	cfg := r.config(1)
	cfg.SessionTTL, cfg.DrainTimeout = time.Hour, time.Hour
	w := r.workerOn(proxy.Client(), cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	defer w.Abort()
	run := r.start(w)
	r.ready()
	proxy.Refuse(true)
	proxy.Sever()
	// A claim fails, or the first sweep fails and makes a lane claim. The log reports either once a minute.
	redistest.Eventually(t, func() bool { return r.log.count("Redis is away") > 0 }, "a call fails")
	run.stop()
	proxy.Refuse(false)
}

// A worker whose client was closed can do nothing more. It reports that and ends, instead of trying for ever.
func TestClosedClientEndsRun(t *testing.T) {
	t.Parallel()
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), ContextTimeoutEnabled: true})
		_ = rdb.Close()
		w := r.workerOn(rdb, r.config(1))
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
		if err := r.start(w).wait(); !errors.Is(err, redis.ErrClosed) {
			t.Errorf("Run = %v", err)
		}
	})
	t.Run("while a job runs", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr(), ContextTimeoutEnabled: true})
		w := r.workerOn(rdb, r.patient(2))
		began := make(chan struct{})
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
			close(began)
			<-ctx.Done()
			return context.Cause(ctx)
		})
		run := r.start(w)
		r.addOne(signalbox.Job{})
		get(t, began, "the job runs")
		_ = rdb.Close()
		r.addOne(signalbox.Job{ID: "next"}) // has the worker make a call
		err := run.wait()
		if !errors.Is(err, redis.ErrClosed) || !strings.Contains(err.Error(), "was closed while Run") {
			t.Errorf("Run = %v", err)
		}
	})
}

// If Redis is away, a worker with finished jobs to report waits a limited time, not until its lease ends.
func TestDrainWithoutRedisIsBounded(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(p *redistest.Proxy){
		"held":    (*redistest.Proxy).Pause,
		"refused": func(p *redistest.Proxy) { p.Refuse(true); p.Sever() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
			cfg := r.config(1)
			cfg.SessionTTL, cfg.DrainTimeout = 40*time.Second, -1 // twice as long as patience
			w := r.workerOn(proxy.Client(), cfg)
			began := make(chan struct{})
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
				close(began)
				<-ctx.Done()
				return nil
			})
			r.addOne(signalbox.Job{})
			run := r.start(w)
			get(t, began, "the job runs")
			away(proxy)
			run.cancel()
			if err := run.wait(); err == nil || !strings.Contains(err.Error(), "the delivery of 1 job ended") {
				t.Errorf("Run = %v, want an error that says what was not delivered", err)
			}
			proxy.Resume()
			proxy.Refuse(false)
		})
	}
}

// A call on the caller's client that is under way when the worker stops ends with that client's ReadTimeout. Run ends after it.
func TestDrainWaitsForTheCallUnderWay(t *testing.T) {
	t.Parallel()
	const readTimeout = 4 * time.Second // longer than Run waits for a Redis that is away
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	cfg := r.config(1)
	cfg.DrainTimeout = -1
	w := r.workerOn(proxy.ClientWith(func(o *redis.UniversalOptions) { o.ReadTimeout = readTimeout }), cfg)
	wait, open := r.gate()
	began := make(chan struct{})
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		close(began)
		<-wait
		return nil
	})
	r.addOne(signalbox.Job{})
	run := r.start(w)
	get(t, began, "the job runs")
	held, free := proxy.HoldReplies(r.isClaim())
	defer free()
	start := time.Now()
	open()
	get(t, held, "the worker reports the job")
	run.cancel()
	err := run.wait()
	if took := time.Since(start); took < readTimeout || err == nil || !strings.Contains(err.Error(), "the delivery of 1 job ended") {
		t.Errorf("Run = %v after %v, want an error after %v or more", err, took, readTimeout)
	}
}
