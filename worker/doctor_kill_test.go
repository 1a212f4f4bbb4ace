package worker_test

import (
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
)

var doctorTime = flag.Duration("doctor.duration", 3*time.Second, "how long the doctor of TestDoctorUnderLoad looks, at least")

// Three worker processes run jobs, and one after the other is killed. Jobs come in, fail, are cancelled, deleted and moved about. A doctor
// beside them, which may repair, finds nothing.
func TestDoctorUnderLoad(t *testing.T) {
	t.Parallel()
	const processes = 3
	r := newRig(t)
	ins := r.inspector()
	ctx := t.Context()
	var children [processes]*child
	for i := range children {
		children[i] = r.child(10, 2*time.Second)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	often := func(pause time.Duration, do func(i int)) {
		load.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				do(i)
			}
		})
	}
	var mu sync.Mutex
	ids := r.orders(500, order{Do: "sleep", MS: 50})
	often(20*time.Millisecond, func(i int) {
		if r.counts().Ready > 500 { // on a busy machine more come than are done
			return
		}
		when := store.When{After: time.Duration(i%5) * 30 * time.Millisecond}
		jobs := make([]signalbox.Job, 15)
		for j := range jobs {
			jobs[j] = signalbox.Job{Kind: order{}.Kind(), Payload: payload(order{Do: "sleep", MS: 20, N: i})}
		}
		more := r.addWhen(when, jobs...)
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, more...)
	})
	often(5*time.Millisecond, func(int) {
		mu.Lock()
		id := ids[rand.N(len(ids))]
		mu.Unlock()
		a := []inspect.Action{
			inspect.Cancel{Why: "not needed"},
			inspect.Delete{},
			inspect.Retry{},
			inspect.Prioritise{To: signalbox.Priority(rand.N(3))},
			inspect.Reschedule{At: time.Now().Add(rand.N(time.Second))},
		}[rand.N(5)]
		_, _ = ins.Do(ctx, r.name(), id, a) // many jobs are gone, or in another state
	})
	next := 0
	often(700*time.Millisecond, func(int) {
		select {
		case <-children[next].lines: // it has begun a job
			children[next].kill()
			children[next] = r.child(10, 2*time.Second)
			next = (next + 1) % processes
		default:
		}
	})
	runs, jobs := 0, int64(0)
	for end := time.Now().Add(*doctorTime); time.Now().Before(end) || runs < 3; runs++ {
		report, err := ins.Doctor(ctx, r.name(), inspect.Checkup{Repair: runs%2 == 1})
		if err != nil || report.Found > 0 || len(report.Unproved) > 0 {
			t.Fatalf("run %d: %+v, %v", runs, report, err)
		}
		jobs += report.Jobs
	}
	close(stop)
	load.Wait()
	t.Logf("the doctor ran %d times, and looked at %d jobs", runs, jobs)
	if jobs == 0 {
		t.Error("it looked at nothing")
	}
	r.until("all jobs have ended", func(c looks.Counts) bool { return c.Ready+c.Due+c.Running == 0 })
}
