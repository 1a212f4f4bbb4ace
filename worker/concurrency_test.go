package worker_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// A worker never claims or runs more jobs than its bound, and it serves all of its queues.
func TestConcurrencyOfAWorker(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	rigs := []*rig{newRigOn(t, server.Client()), newRigOn(t, server.Client()), newRigOn(t, server.Client())}
	cfg := rigs[0].patient(50)
	for _, r := range rigs {
		cfg.Queues[r.name()] = worker.Queue{Concurrency: 50}
	}
	const bound, jobs = 10, 100
	cfg.Concurrency = bound
	proxy := redistest.NewProxy(t, server.Addr())
	w := rigs[0].workerOn(proxy.Client(), cfg)
	var running, most atomic.Int32
	began, next := make(chan string, 3*jobs), make(chan struct{})
	release, _ := rigs[0].gate()
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		began <- job.Queue
		select {
		case <-next:
		case <-release:
		}
		return nil
	})
	for _, r := range rigs {
		r.add(make([]signalbox.Job, jobs)...)
	}
	rigs[0].start(w)
	for range bound {
		get(t, began, "as many run as the bound allows")
	}
	isCall := func(cmd []string) bool { return strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") }
	before := proxy.Count(isCall)
	<-time.After(time.Second)
	if n := proxy.Count(isCall) - before; n > 10 {
		t.Errorf("%d calls in a second in which nothing can be claimed", n)
	}
	claimed := 0
	for _, r := range rigs {
		claimed += int(r.counts().Running)
	}
	if claimed != bound {
		t.Errorf("%d jobs are claimed, want %d", claimed, bound)
	}

	// Each queue gets its turn while the others have jobs.
	served := make(map[string]int)
	for range jobs {
		next <- struct{}{}
		served[get(t, began, "another job runs")]++
	}
	for _, r := range rigs {
		if n := served[r.name()]; n < jobs/6 {
			t.Errorf("a queue had %d of %d turns", n, jobs)
		}
	}
	for range 2 * jobs {
		next <- struct{}{}
	}
	for _, r := range rigs {
		r.completed(jobs)
	}
	if n := most.Load(); n != bound {
		t.Errorf("%d handlers ran at once, want %d", n, bound)
	}
}

// A worker that has reached its bound doesn't keep a wake-up from another worker.
func TestBoundedWorkerPassesAWakeUpOn(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r, other := newRigOn(t, server.Client()), newRigOn(t, server.Client())
	cfg := r.patient(5)
	cfg.Queues[other.name()], cfg.Concurrency = worker.Queue{Concurrency: 5}, 1
	full := r.workerWith(cfg)
	release, open := r.gate()
	running := make(chan string, 20)
	worker.Handle(full, func(context.Context, *signalbox.Job, task) error {
		running <- "full"
		<-release
		return nil
	})
	r.start(full)
	other.addOne(signalbox.Job{})
	get(t, running, "the full worker has a job")
	free := r.workerWith(r.patient(5))
	worker.Handle(free, func(context.Context, *signalbox.Job, task) error { running <- "free"; return nil })
	r.start(free)
	for n := range 10 {
		begin := time.Now()
		r.addOne(signalbox.Job{})
		if who := get(t, running, "the other worker has the job"); who != "free" {
			t.Errorf("the %s worker got it", who)
		}
		if d := time.Since(begin); d > prompt {
			t.Errorf("job %d waited for %v", n, d)
		}
		r.completed(n + 1)
	}
	open()
}
