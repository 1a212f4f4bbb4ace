package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// shown returns what the queue has of a job.
func (r *rig) shown(id string) looks.View {
	r.Helper()
	v, _, found, err := r.queue.Looks().Show(context.Background(), id)
	if err != nil || !found {
		r.Fatalf("job %s: found %v, %v", id, found, err)
	}
	return v
}

// The last result of the delivery that completes a job is kept with the job. One of a delivery that ended in another way is gone, and so is that of an earlier run.
func TestResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	deliveries := 0
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		deliveries++
		job.ID, job.Encoding, job.Payload = "another", "another", nil // its own copy
		switch deliveries {
		case 1:
			return errors.Join(signalbox.SetResult(ctx, "of an attempt that fails"), errBoom)
		case 2:
			if err := signalbox.SetResult(ctx, "of a delivery that is snoozed"); err != nil {
				return err
			}
			return signalbox.Snooze(0)
		case 4: // says nothing
			return nil
		case 5:
			return errors.Join(signalbox.SetResult(ctx, "of an attempt that dies"), signalbox.Dead(errBoom))
		}
		return errors.Join(signalbox.SetResult(ctx, 1), signalbox.SetResult(ctx, map[string]int{"Rows": 7}))
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	r.start(w)
	id := r.addOne(signalbox.Job{Retain: time.Hour})
	again := func() {
		t.Helper()
		if _, err := r.queue.Do(context.Background(), store.RunJobs(time.Time{}), []string{id}); err != nil {
			t.Fatal(err)
		}
	}
	r.completed(1)
	if v := r.shown(id); string(v.Result) != `{"Rows":7}` {
		t.Errorf("the result is %q", v.Result)
	}
	again()
	r.completed(2)
	if v := r.shown(id); v.Result != nil || v.Success == nil {
		t.Errorf("completed by %+v; a run that set no result has %q", v.Success, v.Result)
	}
	again()
	r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	if v := r.shown(id); v.Result != nil {
		t.Errorf("a dead job has the result %q", v.Result)
	}
	again()
	r.completed(3)
	if v := r.shown(id); string(v.Result) != `{"Rows":7}` {
		t.Errorf("after it was dead, the result is %q", v.Result)
	}
}

// A result that can't be one is an error, and leaves the one before. After the end of the handler, and outside of one, nothing is set.
func TestResultErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	errs := make(chan [3]error, 1)
	var late context.Context
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		late = ctx
		largest := strings.Repeat("x", signalbox.MaxResult-2) // and two quotes
		errs <- [3]error{signalbox.SetResult(ctx, largest), signalbox.SetResult(ctx, largest+"x"), signalbox.SetResult(ctx, func() {})}
		return nil
	})
	r.start(w)
	id := r.addOne(signalbox.Job{Retain: time.Hour})
	r.completed(1)
	got := <-errs
	if got[0] != nil || !errors.Is(got[1], signalbox.ErrResultSize) || got[2] == nil || strings.Contains(got[1].Error(), "xx") {
		t.Errorf("%v", got)
	}
	if v := r.shown(id); len(v.Result) != signalbox.MaxResult {
		t.Errorf("the result has %d bytes", len(v.Result))
	}
	if err := signalbox.SetResult(late, 1); !errors.Is(err, signalbox.ErrSuperseded) {
		t.Errorf("after the end of the delivery: %v", err)
	}
	if err := signalbox.SetResult(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "not that of a handler") {
		t.Errorf("outside of a handler: %v", err)
	}
}

// A job that isn't kept leaves nothing, with a result as without. One that was cancelled while it ran ends cancelled, without its result.
func TestResultIsDropped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	running, let := make(chan struct{}), make(chan struct{})
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		err := signalbox.SetResult(ctx, "secret")
		if job.Retain > 0 {
			running <- struct{}{}
			<-let
		}
		return err
	})
	r.start(w)
	id := r.addOne(signalbox.Job{})
	r.completed(1)
	if r.rdb.HExists(context.Background(), r.key("jobs"), id).Val() {
		t.Error("a job that nobody keeps has a record")
	}
	id = r.addOne(signalbox.Job{Retain: time.Hour})
	get(t, running, "the job runs")
	r.cancel(id)
	close(let)
	r.cancelled(1)
	if v := r.shown(id); v.Result != nil || strings.Contains(r.rdb.HGet(context.Background(), r.key("jobs"), id).Val(), "secret") {
		t.Errorf("it is %s, with the result %q", v.State, v.Result)
	}
}
