package worker_test

import (
	"context"
	"slices"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// stop asks a worker to end.
func (r *rig) stop(w *worker.Worker) {
	r.Helper()
	if changed, err := r.inspector().Stop(context.Background(), w.ID()); !changed || err != nil {
		r.Fatalf("changed %v, %v", changed, err)
	}
}

// A worker that drains, as after SIGTERM, is shown as one that stops, like one that an operator has stopped. Its log doesn't blame an operator.
func TestDrainIsShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(2)
	running := make(chan struct{}, 1)
	release, open := r.gate()
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, a task) error {
		if a.N == 1 {
			running <- struct{}{}
			<-release
		}
		return nil
	})
	run := r.start(w)
	r.addOne(signalbox.Job{Payload: []byte(`{"n":1}`)})
	get(t, running, "a handler runs")
	shown := func(what string, want bool) {
		t.Helper()
		redistest.Eventually(t, func() bool {
			s, err := r.queue.Settings().Read(t.Context())
			return err == nil && slices.Contains(s.Stopping, w.ID()) == want && slices.Contains(s.Quiet, w.ID()) == want
		}, "%s", what)
	}
	shown("it isn't shown as stopping", false)
	run.cancel()
	shown("it is shown as stopping", true)
	open()
	if err := run.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if s, err := r.queue.Settings().Read(t.Context()); err != nil || len(s.Stopping)+len(s.Quiet) > 0 {
		t.Errorf("after its end: %+v, %v", s, err)
	}
	if n := r.log.count("asked to stop") + r.log.count("is quiet"); n > 0 {
		t.Error("the log says that somebody has stopped the worker")
	}
}

// A worker that an operator stops ends as at the end of Run's context: also with all slots taken, and with all of its queues. Run returns nil. Nothing of it stays in Redis.
func TestStopWorker(t *testing.T) {
	t.Parallel()
	r, second := newRig(t), newRig(t)
	cfg := r.config(1)
	cfg.Queues[second.name()] = worker.Queue{Concurrency: 1}
	w, other := r.workerWith(cfg), r.workerWith(cfg)
	ran := make(chan string, 10)
	running := make(chan struct{}, 1)
	release, open := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		running <- struct{}{}
		<-release
		if ctx.Err() != nil {
			t.Error("the handler's context has ended")
		}
		ran <- w.ID()
		return nil
	})
	run := r.start(w)
	r.addOne(signalbox.Job{})
	get(t, running, "the only slot is taken")
	r.stop(w)
	r.ails(w, health.Draining, health.Unready)
	r.log.says(t, "this worker was asked to stop")
	for _, r := range []*rig{r, second} {
		r.addOne(signalbox.Job{})
	}
	worker.Handle(other, func(context.Context, *signalbox.Job, task) error {
		ran <- other.ID()
		return nil
	})
	r.start(other)
	for range 2 {
		if id := get(t, ran, "the other worker takes the jobs"); id != other.ID() {
			t.Errorf("%s runs one", id)
		}
	}
	open()
	if err := run.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
	if id := get(t, ran, "its job has ended"); id != w.ID() {
		t.Errorf("%s had it", id)
	}
	r.completed(2)
	second.completed(1)
	if report := w.Health(); len(report.Problems) != 1 || !has(report, health.NotRunning, health.Unready) {
		t.Errorf("%+v", report)
	}
	for _, r := range []*rig{r, second} {
		if s, err := r.queue.Settings().Read(context.Background()); err != nil || len(s.Quiet)+len(s.Stopping) != 0 {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

// A worker whose queue is paused hears it, and may run again.
func TestStopOfAPausedQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	ran := r.reporter(w)
	run := r.start(w)
	r.idle()
	r.set(r.inspector().Pause)
	redistest.Eventually(t, func() bool { return r.log.count("the queue is paused") == 1 }, "the worker hears of the pause")
	r.stop(w)
	if err := run.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
	r.set(r.inspector().Resume)
	r.start(w)
	r.works(ran, "it works again")
}

// A worker without a subscription hears it at a renewal.
func TestStopWithoutASubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Reply(redistest.Command("SUBSCRIBE"), "-ERR not now", -1)
	w := r.workerOn(proxy.Client(), r.short(1))
	ran := r.reporter(w)
	run := r.start(w)
	r.works(ran, "a job runs")
	r.until("it is settled", func(c looks.Counts) bool { return c.Running == 0 })
	r.stop(w)
	if err := run.wait(); err != nil {
		t.Errorf("Run = %v", err)
	}
}
