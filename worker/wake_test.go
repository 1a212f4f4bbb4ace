package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// isScript matches calls of a script. kinds are the beginnings of its first keys in the queue.
func (r *rig) isScript(kinds ...string) func(cmd []string) bool {
	return func(cmd []string) bool {
		if len(cmd) < 3+len(kinds) || !strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
			return false
		}
		for i, kind := range kinds {
			if !strings.HasPrefix(cmd[3+i], r.key(kind)) {
				return false
			}
		}
		return true
	}
}

func (r *rig) isClaim() func(cmd []string) bool {
	return r.isScript("lane:", "inflight:", "sessions", "fence")
}

func (r *rig) isClose() func(cmd []string) bool {
	return r.isScript("lane:", "inflight:", "sessions", "due")
}
func (r *rig) isRenew() func(cmd []string) bool { return r.isScript("lane:", "sessions") }

func TestIdleLatency(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerWith(r.patient(10))
	ran := make(chan time.Time, 1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		ran <- time.Now()
		return nil
	})
	r.start(w)
	r.idle()
	const n = 200
	late := redistest.Lag(t, r.rdb)
	latencies := make([]time.Duration, n)
	for i := range latencies {
		begin := time.Now()
		r.addOne(signalbox.Job{})
		latencies[i] = get(t, ran, "the job runs").Sub(begin)
	}
	slices.Sort(latencies)
	t.Logf("from Enqueue to the handler: p50 %v, p99 %v, longest %v", latencies[n/2], latencies[n*99/100], latencies[n-1])
	if half := latencies[n/2] - late()/n; half > 100*time.Millisecond { // about 0.3 ms on a quiet machine
		t.Errorf("half of the jobs waited for %v or more: is it polling?", half)
	}
	if latencies[n-1] > prompt {
		t.Errorf("a job waited for %v: a wake-up was lost", latencies[n-1])
	}
	r.completed(n)
}

func TestOneJobWakesOneWorker(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	const workers = 5
	for range workers {
		w := r.workerOn(proxy.Client(), r.patient(2))
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
		r.start(w)
	}
	r.idleClients(workers)
	before, begin := proxy.Count(r.isClaim()), time.Now()
	const n = 20
	for i := range n {
		r.addOne(signalbox.Job{})
		r.completed(i + 1)
		r.idleClients(workers)
	}
	// One call claims the job, and one settles it; now and then, a slot asks for another job before the handler is seen to return. A second worker that is woken makes three
	// calls for each job. Each worker may stand by: it makes a call when it has made none for 750 ms.
	standing := workers * int(time.Since(begin)/(750*time.Millisecond))
	if calls := proxy.Count(r.isClaim()) - before; calls < n || calls > 2*n+n/2+standing {
		t.Errorf("%d claims for %d jobs and %d of those that stand by; want 2 for each job", calls, n, standing)
	}
}

// Three jobs come with one wake-up. The first job fills the worker's slot, so it passes the wake-up on.
func TestWakeUpIsPassedOnByAFullWorker(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, redistest.New(t).Client())
	running := make(chan struct{}, 3)
	release, open := r.gate()
	for range 3 {
		w := r.workerWith(r.patient(1))
		worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
			running <- struct{}{}
			<-release
			return nil
		})
		r.start(w)
	}
	r.idleClients(3)
	begin := time.Now()
	r.add(make([]signalbox.Job, 3)...)
	for range 3 {
		get(t, running, "all three workers have a job")
	}
	if d := time.Since(begin); d > prompt {
		t.Errorf("that took %v: a wake-up was lost", d)
	}
	open()
	r.completed(3)
}

