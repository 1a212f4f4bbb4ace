package worker_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// Four producers give a batch the same jobs at once, under one FlowID, by other calls. Each job is in once, and the one that seals it first doesn't cut the others off.
func TestBatchOfSeveralProducers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(20)
	var got reports
	got.handle(w)
	var ran atomic.Int64
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { ran.Add(1); return nil })
	r.start(w)
	const n = 5000
	var all sync.WaitGroup
	var fresh atomic.Int64
	for p := range 4 {
		all.Go(func() {
			b, err := r.scheduler().Batch(t.Context(), r.name(), append(callbacks(), scheduler.FlowID("b"))...)
			if err != nil {
				t.Error(err)
				return
			}
			for k := 0; k < n; {
				chunk := 100 + 37*p
				for _, res := range b.AddSeq(t.Context(), func(yield func(scheduler.Item) bool) {
					for m := k; m < min(n, k+chunk) && yield(scheduler.Item{Args: task{m}}); m++ {
					}
				}) {
					if res.Err != nil {
						t.Error(p, res.Err)
						return
					}
					if res.New {
						fresh.Add(1)
					}
				}
				k += chunk
			}
			if err := b.Seal(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 2 }, "the callbacks run")
	if want := []string{"end", "success"}; !slices.Equal(got.sorted(), want) || ran.Load() != n || fresh.Load() != n {
		t.Errorf("%v ran, and %d members, of %d", got.sorted(), ran.Load(), fresh.Load())
	}
}

// A batch's slot moves to another node of a Cluster while the batch grows, and its members run and add others.
func TestBatchWhoseSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	r := newRigOn(t, cluster.Client())
	w := r.worker(5)
	var got reports
	got.handle(w)
	var ran atomic.Int64
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in task) error {
		if in.N%10 == 0 {
			b, _ := scheduler.BatchOf(ctx)
			if _, err := b.Add(ctx, sequel{}); err != nil {
				return err
			}
		}
		ran.Add(1)
		return nil
	}, worker.Retry(worker.Constant(50*time.Millisecond)))
	worker.Handle(w, func(context.Context, *signalbox.Job, sequel) error { return nil })
	r.start(w)
	s, ctx := r.scheduler(), t.Context()
	b, err := s.Batch(ctx, r.name(), append(callbacks(), scheduler.FlowID("b"))...)
	if err != nil {
		t.Fatal(err)
	}
	var m *redistest.Migration
	n := 0
	for _, res := range b.AddSeq(ctx, tasks(0, 500)) {
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		n++
	}
	m = cluster.BeginMigration(t, r.key("jobs"))
	done := make(chan error, 1)
	go func() {
		_, err := addTasks(ctx, b, tasks(500, 2000))
		if err == nil {
			err = b.Seal(ctx)
		}
		done <- err
	}()
	for _, k := range []string{"flows", "jobs", "awaiting", "ready:normal"} {
		m.Move(t, r.key(k))
		redistest.Eventually(t, func() bool { return m.Answered(t, "TRYAGAIN")+m.Answered(t, "ASK") > 0 }, "clients are told of the move")
	}
	m.End(t)
	if err := get(t, done, "the producer ends"); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 2 }, "the callbacks run")
	f, err := r.inspector().Flow(ctx, r.name(), "b")
	if want := []string{"end", "success"}; err != nil || !slices.Equal(got.sorted(), want) || f.Total != 2200 || f.Completed != 2200 {
		t.Errorf("%v, %+v, %v", got.sorted(), f, err)
	}
}
