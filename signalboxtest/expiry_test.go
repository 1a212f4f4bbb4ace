package signalboxtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A job that hasn't started in time doesn't wait any more.
func TestExpireAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.enqueue(t, note{1}, scheduler.ExpireAfter(time.Minute))
		r.enqueue(t, note{2}, scheduler.ExpireAfter(time.Minute), scheduler.After(time.Hour))
		time.Sleep(time.Minute - time.Nanosecond)
		if n := len(r.jobs.Waiting()); n != 2 {
			t.Errorf("%d jobs wait before", n)
		}
		time.Sleep(time.Nanosecond)
		if n := len(r.jobs.Waiting()); n != 1 {
			t.Errorf("%d jobs wait then", n)
		}
	})
}

// A job that hasn't started by its deadline doesn't wait any more, whenever it is due. One that has started is dead when it is worked then.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		worker.Handle(r.w, func(context.Context, *signalbox.Job, note) error {
			return signalbox.Snooze(time.Minute - time.Nanosecond)
		})
		at := time.Now().Add(time.Minute)
		r.enqueue(t, note{1}, scheduler.Deadline(at))
		r.enqueue(t, note{2}, scheduler.Deadline(at), scheduler.After(time.Hour))
		if v := r.jobs.WorkAll(t.Context(), r.w); len(v) != 1 || v[0].Outcome != signalbox.OutcomeSnoozed {
			t.Errorf("before: %v", v)
		}
		time.Sleep(time.Minute)
		if waiting := r.jobs.Waiting(); len(waiting) != 1 || !waiting[0].Deadline.Equal(at) {
			t.Errorf("then wait %v", waiting)
		}
		if v := r.jobs.WorkAll(t.Context(), r.w); len(v) != 1 || v[0].Outcome != signalbox.OutcomeDead {
			t.Errorf("what has started: %v", v)
		}
	})
}
