package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker keeps a completed job whose record says so, in a queue that keeps none. It keeps none whose record says that, in a queue that keeps
// them. A dead one that isn't kept is reported all the same.
func TestJobsSayHowLongTheyAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	cfg, dead := r.config(1), make(chan worker.Failure, 1)
	cfg.OnDead = func(_ context.Context, f worker.Failure) { dead <- f }
	w := r.workerWith(cfg)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.MaxAttempts == 1 {
			return errors.New("boom")
		}
		job.Retain = -job.Retain // it is the handler's own
		return nil
	})
	run := r.start(w)
	kept := r.addOne(signalbox.Job{Retain: time.Hour})
	r.addOne(signalbox.Job{})
	r.completed(2)
	view, _, found, err := r.queue.Looks().Show(ctx, kept)
	if err != nil || !found || view.State != signalbox.StateCompleted || view.Success == nil || view.Success.Worker != w.ID() {
		t.Errorf("it is %s, completed by %+v, %v", view.State, view.Success, err)
	}
	if got := r.counts(); got.Completed != 1 {
		t.Errorf("%d completed jobs are kept", got.Completed)
	}
	id := r.addOne(signalbox.Job{MaxAttempts: 1, Retain: signalbox.RetainNone})
	if f := <-dead; f.Job.ID != id || f.Err == nil {
		t.Errorf("OnDead was told of %s: %v", f.Job.ID, f.Err)
	}
	if got := r.counts(); got.Dead != 0 || got.Total.Dead != 1 {
		t.Errorf("%d dead jobs are kept, and %d are counted", got.Dead, got.Total.Dead)
	}
	run.stop()

	if err := r.queue.Settings().SetCompleted(ctx, signalbox.Retention{Jobs: 1000}); err != nil {
		t.Fatal(err)
	}
	w2 := r.worker(1)
	worker.Handle(w2, func(context.Context, *signalbox.Job, task) error { return nil })
	run = r.start(w2)
	r.addOne(signalbox.Job{Retain: signalbox.RetainNone})
	r.addOne(signalbox.Job{})
	r.completed(4)
	if got := r.counts(); got.Completed != 2 {
		t.Errorf("%d completed jobs are kept; want the one from before, and the plain one", got.Completed)
	}
	run.stop()
}
