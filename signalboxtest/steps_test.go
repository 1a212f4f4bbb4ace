package signalboxtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

type stepped struct{}

func (stepped) Kind() string { return "stepped" }

// Steps and checkpoints of a handler go from one delivery to the next without Redis.
func TestSteps(t *testing.T) {
	t.Parallel()
	jobs := signalboxtest.New(t)
	w, err := worker.New(jobs.Client(), worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	calls, deliveries := 0, 0
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ stepped) error {
		deliveries++
		at := 0
		if found, err := signalbox.Resume(ctx, &at); err != nil || found != (deliveries > 1) || at != deliveries-1 {
			return signalbox.Dead(errors.Join(err, errors.New("the checkpoint is wrong")))
		}
		n, err := signalbox.Step(ctx, "count", func(context.Context) (int, error) { calls++; return 41 + calls, nil })
		if err != nil || n != 42 {
			return signalbox.Dead(errors.Join(err, errors.New("the step is wrong")))
		}
		signalbox.Progress(ctx, deliveries, 3, "deliveries")
		if err := signalbox.Checkpoint(ctx, deliveries); err != nil || deliveries == 3 {
			return err
		}
		if deliveries == 1 {
			return signalbox.Snooze(0)
		}
		return errors.New("once more")
	}, worker.Retry(worker.Constant(0)))
	s, err := scheduler.New(jobs.Client(), scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Enqueue(t.Context(), stepped{}); err != nil {
		t.Fatal(err)
	}
	all := jobs.WorkAll(t.Context(), w)
	if len(all) != 3 || all[2].Outcome != signalbox.OutcomeCompleted || calls != 1 {
		t.Errorf("%d deliveries, %d calls of the step: %+v", len(all), calls, all)
	}
}
