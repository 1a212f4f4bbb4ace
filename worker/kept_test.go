package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/settings"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker keeps completed jobs while the queue's settings say so. It hears of a change at once, by a message.
func TestCompletedJobsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(4)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt == 1 && job.MaxAttempts == 2 {
			return errors.New("boom")
		}
		return nil
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	run := r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	if got := r.counts(); got.Completed != 0 {
		t.Fatalf("%d completed jobs are kept, and nobody has asked for it", got.Completed)
	}
	ctx := t.Context()
	if err := r.queue.Settings().SetCompleted(ctx, signalbox.Retention{Jobs: 1000}); err != nil {
		t.Fatal(err)
	}
	r.until("the worker keeps completed jobs", func(c looks.Counts) bool {
		if c.Completed == 0 {
			r.addOne(signalbox.Job{})
		}
		return c.Completed > 0
	})
	id := r.addOne(signalbox.Job{MaxAttempts: 2})
	var view looks.View
	r.until("a job is completed after a failed attempt", func(looks.Counts) bool {
		var err error
		view, _, _, err = r.queue.Looks().Show(ctx, id)
		return err == nil && view.State == signalbox.StateCompleted
	})
	a := view.Success
	if a == nil || a.Number != 2 || a.Worker != w.ID() || a.Error != "" || a.At.Before(view.Job.EnqueuedAt) || a.Ran <= 0 || a.Ran > time.Minute {
		t.Errorf("the attempt that completed it: %+v", a)
	}
	if len(view.Attempts) != 1 || view.Attempts[0].Error != "boom" {
		t.Errorf("its failed attempts: %+v", view.Attempts)
	}
	run.stop()
}

// What is set before a worker's subscription stands, it learns when the subscription does: nobody says it again.
func TestSettingsBeforeTheSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	held, let := proxy.HoldRequests(func(cmd []string) bool { return strings.EqualFold(cmd[0], "SUBSCRIBE") })
	defer let()
	w := r.workerOn(proxy.Client(), r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.addOne(signalbox.Job{})
	run := r.start(w)
	get(t, held, "the worker subscribes")
	r.completed(1) // it knows of no retention by now
	if err := r.queue.Settings().SetCompleted(t.Context(), signalbox.Retention{Jobs: 1000}); err != nil {
		t.Fatal(err)
	}
	let()
	r.until("the worker keeps completed jobs", func(c looks.Counts) bool {
		if c.Completed == 0 {
			r.addOne(signalbox.Job{})
		}
		return c.Completed > 0
	})
	run.stop()
}

// A worker that starts knows from its first job on whether completed jobs are kept, as an operator has set it since the last Config.
func TestCompletedRetentionOfConfig(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := t.Context()
	if _, err := r.queue.Settings().Tell(ctx, "another", settings.Wanted{Completed: signalbox.Retention{Jobs: 5}}); err != nil {
		t.Fatal(err)
	}
	if err := r.queue.Settings().SetCompleted(ctx, signalbox.Retention{Jobs: 2}); err != nil {
		t.Fatal(err)
	}
	start := func(c signalbox.Retention) *run {
		cfg := r.config(1)
		q := cfg.Queues[r.queue.Name()]
		q.CompletedRetention = c
		cfg.Queues[r.queue.Name()] = q
		w := r.workerWith(cfg)
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
		return r.start(w)
	}
	for range 3 {
		r.addOne(signalbox.Job{})
	}
	running := start(signalbox.Retention{Jobs: 5})
	r.completed(3)
	running.stop()
	if got := r.counts(); got.Completed != 2 {
		t.Errorf("%d jobs are kept, want those of the settings", got.Completed)
	}
}
