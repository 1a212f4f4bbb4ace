package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// cancel cancels jobs that run.
func (r *rig) cancel(ids ...string) {
	r.Helper()
	answers, err := r.queue.Do(context.Background(), store.CancelJobs("not needed"), ids)
	if err != nil {
		r.Fatal(err)
	}
	for i, a := range answers {
		if a != (store.Answer{Acted: store.Done, State: signalbox.StateRunning}) {
			r.Fatalf("cancel of %s: %+v", ids[i], a)
		}
	}
}

// cancelled waits until n jobs have ended cancelled, and nothing waits or runs.
func (r *rig) cancelled(n int) {
	r.Helper()
	r.until(fmt.Sprintf("%d jobs are cancelled", n), func(c looks.Counts) bool {
		return c.Cancelled == int64(n) && c.Total.Cancelled == int64(n) && c.Ready+c.Due+c.Running == 0
	})
	if n := r.rdb.Exists(context.Background(), r.key("cancels")).Val(); n > 0 {
		r.Error("marks are left")
	}
}

// Jobs that run in a full worker are cancelled. The contexts of their handlers end at once, with the cause, and the jobs end cancelled
// whatever the handlers return. No renewal helps here.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	returns := []struct {
		name string
		err  error
	}{
		{"nil", nil},
		{"an error", errBoom},
		{"its end", context.Canceled},
		{"Snooze", signalbox.Snooze(0)},
		{"Cancel", signalbox.Cancel(errBoom)},
		{"a panic", nil},
		{"Goexit", nil},
	}
	type end struct {
		n     int
		cause error
	}
	cfg := r.lease(len(returns), time.Hour)
	w := r.workerWith(cfg)
	ended, settled := make(chan end, 100), make(chan signalbox.Settled, 100)
	var started atomic.Int32
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in task) error {
		started.Add(1)
		signalbox.OnSettled(ctx, func(s signalbox.Settled) { settled <- s })
		<-ctx.Done()
		ended <- end{in.N, context.Cause(ctx)}
		switch returns[in.N].name {
		case "a panic":
			panic("boom")
		case "Goexit":
			runtime.Goexit()
		case "its end":
			return ctx.Err()
		}
		return returns[in.N].err
	})
	r.start(w)
	r.idle()
	ids := r.add(make([]signalbox.Job, len(returns))...)
	redistest.Eventually(t, func() bool { return int(started.Load()) == len(returns) }, "all slots are taken")
	late := redistest.Lag(t, r.rdb)
	begin := time.Now()
	r.cancel(ids...)
	for range returns {
		if got := get(t, ended, "the contexts end"); !errors.Is(got.cause, signalbox.ErrCancelled) {
			t.Errorf("%s: the context ended with %v", returns[got.n].name, got.cause)
		}
	}
	if took := time.Since(begin) - late(); took > time.Second {
		t.Errorf("the contexts ended after %v", took)
	}
	for range returns {
		s := get(t, settled, "the deliveries are settled")
		if s.Outcome != signalbox.OutcomeCancelled || !s.Next.IsZero() {
			t.Errorf("%v: settled as %+v", s.Err, s)
		}
	}
	r.cancelled(len(returns))
	if n := int(started.Load()); n != len(returns) {
		t.Errorf("%d handlers were called for %d jobs", n, len(returns))
	}
	for i, id := range ids {
		job := r.job(id)
		if job.Finished != (returns[i].err == nil && returns[i].name == "nil") {
			t.Errorf("%s: finished is %v", returns[i].name, job.Finished)
		}
		if job.Attempt != 1 {
			t.Errorf("%s: an attempt was used", returns[i].name)
		}
	}
	if n := r.log.count("INFO", "the handler of a job has returned whose cancel was asked for"); n == 0 {
		t.Error("the log doesn't say that handlers returned")
	}
	if n := r.log.count("INFO", "a job is cancelled, as was asked for while it ran", "kind=task", "attempt=1"); n != len(returns)-1 { // of all but the one that asks for it, too
		t.Errorf("the log says of %d jobs that they are cancelled", n)
	}
	if n := r.log.count("is given back") + r.log.count("WARN"); n > 0 {
		t.Errorf("%d other log lines", n)
	}
}

// 1,000 jobs run in workers without a free slot, more wait, and all that run are cancelled at once. No one runs again, and the
// others run.
func TestCancelThousand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const workers, slots, more = 4, 250, 100
	const n = workers * slots
	var mu sync.Mutex
	runs := make(map[string]int)
	running, ended := make(chan string, n+more), make(chan error, n)
	var cancelling atomic.Bool
	for range workers {
		w := r.workerWith(r.lease(slots, time.Hour))
		worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
			mu.Lock()
			runs[job.ID]++
			mu.Unlock()
			if cancelling.Load() {
				return nil
			}
			running <- job.ID
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		})
		r.start(w)
	}
	r.idleClients(workers)
	r.add(make([]signalbox.Job, n)...)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = get(t, running, "1,000 jobs run")
	}
	r.add(make([]signalbox.Job, more)...)
	cancelling.Store(true)
	begin := time.Now()
	r.cancel(ids...)
	t.Logf("the call took %v", time.Since(begin))
	for range n {
		if cause := get(t, ended, "the contexts end"); !errors.Is(cause, signalbox.ErrCancelled) {
			t.Fatalf("a context ended with %v", cause)
		}
	}
	t.Logf("all contexts ended after %v", time.Since(begin))
	r.until("the others run", func(c looks.Counts) bool {
		return c.Total == looks.Totals{Enqueued: n + more, Completed: more, Cancelled: n} && c.Running == 0
	})
	mu.Lock()
	defer mu.Unlock()
	for _, id := range ids {
		if runs[id] != 1 {
			t.Errorf("job %s ran %d times", id, runs[id])
		}
	}
}