// A worker without a free slot is not woken instead of one that has a free slot.
func TestFullWorkerIsNotWoken(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, redistest.New(t).Client())
	running := make(chan string, 10)
	release, _ := r.gate()
	for i := range 2 {
		w := r.workerWith(r.patient(1 + 9*i))
		worker.Handle(w, func(_ context.Context, _ *signalbox.Job, a task) error {
			running <- fmt.Sprint(i)
			if i == 0 {
				<-release
			}
			return nil
		})
		r.start(w)
		r.idleClients(1)
		if i == 0 { // from now on it has no free slot
			r.addOne(signalbox.Job{})
			get(t, running, "the first worker has a job")
			if n := r.rdb.ZCard(context.Background(), r.key("idle")).Val(); n != 0 {
				t.Errorf("%d workers wait to be woken, and the only one is full", n)
			}
		}
	}
	r.idleClients(1)
	for range 10 {
		begin := time.Now()
		r.addOne(signalbox.Job{})
		if who := get(t, running, "the other worker has the job"); who != "1" {
			t.Errorf("worker %s got it", who)
		}
		if d := time.Since(begin); d > prompt {
			t.Errorf("a job waited for %v", d)
		}
	}
}

// An idle worker listens on one connection for all of its queues, and sends almost nothing.
func TestIdleWorkerIsQuiet(t *testing.T) {
	t.Parallel()
	for _, queues := range []int{1, 8} {
		t.Run(fmt.Sprint(queues, " queues"), func(t *testing.T) {
			t.Parallel()
			testQuiet(t, queues, worker.Queue{})
		})
	}
	// With limits a claim asks for more than may start.
	for name, l := range map[string]signalbox.Limits{
		"running": {Running: 2},
		"rate":    {Rate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 2}},
		"both":    {Running: 3, Rate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 2}},
	} {
		t.Run("limit of "+name, func(t *testing.T) {
			t.Parallel()
			testQuiet(t, 1, worker.Queue{Limits: l, GroupLimits: l})
		})
	}
}

// testQuiet counts the calls of a worker with empty queues like this one.
func testQuiet(t *testing.T, queues int, queue worker.Queue) {
	window := 3 * time.Second
	if *long {
		window = 40 * time.Second
	}
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	cfg := r.patient(5)
	for range queues - 1 {
		cfg.Queues[redistest.Name(t)] = worker.Queue{}
	}
	for name, q := range cfg.Queues {
		q.Limits, q.GroupLimits = queue.Limits, queue.GroupLimits
		cfg.Queues[name] = q
	}
	w := r.workerOn(proxy.Client(), cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(w)

	isCall := func(cmd []string) bool {
		return !strings.EqualFold(cmd[0], "PING")
	}
	for name := range cfg.Queues {
		redistest.Eventually(t, func() bool { return r.rdb.ZCard(context.Background(), "signalbox:{default:"+name+"}:idle").Val() == 1 }, "queue %s is idle", name)
	}
	// On a loaded machine the last calls of the start come late: a sweep, and a claim once wake-ups are heard. They are in the first window then.
	// A worker that polls has calls in both.
	for last := range 2 {
		before := proxy.Count(isCall)
		<-time.After(window)
		calls := float64(proxy.Count(isCall)-before) / window.Seconds() / float64(queues)
		t.Logf("%.2f calls per second and queue in %v", calls, window)
		if calls <= 0.3 {
			break
		}
		if last == 1 {
			t.Errorf("an idle worker makes %.2f calls per second and queue, want 0.3 at the most", calls)
		}
	}
	if n := listeners(t, r.rdb); n != 1 {
		t.Errorf("%d connections listen for %d queues, want 1", n, queues)
	}
}

// listeners returns how many connections of a server have subscribed to channels.
func listeners(t *testing.T, rdb redis.UniversalClient) int {
	t.Helper()
	list, err := rdb.Do(context.Background(), "CLIENT", "LIST", "TYPE", "PUBSUB").Text()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "id=")
}

