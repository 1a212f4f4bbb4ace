package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// The lease is long. If something happens at once in these tests, the end of a lease is not the reason.
func (r *rig) patient(slots int) worker.Config {
	cfg := r.config(slots)
	cfg.SessionTTL = 30 * time.Second
	return cfg
}

func TestDrainWaitsForHandlers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(3)
	running := make(chan struct{}, 3)
	release, open := r.gate()
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		running <- struct{}{}
		<-release
		if ctx.Err() != nil {
			t.Errorf("a handler's context ended during the drain: %v", context.Cause(ctx))
		}
		if job.Attempt == 1 && job.ID == "fails" {
			return errBoom
		}
		return nil
	}, worker.Retry(soon))
	run := r.start(w)
	r.add(signalbox.Job{ID: "fails"}, signalbox.Job{}, signalbox.Job{})
	for range 3 {
		get(t, running, "the jobs run")
	}
	r.add(signalbox.Job{ID: "late"})
	run.cancel()
	select {
	case <-run.done:
		t.Error("Run returned while handlers ran")
	case <-time.After(500 * time.Millisecond):
	}
	open()
	run.stop()
	// Everything that ended before Run returned was settled.
	if c := r.counts(); c.Total.Completed != 2 || c.Total.Retried != 1 || c.Running != 0 || c.Ready+c.Due != 2 || c.Total.Crashed != 0 {
		t.Errorf("counts %+v; want 2 completed, 1 retried, 2 waiting", c)
	}
}

// A job that doesn't end within the drain timeout is given back. Another worker gets it at once.
func TestDrainGivesJobsBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient(5)
	cfg.DrainTimeout = 100 * time.Millisecond
	leaving := r.workerWith(cfg)
	running, causes := make(chan struct{}, 5), make(chan error, 5)
	worker.Handle(leaving, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		running <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	run := r.start(leaving)
	r.add(make([]signalbox.Job, 5)...)
	for range 5 {
		get(t, running, "the jobs run")
	}

	staying := r.workerWith(r.patient(5))
	again := make(chan signalbox.Job, 5)
	worker.Handle(staying, func(_ context.Context, job *signalbox.Job, _ task) error {
		again <- *job
		return nil
	})
	r.start(staying)
	begin := time.Now()
	run.stop()
	for range 5 {
		if err := get(t, causes, "a context ends"); !errors.Is(err, signalbox.ErrShutdown) {
			t.Errorf("cause %v, want ErrShutdown", err)
		}
		if job := get(t, again, "the other worker has the job"); job.Attempt != 1 || job.Crashes != 0 || job.LastError != "" {
			t.Errorf("given back as %+v", job)
		}
	}
	if d := time.Since(begin); d > prompt {
		t.Errorf("they ran elsewhere after %v, want about 0.1 s", d)
	}
	r.completed(5)
}

// A handler that ignores the end of its context keeps its job, and Run waits for it.
func TestDrainKeepsTheLeaseOfAStubbornHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.short(1)
	cfg.DrainTimeout = -1
	leaving := r.workerWith(cfg)
	begun, ended := make(chan struct{}), make(chan struct{})
	release, open := r.gate()
	worker.Handle(leaving, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		close(begun)
		<-ctx.Done()
		close(ended)
		<-release
		return nil
	})
	run := r.start(leaving)
	r.addOne(signalbox.Job{})
	get(t, begun, "the job runs")
	run.cancel()
	get(t, ended, "the handler's context ends")

	wait := r.renewals()
	staying := r.workerWith(r.config(1))
	var copies atomic.Int32
	worker.Handle(staying, func(context.Context, *signalbox.Job, task) error {
		copies.Add(1)
		return nil
	})
	stays := r.start(staying)
	wait()
	redistest.Eventually(t, func() bool { return r.log.count("the worker is ready") == 2 }, "the other works")
	if isClosed(run.done) {
		t.Error("Run returned before the handler")
	}
	if copies.Load() != 0 {
		t.Error("a second copy of the job ran beside the first")
	}
	if r.log.count("WARN", "ignore that their context has ended", "task") == 0 {
		t.Error("the log doesn't tell of the handler")
	}
	open()
	run.stop()
	r.completed(1)
	stays.stop()
	if copies.Load() != 0 {
		t.Error("the job ran twice though its handler completed it")
	}
}

func TestIdleWorkerStopsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cfg := r.patient(5)
	for range 3 {
		cfg.Queues[redistest.Name(t)] = worker.Queue{}
	}
	w := r.workerWith(cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	for range 3 {
		run := r.start(w)
		r.idle()
		begin := time.Now()
		run.stop()
		if d := time.Since(begin); d > prompt {
			t.Errorf("an idle worker took %v to stop", d)
		}
	}
	if n := r.rdb.ZCard(context.Background(), r.key("sessions")).Val(); n != 0 {
		t.Errorf("%d sessions are left", n)
	}
	if lanes := r.rdb.Keys(context.Background(), r.key("lane:*")).Val(); len(lanes) > 0 {
		t.Errorf("lanes are left: %v", lanes)
	}
}

// idle waits until a worker of the queue has nothing to do.
func (r *rig) idle() {
	r.Helper()
	r.idleClients(1)
}

// idleClients waits until n workers are registered to be woken.
func (r *rig) idleClients(n int) {
	r.Helper()
	r.until("workers wait for work", func(looks.Counts) bool {
		return r.rdb.ZCard(context.Background(), r.key("idle")).Val() >= int64(n)
	})
}

// A worker that is woken while it stops passes the wake-up on.
func TestWakeUpOfAStoppingWorkerWakesAnother(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	handle := func(ran chan<- struct{}) func(context.Context, *signalbox.Job, task) error {
		return func(context.Context, *signalbox.Job, task) error {
			ran <- struct{}{}
			return nil
		}
	}

	// Redis wakes the worker that has waited longest: the one that stops.
	stopping, other := make(chan struct{}, 1), make(chan struct{}, 1)
	first := r.workerOn(proxy.Client(), r.patient(1))
	worker.Handle(first, handle(stopping))
	run := r.start(first)
	r.idleClients(1)
	second := r.workerWith(r.patient(1))
	worker.Handle(second, handle(other))
	r.start(second)
	r.idleClients(2)

	proxy.Pause()
	r.addOne(signalbox.Job{})
	if n := r.rdb.ZCard(context.Background(), r.key("idle")).Val(); n != 1 {
		t.Errorf("%d workers are still idle, want the second one", n)
	}
	run.cancel()
	begin := time.Now()
	proxy.Resume()
	select {
	case <-other:
	case <-stopping: // its claim was on the way
	case <-time.After(patience):
		t.Fatal("nobody runs the job")
	}
	if d := time.Since(begin); d > prompt {
		t.Errorf("the job ran after %v: the wake-up was lost, and a fallback found the job", d)
	}
	run.stop()
	r.completed(1)
}

// Workers start and stop while jobs come one by one. No job waits for a fallback.
func TestWorkersComeAndGo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ran := make(chan struct{}, 1)
	newRun := func() *run {
		w := r.workerWith(r.patient(2))
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
			ran <- struct{}{}
			return nil
		})
		return r.start(w)
	}
	staying := newRun()
	worst := time.Duration(0)
	const n = 40
	for range n {
		leaving := newRun()
		<-time.After(time.Millisecond * 5)
		go leaving.cancel()
		begin := time.Now()
		r.addOne(signalbox.Job{})
		get(t, ran, "the job runs")
		worst = max(worst, time.Since(begin))
		leaving.stop()
	}
	if worst > prompt {
		t.Errorf("a job waited for %v", worst)
	}
	r.completed(n)
	staying.stop()
}

// Redis goes away for good while jobs run. Run returns the number of outcomes that could not be reported.
func TestDrainWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := newRig(t)
	proxy := redistest.NewProxy(t, server.Addr())
	cfg := r.short(4)
	cfg.DrainTimeout = 100 * time.Millisecond
	w := r.workerOn(proxy.Client(), cfg)
	running := make(chan struct{}, 4)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		running <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	})
	run := r.start(w)
	r.add(make([]signalbox.Job, 4)...)
	for range 4 {
		get(t, running, "the jobs run")
	}
	proxy.Refuse(true)
	proxy.Sever()
	run.cancel()
	err := run.wait()
	if err == nil || !strings.Contains(err.Error(), r.name()) || !strings.Contains(err.Error(), "the deliveries of 4 jobs ended") {
		t.Errorf("Run = %v, want an error that names the queue and 4 jobs", err)
	}

	again := r.workerWith(r.config(4))
	worker.Handle(again, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(again)
	r.completed(4)
}
