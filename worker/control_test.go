package worker_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// full starts a worker with one slot. A job keeps the slot until open is called or the test ends.
func (r *rig) full(rdb redis.UniversalClient, cfg worker.Config) (w *worker.Worker, open func()) {
	r.Helper()
	w = r.workerOn(rdb, cfg)
	running := make(chan struct{}, 10)
	release, open := r.gate()
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		running <- struct{}{}
		<-release
		return nil
	})
	r.start(w)
	r.idle()
	r.addOne(signalbox.Job{})
	get(r.T, running, "the only slot is taken")
	return w, open
}

// A worker without a free slot notices at once that its queue's settings have changed. It doesn't depend on a renewal.
func TestFullWorkerHearsControl(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, open := r.full(r.rdb, r.lease(1, time.Hour))
	ins := r.inspector()
	late := redistest.Lag(t, r.rdb)
	const n = 10
	begin := time.Now()
	for i := range n {
		r.set(ins.Pause)
		redistest.Eventually(t, func() bool { return r.log.count("the queue is paused") == i+1 }, "the worker hears of pause %d", i)
		r.set(ins.Resume)
		redistest.Eventually(t, func() bool { return r.log.count("the queue is resumed") == i+1 }, "the worker hears of the end of pause %d", i)
	}
	each := time.Since(begin) / (2 * n)
	t.Logf("%v for each change", each)
	if each-late()/(2*n) > 100*time.Millisecond {
		t.Errorf("a full worker hears of a change after %v", each)
	}
	open()
	r.completed(1)
}

// The connection for the message is cut at that moment. The worker reads the settings when it has a new connection.
func TestControlOverALostConnection(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	_, open := r.full(proxy.Client(), r.lease(1, time.Hour))
	ins := r.inspector()
	proxy.Pause()
	r.set(ins.Pause)
	begin := time.Now()
	proxy.Sever()
	proxy.Resume()
	redistest.Eventually(t, func() bool { return r.log.count("the queue is paused") == 1 }, "the worker hears of the pause")
	if d := time.Since(begin); d > prompt {
		t.Errorf("it took %v: a fallback found it", d)
	}
	open()
	r.until("its job is settled", func(c looks.Counts) bool { return c.Running == 0 })
}

// A worker that can't subscribe finds jobs, and changed settings, when it renews its session.
func TestWithoutASubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Reply(redistest.Command("SUBSCRIBE"), "-ERR not now", -1)
	w := r.workerOn(proxy.Client(), r.short(1))
	ran := r.reporter(w)
	r.start(w)
	r.ready()
	r.works(ran, "a job runs")
	ins := r.inspector()
	r.set(ins.Pause)
	redistest.Eventually(t, func() bool { return r.log.count("the queue is paused") == 1 }, "the worker hears of the pause")
	r.set(ins.Resume)
	redistest.Eventually(t, func() bool { return r.log.count("the queue is resumed") == 1 }, "the worker hears of its end")
	before := proxy.Count(r.isClaim())
	r.renewals()()
	if n := proxy.Count(r.isClaim()) - before; n > 20 {
		t.Errorf("it makes %d calls in a lease without anything to do", n)
	}
}

