package worker_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// tasks are the members of a batch, from one number to another.
func tasks(from, to int) iter.Seq[scheduler.Item] {
	return func(yield func(scheduler.Item) bool) {
		for n := from; n < to && yield(scheduler.Item{Args: task{n}, Options: []scheduler.EnqueueOption{scheduler.ID(fmt.Sprintf("m%d", n))}}); n++ {
		}
	}
}

// addTasks adds members to a batch. It returns how many are in, and the error of the others.
func addTasks(ctx context.Context, b *scheduler.Batch, items iter.Seq[scheduler.Item]) (in int, err error) {
	for _, res := range b.AddSeq(ctx, items) {
		if res.Err != nil {
			return in, res.Err
		}
		in++
	}
	return in, nil
}

// Redis is flushed while a batch grows and its members run. Its producer, its members and operators hear that it is gone. A producer that begins again with the same FlowID has another batch, with the same members.
func TestBatchIsFlushed(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	w := r.workerWith(r.short(4))
	var got reports
	got.handle(w)
	gate, open := r.gate()
	var began, completed atomic.Int64
	adds := make(chan error, 4)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		if began.Add(1) <= 4 {
			<-gate
			b, _ := scheduler.BatchOf(ctx)
			_, err := b.Add(context.WithoutCancel(ctx), sequel{})
			adds <- err
		}
		completed.Add(1)
		return nil
	})
	r.start(w)
	s, ctx := r.scheduler(), t.Context()
	begin := func() *scheduler.Batch {
		b, err := s.Batch(ctx, r.name(), append(callbacks(), scheduler.FlowID("b"))...)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := begin()
	n := 0
	var err error
	for _, res := range b.AddSeq(ctx, tasks(0, 3*scheduler.MaxBatchCall)) {
		if err = res.Err; err != nil {
			break
		}
		if n++; n == scheduler.MaxBatchCall {
			redistest.Eventually(t, func() bool { return began.Load() == 4 }, "members run")
			flush(t, r, server)
		}
	}
	if !errors.Is(err, scheduler.ErrNoBatch) || n != scheduler.MaxBatchCall {
		t.Errorf("%d were added, then %v", n, err)
	}
	if err := b.Seal(ctx); !errors.Is(err, scheduler.ErrNoBatch) {
		t.Errorf("seal: %v", err)
	}
	ins := r.inspector()
	if _, err := ins.Flow(ctx, r.name(), "b"); !errors.Is(err, inspect.ErrNoFlow) && !errors.Is(err, inspect.ErrNoQueue) {
		t.Errorf("inspect: %v", err)
	}
	b = begin()
	if in, err := addTasks(ctx, b, tasks(0, 1000)); err != nil || b.Resumed() {
		t.Errorf("again: %d, %v", in, err)
	}
	open()
	for range 4 {
		if err := get(t, adds, "a member adds"); !errors.Is(err, signalbox.ErrSuperseded) {
			t.Errorf("a member of the lost batch adds: %v", err)
		}
	}
	if err := b.Seal(ctx); err != nil {
		t.Error(err)
	}
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 2 }, "the callbacks run")
	if want := []string{"end", "success"}; !slices.Equal(got.sorted(), want) {
		t.Errorf("%v ran", got.sorted())
	}
	f, err := ins.Flow(ctx, r.name(), "b")
	if err != nil || !f.Over || f.Total != 1000 || f.Completed != 1000 || completed.Load() != 1004 {
		t.Errorf("%+v, %v; %d have completed", f, err, completed.Load())
	}
}

// Redis comes back with an older state while a batch grows, and a member has added to it since. Producer and member hear that jobs are missing, and add them again. A batch that lacks some isn't sealed.
func TestBatchOfAnOlderRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	w := r.worker(2)
	var got reports
	got.handle(w)
	var deliveries atomic.Int64
	first := func(ctx context.Context) error {
		b, _ := scheduler.BatchOf(ctx)
		for n := range 2 {
			if _, err := b.Add(context.WithoutCancel(ctx), sequel{N: n}); err != nil {
				return err
			}
		}
		return nil
	}
	errs, added := make(chan error, 1), make(chan struct{})
	saved, save := r.gate()
	restarted, restart := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in task) error {
		if in.N > 0 {
			return nil
		}
		if deliveries.Add(1) > 1 {
			return first(ctx)
		}
		<-saved
		if err := first(ctx); err != nil {
			t.Error(err)
		}
		close(added)
		<-restarted
		b, _ := scheduler.BatchOf(ctx)
		_, err := b.Add(context.WithoutCancel(ctx), sequel{N: 2})
		errs <- err
		return err
	}, worker.Retry(worker.Constant(0)))
	worker.Handle(w, func(context.Context, *signalbox.Job, sequel) error { return nil })
	r.start(w)
	s, ctx := r.scheduler(), t.Context()
	b, err := s.Batch(ctx, r.name(), append(callbacks(), scheduler.FlowID("b"))...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := addTasks(ctx, b, tasks(0, 1)); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool { return deliveries.Load() == 1 }, "the first member runs")
	if err := r.rdb.Save(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	save()
	get(t, added, "the first member adds")
	if _, err := addTasks(ctx, b, tasks(1, 10)); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	server.Restart()
	if err := b.Seal(ctx); !errors.Is(err, scheduler.ErrNoBatch) || !strings.Contains(err.Error(), "begin anew with the same FlowID") {
		t.Errorf("a batch that lacks jobs is sealed: %v", err)
	}
	restart()
	if err := get(t, errs, "the member adds"); !errors.Is(err, scheduler.ErrNoBatch) || !strings.Contains(err.Error(), "return the error") {
		t.Errorf("a member adds, whose jobs are lost: %v", err)
	}
	if _, err := addTasks(ctx, b, tasks(10, 20)); !errors.Is(err, scheduler.ErrNoBatch) {
		t.Errorf("a producer adds, whose jobs are lost: %v", err)
	}
	if b, err = s.Batch(ctx, r.name(), scheduler.FlowID("b")); err != nil {
		t.Fatal(err)
	}
	if _, err := addTasks(ctx, b, tasks(0, 20)); err != nil {
		t.Fatal(err)
	}
	if err := b.Seal(ctx); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool { return len(got.sorted()) == 2 }, "the callbacks run")
	if want := []string{"end", "success"}; !slices.Equal(got.sorted(), want) {
		t.Errorf("%v ran", got.sorted())
	}
	f, err := r.inspector().Flow(ctx, r.name(), "b")
	if err != nil || !f.Over || f.Total != 22 || f.Completed != 22 {
		t.Errorf("%+v, %v", f, err)
	}
}
