package worker_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker's handler for all other kinds gets each job that no other handler is for, with its own options. Metrics have one kind for all of them.
func TestHandleOthers(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	reader := sdkmetric.NewManualReader()
	cfg := r.config(1)
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := r.workerWith(cfg)
	ran := make(chan string, 10)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- "task"
		return nil
	})
	w.HandleOthers(signalbox.HandlerFunc(func(_ context.Context, job *signalbox.Job) error {
		ran <- job.Kind
		if job.Kind == "fails" {
			return errors.New("boom")
		}
		return nil
	}), worker.Retry(func(int, error) time.Duration { return time.Hour }))
	r.add(signalbox.Job{}, signalbox.Job{Kind: "a"}, signalbox.Job{Kind: "b"}, signalbox.Job{Kind: "fails"})
	run := r.start(w)
	r.until("all have run", func(c looks.Counts) bool { return c.Total.Completed == 3 && c.Due == 1 && c.Total.Retried == 1 })
	run.stop()
	close(ran)
	var kinds []string
	for kind := range ran {
		kinds = append(kinds, kind)
	}
	if got := strings.Join(kinds, " "); got != "task a b fails" {
		t.Errorf("handlers ran for %s", got)
	}
	for name, want := range map[string]map[string]int64{
		"signalbox.jobs.settled":             {"task completed": 1, "_OTHER completed": 2, "_OTHER retried": 1},
		"messaging.client.consumed.messages": {"task ": 1, "_OTHER ": 3},
	} {
		got := make(map[string]int64)
		for set, n := range sums(t, reader, name) {
			kind, _ := set.Value("signalbox.job.kind")
			outcome, _ := set.Value("signalbox.job.outcome")
			got[kind.AsString()+" "+outcome.AsString()] += n
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// What is wrong in a program is found when it starts.
func TestHandleOthersPanics(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	done := signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil })
	for what, register := range map[string]func(w *worker.Worker){
		"a nil handler":                         func(w *worker.Worker) { w.HandleOthers(nil) },
		"HandleOthers: a handler is registered": func(w *worker.Worker) { w.HandleOthers(done); w.HandleOthers(done) },
		"HandleOthers with Strict":              func(w *worker.Worker) { w.HandleOthers(done, worker.Strict()) },
		"with a nil option":                     func(w *worker.Worker) { w.HandleOthers(done, nil) },
		"with UpTo for kind * (HandleOthers)":   func(w *worker.Worker) { w.HandleOthers(done, worker.UpTo(3, time.Second)) },
	} {
		func() {
			defer func() {
				if p, _ := recover().(string); !strings.Contains(p, what) {
					t.Errorf("%s: %q", what, p)
				}
			}()
			register(r.workerWith(r.config(1)))
		}()
	}
}

// A worker may have this handler alone.
func TestHandleOthersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerWith(r.config(1))
	w.HandleOthers(signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }))
	r.start(w)
	r.addOne(signalbox.Job{Kind: "any"})
	r.completed(1)
}