// A queue's number of slots changes while jobs run: from 50 to 5 to 200 and back. Running jobs continue. No more jobs start than there are
// slots.
func TestSlotsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	ins := r.inspector()
	cfg := r.lease(50, time.Hour)
	cfg.DrainTimeout = -1
	w := r.workerWith(cfg)
	type gate struct { // handlers wait at it until it is opened
		opened chan struct{}
		jobs   atomic.Int64 // that came to it and haven't ended
	}
	var running, ended atomic.Int64
	var mu sync.Mutex
	current := &gate{opened: make(chan struct{})}
	open := func() *gate { // opens the gate; jobs that start from now on wait at another one
		mu.Lock()
		defer mu.Unlock()
		old := current
		current = &gate{opened: make(chan struct{})}
		close(old.opened)
		return old
	}
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		mu.Lock()
		g := current
		g.jobs.Add(1)
		mu.Unlock()
		running.Add(1)
		select {
		case <-g.opened:
		case <-ctx.Done():
		}
		running.Add(-1)
		ended.Add(1)
		g.jobs.Add(-1)
		return nil
	})
	r.start(w)
	const n = 1500
	r.add(make([]signalbox.Job, n)...)
	// Redis counts a delivery until it has its outcome, even after the handler has returned. So if both numbers are right, and no job is left
	// of a gate that was opened, nothing moves.
	runs := func(want int64, what string) {
		t.Helper()
		redistest.Eventually(t, func() bool { return running.Load() == want && r.counts().Running == want && running.Load() == want },
			"%s: %d run, and no other is claimed", what, want)
	}
	runs(50, "by Config")
	changes := 0
	for _, slots := range []int{5, 200, 50, 0, 5, 0} {
		before := running.Load()
		if err := ins.SetSlots(ctx, r.name(), slots); err != nil {
			t.Fatal(err)
		}
		if q, err := ins.Queue(ctx, r.name()); err != nil || q.Slots != slots {
			t.Fatalf("%+v, %v; want %d slots", q, err, slots)
		}
		want := int64(slots)
		if slots == 0 {
			want = 50
		}
		if want != before {
			changes++
		}
		redistest.Eventually(t, func() bool { return r.log.count("another number of slots") == changes }, "the worker hears of %d slots", slots)
		if n := running.Load(); n < before {
			t.Errorf("%d of %d jobs that ran go on", n, before)
		}
		old := open()
		redistest.Eventually(t, func() bool { return old.jobs.Load() == 0 }, "the jobs that ran end")
		runs(want, "by the settings")
	}
	for _, parts := range [][]string{{"slots=200", "before=5", "the queue's settings"}, {"slots=50", "before=5", "this worker's Config"}} {
		if r.log.count(append(parts, "another number of slots")...) == 0 {
			t.Errorf("the log doesn't say %v", parts)
		}
	}
	if err := ins.SetSlots(ctx, r.name(), 1000); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, func() bool { open(); return ended.Load() == n }, "all jobs run")
	r.completed(n)
}

// A quiet worker takes no more jobs, from any of its queues, and finishes the jobs that it has. Other workers take the rest.
func TestQuietWorker(t *testing.T) {
	t.Parallel()
	r, second := newRig(t), newRig(t)
	ctx := context.Background()
	cfg := r.lease(2, time.Hour)
	cfg.Queues[second.name()] = worker.Queue{Concurrency: 1}
	w, other := r.workerWith(cfg), r.workerWith(cfg)
	ran := make(chan string, 100)
	release, open := r.gate()
	first := make(chan struct{})
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.ID == "has" {
			close(first)
			<-release
		}
		ran <- w.ID()
		return nil
	})
	r.start(w)
	r.ready()
	r.addOne(signalbox.Job{ID: "has"})
	get(t, first, "it has a job")
	ins := r.inspector()
	if err := second.queue.Presence().Register(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := ins.Quiet(ctx, "somebody"); !errors.Is(err, inspect.ErrNoWorker) {
		t.Errorf("an unknown worker: %v", err)
	}
	for _, want := range []bool{true, false} {
		if changed, err := ins.Quiet(ctx, w.ID()); changed != want || err != nil {
			t.Fatalf("quiet: %v, %v", changed, err)
		}
	}
	redistest.Eventually(t, func() bool { return r.log.count("this worker is quiet") == 2 }, "it hears of that for both queues")
	for _, name := range []string{r.name(), second.name()} {
		if q, err := ins.Queue(ctx, name); err != nil || len(q.Quiet) != 1 || q.Quiet[0] != w.ID() {
			t.Errorf("%+v, %v", q, err)
		}
	}
	r.add(make([]signalbox.Job, 5)...)
	second.addOne(signalbox.Job{})
	worker.Handle(other, func(context.Context, *signalbox.Job, task) error {
		ran <- other.ID()
		return nil
	})
	stopped := r.start(other)
	for range 6 {
		if id := get(t, ran, "the other worker takes the jobs"); id != other.ID() {
			t.Errorf("%s runs one", id)
		}
	}
	open()
	if id := get(t, ran, "the job ends"); id != w.ID() {
		t.Errorf("%s had it", id)
	}
	r.completed(6)
	second.completed(1)
	stopped.stop()
	r.addOne(signalbox.Job{})
	second.addOne(signalbox.Job{})
	if changed, err := ins.Unquiet(ctx, w.ID()); !changed || err != nil {
		t.Fatalf("unquiet: %v, %v", changed, err)
	}
	for range 2 {
		if id := get(t, ran, "it takes jobs again"); id != w.ID() {
			t.Errorf("%s had it", id)
		}
	}
	r.log.says(t, "no longer quiet")
}