// waiter starts a worker with one job, which runs until its context ends, and returns what ends its context.
func (r *rig) waiter(rdb redis.UniversalClient, cfg worker.Config, ready func()) (id string, ended <-chan error, run *run) {
	r.Helper()
	w := r.workerOn(rdb, cfg)
	running, ends := make(chan struct{}, 10), make(chan error, 10)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		running <- struct{}{}
		<-ctx.Done()
		ends <- context.Cause(ctx)
		return ctx.Err()
	})
	run = r.start(w)
	ready()
	id = r.addOne(signalbox.Job{})
	get(r.T, running, "the only slot is taken")
	return id, ends, run
}

// The connection that should bring the message is cut at that moment. The worker looks when it has another.
func TestCancelOverALostConnection(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	proxy := redistest.NewProxy(t, server.Addr())
	id, ended, _ := r.waiter(proxy.Client(), r.lease(1, time.Hour), r.idle)
	proxy.Pause()
	r.cancel(id)
	begin := time.Now()
	proxy.Sever()
	proxy.Resume()
	if cause := get(t, ended, "the context ends"); !errors.Is(cause, signalbox.ErrCancelled) {
		t.Errorf("the context ended with %v", cause)
	}
	if d := time.Since(begin); d > prompt {
		t.Errorf("it took %v: a fallback found it", d)
	}
	r.cancelled(1)
}

// A worker that can't subscribe finds what was cancelled when it renews its session.
func TestCancelWithoutASubscription(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	proxy.Reply(redistest.Command("SUBSCRIBE"), "-ERR not now", -1)
	id, ended, _ := r.waiter(proxy.Client(), r.short(1), r.ready)
	r.cancel(id)
	if cause := get(t, ended, "the context ends"); !errors.Is(cause, signalbox.ErrCancelled) {
		t.Errorf("the context ended with %v", cause)
	}
	r.cancelled(1)
}

// The worker has gone when its job is cancelled: the one that takes its jobs back doesn't run it.
func TestCancelInADeadWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	id, ended, first := r.waiter(proxy.Client(), r.short(1), r.ready)
	other := r.worker(1)
	ran := r.reporter(other)
	proxy.Pause() // and nothing that its handler returns comes through
	t.Cleanup(proxy.Resume)
	r.cancel(id)
	r.start(other)
	r.cancelled(1)
	if err := get(t, ended, "the context ends"); err == nil {
		t.Error("the context ended without a cause")
	}
	redistest.Eventually(t, func() bool { return r.log.count("a job is cancelled", "its worker has died", id) == 1 }, "the log says so")
	proxy.Resume()
	first.stop() // its settlement is refused
	r.works(ran, "another job runs")
	if n := r.log.count("a job is cancelled", "its worker has died", id); n != 1 {
		t.Errorf("%d log lines of the job", n)
	}
	if job := r.job(id); job.Crashes != 0 || job.Finished {
		t.Errorf("the job's record: %+v", job)
	}
}

// A worker that drains may not hear of it. Its job ends cancelled all the same.
func TestCancelWhileDraining(t *testing.T) {
	t.Parallel()
	for _, returned := range []error{nil, errBoom, signalbox.Snooze(0)} {
		r := newRig(t)
		w := r.worker(1)
		running := make(chan struct{}, 1)
		wait, open := r.gate()
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
			running <- struct{}{}
			<-signalbox.Draining(ctx)
			<-wait
			return returned
		})
		run := r.start(w)
		r.ready()
		id := r.addOne(signalbox.Job{})
		get(t, running, "the job runs")
		run.cancel()
		redistest.Eventually(t, func() bool { return r.log.count("stopping; handlers may end") == 1 }, "the worker drains")
		r.cancel(id)
		open()
		run.stop()
		r.cancelled(1)
	}
}

// A job is cancelled before the reply of the call that claims it has come.
func TestCancelBeforeTheReply(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.lease(1, time.Hour))
	ended := make(chan error, 10)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil
	})
	r.start(w)
	r.ready()
	r.idle()
	held, free := proxy.HoldReplies(r.isClaim())
	id := r.addOne(signalbox.Job{})
	get(t, held, "the reply is held")
	r.until("the job is claimed", func(c looks.Counts) bool { return c.Running == 1 })
	r.cancel(id)
	free()
	r.cancelled(1)
	select {
	case cause := <-ended:
		if !errors.Is(cause, signalbox.ErrCancelled) {
			t.Errorf("the context ended with %v", cause)
		}
	default: // the message was there before the handler, which was not called
	}
}

// If Redis has forgotten the mark, the message was only a hint: the job runs again.
func TestCancelForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	var runs atomic.Int32
	ended := make(chan error, 10)
	wait, open := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		if runs.Add(1) > 1 {
			return nil
		}
		<-ctx.Done()
		ended <- context.Cause(ctx)
		<-wait
		return ctx.Err()
	})
	r.start(w)
	r.ready()
	id := r.addOne(signalbox.Job{})
	r.until("the job runs", func(looks.Counts) bool { return runs.Load() == 1 })
	r.cancel(id)
	get(t, ended, "the context ends")
	ctx := context.Background()
	session := r.rdb.ZRange(ctx, r.key("sessions"), 0, -1).Val()[0]
	value := r.rdb.HGet(ctx, r.key("inflight:"+session), id).Val()
	r.rdb.HSet(ctx, r.key("inflight:"+session), id, value[:len(value)-len(" c")])
	r.rdb.Del(ctx, r.key("cancels"))
	open()
	r.completed(1)
	if n := runs.Load(); n != 2 {
		t.Errorf("the job ran %d times", n)
	}
}
