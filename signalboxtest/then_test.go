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

type paid struct {
	Order int `json:"order"`
}

func (paid) Kind() string { return "paid" }

type thanks struct {
	Order int `json:"order"`
}

func (thanks) Kind() string { return "thanks" }

// The follow-ups of a handler are enqueued when its job completes, and WorkAll works them.
func TestThen(t *testing.T) {
	t.Parallel()
	jobs := signalboxtest.New(t)
	w, err := worker.New(jobs.Client(), worker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in paid) error {
		if err := scheduler.Then(ctx, thanks(in)); err != nil {
			return signalbox.Dead(err)
		}
		if job.Attempt == 1 {
			return errors.New("once more")
		}
		return nil
	}, worker.Retry(worker.Constant(0)))
	var got []int
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in thanks) error {
		got = append(got, in.Order)
		return nil
	})
	s, err := scheduler.New(jobs.Client(), scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	res, err := s.Enqueue(t.Context(), paid{Order: 7})
	if err != nil {
		t.Fatal(err)
	}
	first := jobs.Work(t.Context(), w, jobs.Enqueued()[0])
	if first.Outcome != signalbox.OutcomeRetried || len(jobs.Enqueued()) != 1 {
		t.Errorf("job %s: %v, and %d jobs were enqueued", res.ID, first, len(jobs.Enqueued()))
	}
	if second := jobs.Work(t.Context(), w, first.Next); second.Outcome != signalbox.OutcomeCompleted {
		t.Errorf("its second attempt: %v", second)
	}
	if next := signalboxtest.One[thanks](jobs); next.Args.Order != 7 || next.Job.Queue != "default" {
		t.Errorf("it is followed by %+v", next)
	}
	if all := jobs.WorkAll(t.Context(), w); len(all) != 1 || len(got) != 1 || got[0] != 7 {
		t.Errorf("%v, handled: %v", all, got)
	}
}