// A worker is stopped (SIGSTOP) when it has just got a wake-up. Another worker looks within a second, without waiting for a renewal.
func TestStoppedWorkerCostsASecond(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newRigOn(t, srv.Client())
	stopped := startChild(t, childConfig{Addr: srv.Addr(), Queue: r.name(), Slots: 2, TTL: time.Minute})
	r.idleClients(1)
	w := r.workerWith(r.lease(2, time.Hour))
	ran := make(chan time.Time, 10)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		ran <- time.Now()
		return nil
	})
	r.start(w)
	r.idleClients(2)
	late := redistest.Lag(t, r.rdb)
	stopped.freeze() // before the job is there: it must not claim it
	defer stopped.signal(os.Signal(syscall.SIGCONT))
	begin := time.Now()
	r.addOne(signalbox.Job{})
	d := get(t, ran, "the other worker runs the job").Sub(begin)
	t.Logf("the job waited for %v", d)
	if d > time.Second+late() {
		t.Errorf("the job waited for %v", d)
	}
	if d < 300*time.Millisecond {
		t.Error("it was not the stopped worker that was woken")
	}
	begin = time.Now()
	for range 3 { // from now on nothing wakes the stopped worker
		r.addOne(signalbox.Job{})
		get(t, ran, "the other worker runs the job")
	}
	if d := time.Since(begin); d > 750*time.Millisecond+late() {
		t.Errorf("three more jobs took %v", d)
	}
}

// In a Cluster a worker has one listening connection to each master, however many queues it has. Jobs wake it on whatever master their
// queue is. That holds after a slot has moved to another master, and after another server has become the master.
func TestListeningInACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.ClusterWithReplicas(t)
	ctx := context.Background()
	var rigs []*rig
	queues := worker.Queues{}
	for at := make(map[string]int); len(at) < 3 || slices.Min(slices.Collect(maps.Values(at))) < 3; { // each master has queues
		r := newRigOn(t, cluster.Client())
		rigs = append(rigs, r)
		queues[r.name()] = worker.Queue{Concurrency: 1}
		master, _, err := r.queue.Channels().Server(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		at[master]++
	}
	r := rigs[0]
	cfg := r.lease(1, time.Hour) // no renewal helps
	cfg.Queues = queues
	w := r.workerWith(cfg)
	ran := make(chan string, 100)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- job.Queue
		return nil
	})
	r.start(w)
	for _, r := range rigs {
		r.idle()
	}
	wakes := func(what string) {
		t.Helper()
		for _, r := range rigs {
			begin := time.Now()
			r.addOne(signalbox.Job{})
			if name := get(t, ran, what); name != r.name() {
				t.Errorf("%s: a job of %s ran", what, name)
			}
			if d := time.Since(begin); d > prompt {
				t.Errorf("%s: it waited for %v", what, d)
			}
		}
	}
	wakes("a job of each queue runs")
	for _, m := range cluster.Masters() {
		if n := listeners(t, m.Client()); n != 1 {
			t.Errorf("%d connections listen at a master", n)
		}
	}
	m := cluster.BeginMigration(t, r.key("jobs"))
	m.End(t)
	r.idle()
	wakes("a job of each queue runs after a slot has moved")
	ins, err := inspect.New(r.rdb, inspect.Config{})
	if err != nil {
		t.Fatal(err)
	}
	before := r.log.count("the queue is paused")
	for i, r := range rigs {
		if err := r.queue.Presence().Register(ctx); err != nil {
			t.Fatal(err)
		}
		r.set(ins.Pause)
		redistest.Eventually(t, func() bool { return rigs[0].log.count("the queue is paused") == before+i+1 }, "queue %d is told of", i)
	}
}
