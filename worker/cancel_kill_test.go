package worker_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// 100 jobs are cancelled whose process is killed before it hears of it. None runs again.
func TestCancelThenKill(t *testing.T) {
	t.Parallel()
	const n = 100
	r := newRig(t)
	dying := r.child(n, 3*time.Second)
	ids := r.orders(n, order{Do: "wait"})
	for range ids {
		dying.await("start")
	}
	w := r.workerWith(r.config(20))
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ order) error {
		t.Errorf("job %s runs again", job.ID)
		return nil
	})
	r.start(w)
	r.ready()
	dying.freeze()
	r.cancel(ids...)
	dying.kill()
	r.cancelled(n)
	if c := r.counts(); c.Total != (looks.Totals{Enqueued: n, Cancelled: n}) {
		t.Errorf("counts %+v", c.Total)
	}
	redistest.Eventually(t, func() bool { return r.log.count("a job is cancelled", "its worker has died") == n }, "the log says so of each job")
}

// Three worker processes run jobs, and one after the other is killed. Meanwhile jobs in all states are acted on. None is lost, none is in two
// states, none that was cancelled completes, and none that was deleted is there.
func TestActionsUnderLoad(t *testing.T) {
	t.Parallel()
	const processes, slots, n = 3, 10, 400
	r := newRig(t)
	ins := r.inspector()
	ctx := t.Context()
	start := func() *child { return r.child(slots, 2*time.Second) }
	var children [processes]*child
	for i := range children {
		children[i] = start()
	}
	r.idleClients(processes)
	all := r.orders(n, order{Do: "sleep", MS: 200})
	for i := range n / 4 {
		all = append(all, r.addWhen(store.When{After: time.Duration(i%40) * 100 * time.Millisecond},
			signalbox.Job{Kind: order{}.Kind(), Payload: payload(order{Do: "sleep", MS: 200, N: i})})...)
	}

	// Each job is either cancelled, or deleted, or moved about.
	cancelled, deleted := make(map[string]bool), make(map[string]bool)
	var mu sync.Mutex
	did := make(map[string]int)
	supply := func() { // on a busy machine all jobs may have ended before a process has started, or before they are acted on
		if r.counts().Ready >= 2*slots {
			return
		}
		some := append(r.orders(2*slots, order{Do: "sleep", MS: 200}),
			r.addWhen(store.When{After: time.Second}, signalbox.Job{Kind: order{}.Kind(), Payload: payload(order{Do: "sleep", MS: 200})})...)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, some...)
	}
	act := func() {
		mu.Lock()
		i := len(all) - 1 - rand.N(min(len(all), n)) // one of the last ones
		id := all[i]
		mu.Unlock()
		var a inspect.Action
		switch i % 4 {
		case 0:
			a = inspect.Cancel{Why: "not needed"}
		case 1:
			a = inspect.Delete{}
		default:
			a = []inspect.Action{
				inspect.Retry{},
				inspect.Reschedule{At: time.Now().Add(rand.N(time.Second))},
				inspect.Prioritise{To: signalbox.Priority(rand.N(3))},
				inspect.Edit{MaxAttempts: 20},
				inspect.Edit{Timeout: time.Minute, Run: true},
			}[rand.N(5)]
		}
		was, err := ins.Do(ctx, r.name(), id, a)
		if err != nil && !errors.Is(err, inspect.ErrState) && !errors.Is(err, inspect.ErrNoJob) {
			t.Errorf("%T of %s: %v", a, id, err)
		}
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			did[string(was)]++
			switch a.(type) {
			case inspect.Cancel:
				cancelled[id] = true
			case inspect.Delete:
				deleted[id] = true
			}
		}
	}
	var acting sync.WaitGroup
	killed := make(chan struct{})
	for range 4 {
		acting.Go(func() {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for done := 0; ; done++ {
				select {
				case <-killed:
					if done > n/2 {
						return
					}
				case <-tick.C:
				}
				act()
			}
		})
	}
	// However fast the others cancel jobs that wait: one that runs until it is cancelled goes before them all.
	endless, more := "", 0
	redistest.Eventually(t, func() bool {
		if endless == "" {
			endless = r.addOne(signalbox.Job{Kind: order{}.Kind(), Payload: payload(order{Do: "wait"}), Priority: signalbox.PriorityHigh})
			more++
		}
		job, err := ins.Job(ctx, r.name(), endless)
		if err != nil || job.State == signalbox.StateReady {
			return false
		}
		was, err := ins.Do(ctx, r.name(), endless, inspect.Cancel{Why: "not needed"})
		if err != nil && !errors.Is(err, inspect.ErrState) {
			t.Fatal(err)
		}
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			did[string(was)]++
			cancelled[endless] = true
		}
		endless = ""
		return err == nil && was == signalbox.StateRunning
	}, "a job that runs is cancelled")
	for i := range 4 {
		redistest.Eventually(t, func() bool {
			supply()
			select {
			case <-children[i%processes].lines:
				return true
			default:
				return false
			}
		}, "jobs run")
		children[i%processes].kill()
		children[i%processes] = start()
	}
	states := []signalbox.State{signalbox.StateScheduled, signalbox.StateReady, signalbox.StateRunning, signalbox.StateCancelled}
	redistest.Eventually(t, func() bool {
		supply()
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(states, func(s signalbox.State) bool { return did[string(s)] == 0 })
	}, "jobs in each state are acted on")
	close(killed)
	acting.Wait()
	r.until("all jobs have ended", func(c looks.Counts) bool { return c.Ready+c.Due+c.Running == 0 })

	c := r.counts()
	if kept := r.rdb.HLen(ctx, r.key("jobs")).Val(); kept != c.Total.Enqueued-c.Total.Completed-c.Total.Deleted || kept != c.Dead+c.Cancelled {
		t.Errorf("%d jobs are kept; %+v", kept, c)
	}
	if c.Total.Enqueued != int64(len(all)+more) || c.Total.Deleted != int64(len(deleted)) {
		t.Errorf("%d jobs were put in, and %d deleted; %+v", len(all), len(deleted), c.Total)
	}
	for id := range cancelled {
		job, err := ins.Job(ctx, r.name(), id)
		if err != nil || job.State != signalbox.StateCancelled {
			t.Errorf("%s was cancelled, and is %q, %v", id, job.State, err)
		}
	}
	for id := range deleted {
		if _, err := ins.Job(ctx, r.name(), id); !errors.Is(err, inspect.ErrNoJob) {
			t.Errorf("%s was deleted, and is there: %v", id, err)
		}
	}
	t.Logf("acted on jobs that were %v; cancelled %d, deleted %d; %+v", did, len(cancelled), len(deleted), c.Total)
}