// Each queue has its own slots. A busy queue doesn't make another one wait.
func TestQueuesHaveSlotsOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	slow, quick := newRigOn(t, server.Client()), newRigOn(t, server.Client())
	cfg := slow.patient(3)
	cfg.Queues[quick.name()] = worker.Queue{Concurrency: 2}
	w := slow.workerWith(cfg)
	release, open := slow.gate()
	running := make(chan struct{}, 100)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Queue == slow.name() {
			running <- struct{}{}
			<-release
		}
		return nil
	})
	slow.start(w)
	slow.add(make([]signalbox.Job, 10)...)
	for range 3 {
		get(t, running, "the slow queue's slots are taken")
	}
	for i := range 20 {
		quick.addOne(signalbox.Job{})
		quick.completed(i + 1)
	}
	if c := slow.counts(); c.Running != 3 || c.Ready != 7 || len(running) != 0 {
		t.Errorf("counts of the slow queue %+v, want 3 running", c)
	}
	open()
	slow.completed(10)
}

// A job that becomes due is found without a wake-up. If the worker has no free slot at that time, it wakes another worker.
func TestDueJobWakesAnotherWorker(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, redistest.New(t).Client())
	started := make(chan time.Time, 2)
	release, open := r.gate()
	for range 2 {
		w := r.workerWith(r.patient(1))
		worker.Handle(w, func(_ context.Context, _ *signalbox.Job, a task) error {
			started <- time.Now()
			<-release
			return nil
		})
		r.start(w)
	}
	r.idleClients(2)
	r.addWhen(store.When{After: 300 * time.Millisecond}, signalbox.Job{}, signalbox.Job{})
	begin := time.Now()
	for range 2 {
		if d := get(t, started, "both run").Sub(begin); d > prompt {
			t.Errorf("a job that was due after 0.3 s began after %v", d)
		}
	}
	open()
	r.completed(2)
}

func TestMiddlewareOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	var trail []string
	mark := func(name string) signalbox.Middleware {
		return func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				trail = append(trail, name)
				if _, bounded := ctx.Deadline(); bounded {
					t.Errorf("%s stands inside of Timeout", name)
				}
				return next.Handle(ctx, job)
			})
		}
	}
	w.Use(mark("use 1"), mark("use 2"))
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the handler stands outside of Timeout")
		}
		trail = append(trail, "handler")
		return nil
	}, worker.With(mark("with 1"), mark("with 2")), worker.Timeout(time.Minute))
	w.Use(mark("use 3"))
	run := r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	run.stop()
	if got, want := strings.Join(trail, ", "), "use 1, use 2, use 3, with 1, with 2, handler"; got != want {
		t.Errorf("called: %s; want %s", got, want)
	}
}

// A wake-up is lost together with its connection. The worker looks for jobs when it has a new connection. It doesn't need a renewal.
func TestLostWakeUpIsNoLostJob(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	cfg := r.lease(1, time.Hour)
	w := r.workerOn(proxy.Client(), cfg)
	ran := r.reporter(w)
	r.start(w)
	r.idle()
	proxy.Pause()
	id := r.addOne(signalbox.Job{}) // the message is on its way
	r.until("the worker was woken", func(looks.Counts) bool { return r.rdb.ZCard(context.Background(), r.key("idle")).Val() == 0 })
	begin := time.Now()
	proxy.Sever()
	proxy.Resume()
	if got := get(t, ran, "the job runs"); got != id {
		t.Errorf("%s ran", got)
	}
	if d := time.Since(begin); d > prompt {
		t.Errorf("the job waited for %v: a fallback found it", d)
	}
	r.completed(1)
}

// A message may be lost while its connection seems to work. A worker with rare renewals looks for jobs every ten seconds.
func TestUnheardWakeUpIsNoLostJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.workerWith(r.lease(1, time.Hour))
	ran := r.reporter(w)
	r.start(w)
	r.idle()
	if err := r.rdb.Del(context.Background(), r.key("idle")).Err(); err != nil { // like a failover that loses data
		t.Fatal(err)
	}
	r.addOne(signalbox.Job{})
	get(t, ran, "the job runs")
	r.completed(1)
}
