package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/worker"
)

// A lease ends for the handler before it ends in Redis, even if the reply that granted or renewed it came late. It counts from before
// the call.
func TestLeaseCountsFromBeforeTheCall(t *testing.T) {
	t.Parallel()
	for name, renewed := range map[string]bool{"a session that is opened": false, "one that is renewed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			r := newRigOn(t, server.Client())
			proxy := redistest.NewProxy(t, server.Addr())
			w := r.workerOn(proxy.Client(), r.short(1))
			leases := make(chan lock.Lease, 1)
			release, open := r.gate()
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
				lease, _ := lock.FromContext(ctx)
				leases <- lease
				<-release
				return nil
			})
			late := func(held <-chan struct{}, let func()) {
				get(t, held, "the reply is on its way")
				<-time.After(500 * time.Millisecond) // eight times the allowance for the drift of clocks
				let()
			}
			r.addOne(signalbox.Job{})
			var lease lock.Lease
			if renewed {
				r.start(w)
				lease = get(t, leases, "the job runs")
				before := lease.Until()
				late(proxy.HoldReplies(r.isRenew()))
				redistest.Eventually(t, func() bool { return lease.Until().After(before) }, "the lease is renewed")
			} else {
				// The server already has the script, so the held call is the session's own.
				if _, _, err := r.queue.Sessions().Renew(context.Background(), "none", time.Second, ""); err != nil {
					t.Fatal(err)
				}
				held, let := proxy.HoldReplies(r.isRenew())
				r.start(w)
				late(held, let)
				lease = get(t, leases, "the job runs")
			}
			until := lease.Until() // read before Redis, where the lease may be renewed again meanwhile
			sessions := r.rdb.ZRangeWithScores(context.Background(), r.key("sessions"), 0, -1).Val()
			if len(sessions) != 1 {
				t.Fatalf("%d sessions", len(sessions))
			}
			if end := time.UnixMicro(int64(sessions[0].Score)); until.After(end) {
				t.Errorf("for the handler it ends %v later than in Redis", until.Sub(end))
			}
			open()
			r.completed(1)
		})
	}
}

// A handler's context ends when the handler has returned, even if nothing waits for that. The contexts of other handlers continue.
func TestContextEndsWithTheDelivery(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]bool{"what the handler left behind waits": true, "nobody waits": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			w := r.worker(2)
			left, causes := make(chan context.Context, 1), make(chan error, 1)
			release, open := r.gate()
			worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
				if job.ID == "long" {
					<-release
					return context.Cause(ctx)
				}
				if wait {
					context.AfterFunc(ctx, func() { causes <- context.Cause(ctx) })
				}
				left <- ctx
				return nil
			})
			r.start(w)
			r.addOne(signalbox.Job{ID: "long"})
			r.addOne(signalbox.Job{})
			ctx := get(t, left, "the job runs")
			redistest.Eventually(t, func() bool { return r.counts().Total.Completed == 1 }, "the job is done")
			if ctx.Err() == nil || context.Cause(ctx) != context.Canceled {
				t.Errorf("after the job is done: %v, cause %v", ctx.Err(), context.Cause(ctx))
			}
			if wait {
				if cause := get(t, causes, "the end is heard of"); cause != context.Canceled {
					t.Errorf("the cause is %v", cause)
				}
			}
			open()
			r.completed(2)
		})
	}
}

