package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A seen is what BatchStatusOf has returned to a handler.
type seen struct {
	by  string
	st  scheduler.BatchStatus
	err error
}

// look returns what BatchStatusOf returns, without its times.
func look(ctx context.Context, by string) seen {
	st, err := scheduler.BatchStatusOf(ctx)
	st.CreatedAt, st.EndedAt, st.SealBy, st.EndBy = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return seen{by, st, err}
}

// Members and callbacks of a batch see how it is. A job of no batch sees that it is of none.
func TestBatchStatusOf(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	looks := make(chan seen, 10)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in task) error {
		switch in.N {
		case 0:
			looks <- look(ctx, "member")
		case 1:
			return signalbox.Dead(errBoom)
		case 2:
			return signalbox.Cancel(errBoom)
		}
		return nil
	})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in report) error {
		looks <- look(ctx, in.What)
		return nil
	})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ sequel) error {
		looks <- look(ctx, "alone")
		return nil
	})
	s, ctx := r.scheduler(), t.Context()
	fails, err := s.Batch(ctx, r.name(), append(callbacks(), scheduler.FlowID("fails"))...)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := addTasks(ctx, fails, tasks(0, 4)); err != nil || n != 4 || fails.Seal(ctx) != nil {
		t.Fatal(n, err)
	}
	if _, err := s.Enqueue(ctx, sequel{}, scheduler.Queue(r.name())); err != nil {
		t.Fatal(err)
	}
	r.start(w)
	ref := scheduler.Ref{Namespace: r.queue.Namespace(), Queue: r.name(), ID: "fails"}
	want := map[string]scheduler.BatchStatus{
		"member": {Ref: ref, State: "open", Sealed: true, Total: 4, Open: 4},
		"end":    {Ref: ref, State: "over", Sealed: true, Over: true, Total: 4, Completed: 2, Dead: 1, Gone: 1},
	}
	for len(want) > 0 {
		got := get(t, looks, "a job of the batch looks")
		switch got.by {
		case "failure": // how many have ended by now, nobody knows
			if got.err != nil || got.st.Ref != ref || got.st.Total != 4 || got.st.Dead != 1 || got.st.State != "failed" && got.st.State != "over" {
				t.Errorf("failure: %+v", got)
			}
		case "alone":
			if !errors.Is(got.err, scheduler.ErrNoBatch) || got.st != (scheduler.BatchStatus{}) || !strings.Contains(got.err.Error(), "ctx") {
				t.Errorf("a job of no batch: %+v", got)
			}
		default:
			if got.err != nil || got.st != want[got.by] {
				t.Errorf("%s: %+v\nwant %+v", got.by, got, want[got.by])
			}
			delete(want, got.by)
		}
	}
	r.batchOfOne(scheduler.FlowID("works"), scheduler.OnSuccess(report{"success"}))
	got := seen{}
	for got.by != "success" {
		got = get(t, looks, "the callback of a success looks")
	}
	ref.ID = "works"
	if want := (scheduler.BatchStatus{Ref: ref, State: "over", Sealed: true, Over: true, Total: 1, Completed: 1}); got.err != nil || got.st != want {
		t.Errorf("success: %+v\nwant %+v", got, want)
	}
}

// What can't be said of a job's batch is an error: also if there is another one of its ID.
func TestBatchStatusOfErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	errs := make(chan error, 3)
	s := r.scheduler()
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ report) error {
		ended, end := context.WithCancel(ctx)
		end()
		_, err := scheduler.BatchStatusOf(ended)
		errs <- err
		r.rdb.HDel(ctx, r.key("flows"), "news") // it is forgotten, which takes a day else
		_, err = scheduler.BatchStatusOf(ctx)
		errs <- err
		if _, err := s.Batch(ctx, r.name(), scheduler.FlowID("news")); err != nil {
			t.Error(err)
		}
		_, err = scheduler.BatchStatusOf(ctx)
		errs <- err
		return nil
	})
	if st, err := scheduler.BatchStatusOf(t.Context()); !errors.Is(err, scheduler.ErrNoBatch) || st != (scheduler.BatchStatus{}) {
		t.Errorf("outside of a handler: %+v, %v", st, err)
	}
	r.batchOfOne(scheduler.FlowID("news"), scheduler.OnEnd(report{"end"}))
	r.start(w)
	if err := get(t, errs, "the callback looks"); !errors.Is(err, context.Canceled) || errors.Is(err, scheduler.ErrNoBatch) {
		t.Errorf("a context that has ended: %v", err)
	}
	for _, what := range []string{"it is forgotten", "there is another one"} {
		if err := get(t, errs, what); !errors.Is(err, scheduler.ErrNoBatch) || !strings.Contains(err.Error(), "}news") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
