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

// A verdict has the result of a job that has completed, through the job's codec, and none of another.
func TestResult(t *testing.T) {
	t.Parallel()
	for _, codec := range []signalbox.Codec{nil, backwards{true}} {
		jobs := signalboxtest.New(t)
		w, err := worker.New(jobs.Client(), worker.Config{Logger: silent, Codecs: []signalbox.Codec{backwards{true}}})
		if err != nil {
			t.Fatal(err)
		}
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in note) error {
			if in.N == 0 {
				return nil
			}
			err := signalbox.SetResult(ctx, note{in.N + 1})
			if job.Attempt == 1 {
				err = errors.Join(err, errors.New("once more"))
			}
			return err
		}, worker.Retry(worker.Constant(0)))
		s, err := scheduler.New(jobs.Client(), scheduler.Config{Logger: silent, Codec: codec})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 41} {
			if _, err := s.Enqueue(t.Context(), note{n}); err != nil {
				t.Fatal(err)
			}
		}
		all := jobs.WorkAll(t.Context(), w)
		if len(all) != 3 {
			t.Fatalf("%d deliveries: %+v", len(all), all)
		}
		for i, v := range all {
			var got note
			found, err := v.Result(&got)
			if want := i == 2; found != want || err != nil || want && got.N != 42 {
				t.Errorf("delivery %d, %s: %v, %+v, %v", i, v.Outcome, found, got, err)
			}
		}
		if found, err := all[2].Result(new(chan int)); !found || err == nil {
			t.Errorf("into another type: %v, %v", found, err)
		}
	}
}