// The worker stops, or loses its lease, during a job's last attempt. If the handler returns an error, the job isn't dead because of it.
// If the handler returns a decision, the decision counts.
func TestLastAttemptAndTheEndOfTheLease(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		returns             func(ctx context.Context) error
		ready, due, dead    int64
		completed, canceled int64
	}{
		"error":                {func(ctx context.Context) error { return ctx.Err() }, 1, 0, 0, 0, 0},
		"an error of its own":  {func(context.Context) error { return errBoom }, 1, 0, 0, 0, 0},
		"panic":                {func(context.Context) error { panic("boom") }, 1, 0, 0, 0, 0},
		"nil":                  {func(context.Context) error { return nil }, 0, 0, 0, 1, 0},
		"snooze":               {func(context.Context) error { return signalbox.Snooze(time.Hour) }, 0, 1, 0, 0, 0},
		"cancel":               {func(context.Context) error { return signalbox.Cancel(errBoom) }, 0, 0, 0, 0, 1},
		"an error that is its": {nil, 0, 0, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			cfg := r.patient(1)
			cfg.DrainTimeout = -1
			w := r.workerWith(cfg)
			began := make(chan struct{})
			worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
				close(began)
				if c.returns == nil { // before the context ends
					return errBoom
				}
				<-ctx.Done()
				return c.returns(ctx)
			})
			r.addOne(signalbox.Job{MaxAttempts: 1})
			run := r.start(w)
			get(t, began, "the job runs")
			if c.returns == nil {
				redistest.Eventually(t, func() bool { return r.counts().Dead == 1 }, "it is dead")
			}
			run.stop()
			got := r.counts()
			if got.Ready != c.ready || got.Due != c.due || got.Dead != c.dead || got.Total.Completed != c.completed || got.Cancelled != c.canceled {
				t.Errorf("counts %+v", got)
			}
		})
	}
}

// The same for a lost lease: no other worker has taken the job, and it isn't dead.
func TestLastAttemptAndALostLease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.lease(1, 3*time.Second))
	attempts := make(chan int, 10)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		attempts <- job.Attempt
		if len(attempts) == 1 {
			<-ctx.Done()
			return errBoom
		}
		return nil
	})
	r.addOne(signalbox.Job{MaxAttempts: 1})
	held, let := proxy.HoldRequests(func(cmd []string) bool { return r.isRenew()(cmd) && len(attempts) > 0 })
	r.start(w)
	get(t, held, "the lease is not renewed")
	r.log.says(t, "a job is given back")
	let()
	r.completed(1)
	if c := r.counts(); c.Dead != 0 || len(attempts) < 2 {
		t.Errorf("%d attempts, counts %+v", len(attempts), c)
	}
}

// Terminal jobs that were kept for long enough are dropped, even if no new one exceeds the limits.
func TestOldDeadJobsAreSwept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ctx := context.Background()
	w := r.worker(2)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return errBoom })
	old := r.addOne(signalbox.Job{MaxAttempts: 1})
	run := r.start(w)
	r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	run.stop()
	long := time.Now().Add(-31 * 24 * time.Hour)
	if err := r.rdb.ZAddXX(ctx, r.key("dead"), redis.Z{Score: float64(long.UnixMicro()), Member: old}).Err(); err != nil {
		t.Fatal(err)
	}
	next := r.worker(2)
	worker.Handle(next, func(context.Context, *signalbox.Job, task) error { return nil })
	r.start(next)
	r.until("the old one is dropped", func(c looks.Counts) bool { return c.Dead == 0 })
	if n := r.rdb.HLen(ctx, r.key("jobs")).Val(); n != 0 {
		t.Errorf("%d records are left", n)
	}
}

// A handler may change its job. Its lease remains that of the delivery.
func TestLeaseOfAChangedJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	type grant struct {
		key   string
		token int64
	}
	grants := make(chan grant, 2)
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		lease, _ := lock.FromContext(ctx)
		grants <- grant{lease.Key(), lease.Token()}
		job.ID, job.Queue, job.Token = "other", "other", 0
		grants <- grant{lease.Key(), lease.Token()}
		return nil
	})
	r.start(w)
	id := r.addOne(signalbox.Job{})
	before := get(t, grants, "the job runs")
	if after := get(t, grants, "it has changed its job"); before.key != r.name()+"/"+id || after != before {
		t.Errorf("the lease is of %v, and then of %v", before, after)
	}
	r.completed(1)
}
