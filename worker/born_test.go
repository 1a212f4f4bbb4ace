package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A job that was given a delay has, in each delivery, the time when it was to run first. Its due time changes with each retry. A job without a delay has none.
func TestBorn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	deliveries := make(chan signalbox.Job, 3)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		deliveries <- *job
		if job.ID == "later" && job.Attempt == 1 {
			return errors.New("once more")
		}
		return nil
	}, worker.Retry(worker.ExponentialJitter(time.Millisecond, time.Millisecond)))
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	for id, opts := range map[string][]scheduler.EnqueueOption{"now": nil, "later": {scheduler.After(50 * time.Millisecond)}, "past": {scheduler.At(before.Add(-time.Hour))}} {
		if _, err := s.Enqueue(t.Context(), task{}, append(opts, scheduler.Queue(r.name()), scheduler.ID(id))...); err != nil {
			t.Fatal(err)
		}
	}
	after := time.Now()
	r.start(w)
	var born []time.Time
	for range 4 {
		job := get(t, deliveries, "a job runs")
		if job.ID != "later" {
			if !job.Born.IsZero() {
				t.Errorf("job %s has %v", job.ID, job.Born)
			}
			continue
		}
		born = append(born, job.Born)
	}
	r.completed(3)
	first := born[0].Add(-50 * time.Millisecond)
	if len(born) != 2 || !born[0].Equal(born[1]) || first.Before(before.Truncate(time.Microsecond)) || first.After(after) {
		t.Errorf("it is %v, and it was enqueued from %v to %v", born, before, after)
	}
}
