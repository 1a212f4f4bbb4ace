package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/worker"
)

const lostMemory = "ERROR signalbox: Redis has lost memory"

// Redis loses its memory of what it had answered. The log reports that once, and doesn't blame another worker.
func TestLogOfLostMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ttl  time.Duration
		lose func(t *testing.T, r *rig, server *redistest.Server)
		mute bool // the handlers return before the loss is noticed
	}{
		"flushed, heard by the keeper": {ttl: shortTTL, lose: flush},
		"flushed, heard by a lane":     {ttl: 30 * time.Second, lose: flush, mute: true},
		"restored from an older copy": {30 * time.Second, func(_ *testing.T, _ *rig, server *redistest.Server) {
			server.Kill()
			server.Restart()
		}, true},
		"restored after the lease": {3 * time.Second, func(t *testing.T, r *rig, server *redistest.Server) {
			server.Kill()
			redistest.Eventually(t, func() bool { return r.log.count("a job is given back") == 2 }, "the lease has ended")
			server.Restart()
		}, false},
		"only what runs was deleted": {30 * time.Second, func(t *testing.T, r *rig, _ *redistest.Server) {
			session := r.rdb.ZRange(t.Context(), r.key("sessions"), 0, -1).Val()[0]
			r.rdb.Del(t.Context(), r.key("inflight:"+session), r.key("jobs"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			r := newRigOn(t, server.Client())
			w := r.workerWith(r.lease(2, c.ttl))
			began, causes := make(chan struct{}, 10), make(chan error, 10)
			release, end := r.gate()
			worker.Handle(w, func(ctx context.Context, job *signalbox.Job, a task) error {
				if job.ID != "1" && job.ID != "2" {
					return nil
				}
				began <- struct{}{}
				if !c.mute {
					<-ctx.Done()
					causes <- context.Cause(ctx)
					return ctx.Err()
				}
				<-release
				return nil
			})
			r.start(w)
			for n := range 5 { // so that each lane has made calls
				r.addOne(signalbox.Job{})
				r.completed(n + 1)
			}
			if err := r.rdb.Save(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			for n := range 5 {
				r.addOne(signalbox.Job{})
				r.completed(n + 6)
			}
			r.add(signalbox.Job{ID: "1"}, signalbox.Job{ID: "2"})
			get(t, began, "the first runs")
			get(t, began, "the second runs")
			c.lose(t, r, server)
			end()

			r.log.says(t, lostMemory, "forgotten=a (call|lease|delivery)", "answered=.+")
			redistest.Eventually(t, func() bool { return r.log.count("superseded delivery was refused") == 2 }, "both are refused")
			if n := r.log.count("superseded delivery was refused: Redis has lost its memory of it"); n != 2 {
				t.Errorf("%d refusals are explained by it, want 2", n)
			}
			if !c.mute {
				for range 2 {
					if err := get(t, causes, "a context ends"); !errors.Is(err, lock.ErrLost) {
						t.Errorf("cause %v, want lock.ErrLost", err)
					}
				}
			}
			// It continues in a new session.
			before := r.counts().Total.Completed
			for n := range 3 {
				r.addSoon()
				r.until("a job after that is completed", func(s looks.Counts) bool { return s.Total.Completed == before+int64(n)+1 })
			}
			if n := r.log.count(lostMemory); n != 1 {
				t.Errorf("the log says so %d times, want once", n)
			}
		})
	}
}

func flush(t *testing.T, r *rig, _ *redistest.Server) {
	if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
}

// The handlers' contexts end with a cause that says what happened.
func TestCauseOfLostMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRigOn(t, server.Client())
	w := r.workerWith(r.short(1))
	began, causes := make(chan struct{}, 1), make(chan error, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	r.start(w)
	r.addOne(signalbox.Job{})
	get(t, began, "the job runs")
	flush(t, r, server)
	const want = "lock: lease lost: Redis has lost its memory of it"
	if err := get(t, causes, "its context ends"); !errors.Is(err, lock.ErrLost) || err.Error() != want {
		t.Errorf("cause %q, want %q", err, want)
	}
	r.log.says(t, "a job is given back", "cause="+want)
	r.log.says(t, "the lease was lost", "cause="+want)
}

// A lease wasn't renewed in time, and other workers took the jobs. That is not reported as lost memory.
func TestLostLeaseIsNoLostMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	cut := r.workerOn(proxy.Client(), r.lease(2, 2*time.Second))
	began := make(chan struct{}, 2)
	release, end := r.gate()
	worker.Handle(cut, func(context.Context, *signalbox.Job, task) error {
		began <- struct{}{}
		<-release
		return nil
	})
	r.start(cut)
	r.add(signalbox.Job{}, signalbox.Job{})
	get(t, began, "the first runs")
	get(t, began, "the second runs")

	held, let := proxy.HoldRequests(func(cmd []string) bool { return r.isRenew()(cmd) || r.isClaim()(cmd) })
	get(t, held, "no call passes")
	other := r.worker(2)
	ran := make(chan string, 10)
	worker.Handle(other, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- job.ID
		return nil
	})
	r.start(other)
	get(t, ran, "the first runs elsewhere")
	get(t, ran, "the second runs elsewhere")
	end()
	let()
	redistest.Eventually(t, func() bool {
		return r.log.count("superseded delivery was refused: the job has been taken over") == 2
	}, "both are refused")
	if n := r.log.count("lost memory") + r.log.count("lost its memory"); n != 0 {
		t.Errorf("%d entries speak of lost memory", n)
	}
}

// A worker closed a session while it was being renewed. That is not reported as lost memory.
func TestClosedSessionIsNoLostMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	w := r.workerOn(proxy.Client(), r.short(1))
	began := make(chan struct{}, 1)
	release, end := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		began <- struct{}{}
		<-ctx.Done()
		<-release
		return nil
	})
	r.start(w)
	r.addOne(signalbox.Job{})
	get(t, began, "the job runs")
	sessions := func() []string { return r.rdb.ZRange(t.Context(), r.key("sessions"), 0, -1).Val() }
	old := sessions()[0]

	// Redis runs the renewals, but their replies don't arrive. So the session lives on in Redis, and the worker opens another one.
	held, let := proxy.HoldReplies(r.isRenew())
	get(t, held, "a renewal gets no reply")
	r.log.says(t, "the lease was lost")
	let()
	redistest.Eventually(t, func() bool { return len(sessions()) == 2 }, "another session is opened")

	held, let = proxy.HoldRequests(func(cmd []string) bool { return r.isRenew()(cmd) && slices.Contains(cmd, old) })
	get(t, held, "the old session is being renewed")
	end()
	redistest.Eventually(t, func() bool { return !slices.Contains(sessions(), old) }, "the old session is closed")
	before := proxy.Count(r.isRenew())
	let()
	redistest.Eventually(t, func() bool { return proxy.Count(r.isRenew()) >= before+2 }, "the sessions are renewed again")
	if n := r.log.count("lost memory") + r.log.count("lost its memory"); n != 0 {
		t.Errorf("%d entries speak of lost memory", n)
	}
}
