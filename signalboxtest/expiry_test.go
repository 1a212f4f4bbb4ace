package signalboxtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox/scheduler"
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
