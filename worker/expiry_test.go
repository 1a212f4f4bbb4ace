package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// Jobs that haven't started in time end while the only slot is taken, and while the queue is paused. OnDead and the log say so.
func TestExpireAfter(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := newRig(t)
	gate, open := r.gate()
	began := make(chan int, 9)
	handle := func(_ context.Context, _ *signalbox.Job, e entry) error {
		began <- e.N
		<-gate
		return nil
	}
	died := make(chan worker.Failure, 9)
	cfg := r.config(1)
	cfg.OnDead = func(_ context.Context, f worker.Failure) { died <- f }
	w := r.workerWith(cfg)
	worker.Handle(w, handle)
	r.start(w)
	r.ready()
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int, d time.Duration) {
		t.Helper()
		if _, err := s.Enqueue(t.Context(), entry{"a", n}, scheduler.Queue(r.name()), scheduler.ExpireAfter(d)); err != nil {
			t.Fatal(err)
		}
	}
	expired := func(when string) {
		t.Helper()
		select {
		case f := <-died:
			if !errors.Is(f.Err, signalbox.ErrExpired) || f.Job.Kind != "entry" || f.Job.ID == "" {
				t.Errorf("%s, OnDead gets %+v", when, f)
			}
		case <-time.After(patience):
			t.Fatalf("%s, no job expires", when)
		}
	}
	put(1, time.Hour)
	<-began
	put(2, time.Millisecond)
	expired("while no slot is free")
	if _, err := r.queue.Settings().Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(3, time.Millisecond)
	expired("while the queue is paused")
	open()
	r.until("the first completes", func(c looks.Counts) bool { return c.Total.Completed == 1 })
	if c := r.counts(); c.Total.Expired != 2 || c.Dead != 2 || c.Ready+c.Due+c.Running != 0 {
		t.Errorf("in the end: %+v", c)
	}
	if n := r.log.count("a job has expired", "kind=entry"); n != 2 {
		t.Errorf("the log says it %d times", n)
	}
	select {
	case n := <-began:
		t.Errorf("job %d has started", n)
	default:
	}
}
