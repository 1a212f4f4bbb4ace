package worker_test

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/store/scripts"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A sequel is a job that follows another one.
type sequel struct {
	Of string `json:"of"`
	N  int    `json:"n"`
}

func (sequel) Kind() string { return "sequel" }

// A handler that fails, snoozes, panics or cancels has no follow-ups, and one that returns nil has one set of them.
func TestThenFollowsTheCompletion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(4)
	var ran, of atomic.Int64
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		job.ID, job.Queue = "another", "another" // its own copy
		for n := range 2 {
			if err := scheduler.Then(ctx, sequel{Of: "a", N: n}, scheduler.Header("n", fmt.Sprint(n))); err != nil {
				return signalbox.Dead(err)
			}
		}
		switch ran.Add(1) {
		case 1:
			return errBoom
		case 2:
			panic("boom")
		case 3:
			return signalbox.Snooze(0)
		}
		return nil
	}, worker.Retry(worker.Constant(0)))
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, in sequel) error {
		of.Add(1)
		if in.Of != "a" || job.Headers["n"] != fmt.Sprint(in.N) || job.Queue != r.name() || job.Attempt != 1 {
			t.Errorf("%+v of %+v", job, in)
		}
		return nil
	})
	settled := make(chan signalbox.Settled, 8)
	w.Use(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			if job.Kind == (task{}).Kind() {
				signalbox.OnSettled(ctx, func(s signalbox.Settled) { settled <- s })
			}
			return next.Handle(ctx, job)
		})
	})
	id := r.addOne(signalbox.Job{Kind: "task", Payload: []byte(`{}`)})
	r.start(w)
	r.completed(3)
	if c := r.counts(); c.Total.Enqueued != 3 || ran.Load() != 4 || of.Load() != 2 {
		t.Errorf("%d deliveries, %d of follow-ups, counts %+v", ran.Load(), of.Load(), c.Total)
	}
	for _, want := range []signalbox.Outcome{signalbox.OutcomeRetried, signalbox.OutcomeRetried, signalbox.OutcomeSnoozed, signalbox.OutcomeCompleted} {
		if s := <-settled; s.Outcome != want {
			t.Errorf("a delivery of %s ended %s, want %s", id, s.Outcome, want)
		}
	}
}

// What can't be a follow-up is an error that says what to do. The others are put in all the same if the handler goes on.
func TestThenRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	var left context.Context
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		left = ctx
		for what, c := range map[string]struct {
			err  error
			want string
		}{
			"another queue": {scheduler.Then(ctx, sequel{}, scheduler.Queue("other")), `invalid Queue: other; a follow-up goes into the queue of its job, which is ` + r.name()},
			"durability":    {scheduler.Then(ctx, sequel{}, scheduler.WaitReplicas(1, time.Second)), "WaitReplicas"},
			"no arguments":  {scheduler.Then(ctx, nil), "invalid args: nil"},
			"a wrong ID":    {scheduler.Then(ctx, sequel{}, scheduler.ID("a b")), "invalid"},
		} {
			if c.err == nil || !errors.Is(c.err, signalbox.ErrInvalid) || !strings.Contains(c.err.Error(), c.want) {
				t.Errorf("%s: %v, want %s", what, c.err, c.want)
			}
		}
		large := sequel{Of: strings.Repeat("x", 600<<10)}
		if err := errors.Join(scheduler.Then(ctx, large), scheduler.Then(ctx, sequel{}, scheduler.Queue(r.name()))); err != nil {
			t.Error(err)
		}
		if err := scheduler.Then(ctx, large); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "at most 1048576 are allowed") {
			t.Errorf("the second large one: %v", err)
		}
		for range scheduler.MaxFollowUps {
			if err := scheduler.Then(ctx, sequel{}); errors.Is(err, signalbox.ErrInvalid) && strings.Contains(err.Error(), "the delivery has 500") {
				return nil
			} else if err != nil {
				t.Error(err)
			}
		}
		return errors.New("there are too many")
	})
	w.HandleKind("sequel", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }))
	r.add(signalbox.Job{Kind: "task", Payload: []byte(`{}`)})
	run := r.start(w)
	r.until("all have completed", func(c looks.Counts) bool { return c.Total.Completed > 400 && c.Ready+c.Running+c.Due == 0 })
	run.stop()
	if err := scheduler.Then(left, sequel{}); !errors.Is(err, signalbox.ErrSuperseded) {
		t.Errorf("after its end: %v", err)
	}
	if err := scheduler.Then(t.Context(), sequel{}); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("outside of a handler: %v", err)
	}
}

// A thens is a hook of a client that is asked what to do about each completion: before it is sent, or once it was answered.
type thens struct {
	unlimited
	before, after func() error
}

type unlimited struct{}

func (unlimited) DialHook(next redis.DialHook) redis.DialHook { return next }

func (unlimited) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h thens) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		if hash := scripts.Then.Lua().Hash(); len(args) < 2 || args[1] != hash && fmt.Sprintf("%x", sha1.Sum(fmt.Append(nil, args[1]))) != hash { // EVAL has the text
			return next(ctx, cmd)
		}
		err := h.before()
		if err == nil {
			if err = next(ctx, cmd); err == nil {
				err = h.after()
			}
		}
		if err != nil {
			cmd.SetErr(err)
		}
		return err
	}
}

// The reply of a completion is lost, several times: the worker makes the call again, and hears what the first one did.
func TestThenReplyIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rdb := redistest.Start(t).Client()
	var lost atomic.Int64
	rdb.AddHook(thens{before: func() error { return nil }, after: func() error {
		if lost.Add(1)%3 > 0 {
			return errors.New("the connection broke")
		}
		return nil
	}})
	w := r.workerOn(rdb, r.config(3))
	outcomes := make(chan signalbox.Outcome, 10)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		signalbox.OnSettled(ctx, func(s signalbox.Settled) { outcomes <- s.Outcome })
		return scheduler.Then(ctx, sequel{})
	})
	worker.Handle(w, func(context.Context, *signalbox.Job, sequel) error { return nil })
	r.add(make([]signalbox.Job, 10)...)
	r.start(w)
	r.completed(20)
	if c := r.counts(); c.Total.Enqueued != 20 || lost.Load() < 20 {
		t.Errorf("%d replies, counts %+v", lost.Load(), c.Total)
	}
	for range 10 {
		if o := <-outcomes; o != signalbox.OutcomeCompleted {
			t.Errorf("a delivery ended %s", o)
		}
	}
}

// A denial is an error that Redis answers with.
type denial string

func (d denial) Error() string { return string(d) }
func (denial) RedisError()     {}

// A user who may not put jobs in has jobs with follow-ups put back. Others go on.
func TestThenIsDenied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rdb := redistest.Start(t).Client()
	rdb.AddHook(thens{before: func() error { return denial("NOPERM signalbox: the Redis user may not run RPUSH") }})
	w := r.workerOn(rdb, r.config(1))
	outcomes := make(chan signalbox.Outcome, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		signalbox.OnSettled(ctx, func(s signalbox.Settled) { outcomes <- s.Outcome })
		return scheduler.Then(ctx, sequel{N: 1})
	})
	worker.Handle(w, func(context.Context, *signalbox.Job, sequel) error { return nil })
	r.add(signalbox.Job{}, signalbox.Job{Kind: "sequel", Payload: []byte(`{}`)})
	r.start(w)
	r.until("the job is put back", func(c looks.Counts) bool { return c.Due == 1 && c.Total.Completed == 1 })
	if o := <-outcomes; o != signalbox.OutcomeReturned {
		t.Errorf("it ended %s", o)
	}
	if c := r.counts(); c.Total.Enqueued != 2 || r.log.count("Redis refuses the follow-ups of a job") != 1 {
		t.Errorf("counts %+v", c.Total)
	}
	if r.log.count("is made again") != 0 {
		t.Error("the log says that the refused call is made again")
	}
}

// The same, and meanwhile the lease is lost: the session has the job to settle yet, and then the queue goes on under another.
func TestThenIsDeniedAndTheLeaseLost(t *testing.T) {
	t.Parallel()
	srv := redistest.New(t)
	r := newRigOn(t, srv.Client())
	rdb := srv.Client()
	asked, lost := make(chan struct{}), make(chan struct{})
	ask, open := sync.OnceFunc(func() { close(asked) }), sync.OnceFunc(func() { close(lost) })
	rdb.AddHook(thens{before: func() error {
		ask()
		<-lost
		return denial("NOPERM signalbox: the Redis user may not run RPUSH")
	}})
	t.Cleanup(open)
	w := r.workerOn(rdb, r.short(2))
	outcomes, other := make(chan signalbox.Outcome, 1), make(chan signalbox.Outcome, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		signalbox.OnSettled(ctx, func(s signalbox.Settled) { outcomes <- s.Outcome })
		return scheduler.Then(ctx, sequel{N: 1})
	})
	waits := make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in sequel) error {
		if in.N == 1 { // until the lease is lost
			signalbox.OnSettled(ctx, func(s signalbox.Settled) { other <- s.Outcome })
			close(waits)
			<-ctx.Done()
		}
		return nil
	})
	r.add(signalbox.Job{}, signalbox.Job{Kind: "sequel", Payload: []byte(`{"N":1}`)})
	run := r.start(w)
	get(t, waits, "the other job runs")
	get(t, asked, "the follow-up is asked for")
	if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	get(t, other, "the lease is lost, and all else is settled")
	open()
	if o := get(t, outcomes, "it is refused"); o != signalbox.OutcomeSuperseded {
		t.Errorf("it ended %s", o)
	}
	r.add(signalbox.Job{Kind: "sequel", Payload: []byte(`{}`)})
	r.completed(1)
	run.stop()
}

// Steps that finish in one goroutine of a handler change nothing of what another one reads of the job: it is the race detector that would say so.
func TestStepsBesideThen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(4)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		saved := make(chan error, 1)
		go func() {
			_, err := signalbox.Step(ctx, "a", func(context.Context) (int, error) { return 1, nil })
			saved <- err
		}()
		if _, ok := scheduler.BatchOf(ctx); ok {
			t.Error("it is of a batch")
		}
		return errors.Join(scheduler.Then(ctx, sequel{}), <-saved)
	})
	worker.Handle(w, func(context.Context, *signalbox.Job, sequel) error { return nil })
	r.add(make([]signalbox.Job, 50)...)
	r.start(w)
	r.completed(100)
}

// A job that is cancelled while it runs, and one whose lease is lost, have no follow-ups.
func TestThenOfACancelledJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	started, outcome := make(chan struct{}), make(chan signalbox.Outcome, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		signalbox.OnSettled(ctx, func(s signalbox.Settled) { outcome <- s.Outcome })
		if err := scheduler.Then(ctx, sequel{}); err != nil {
			return err
		}
		close(started)
		<-ctx.Done()
		return nil
	})
	id := r.addOne(signalbox.Job{})
	r.start(w)
	<-started
	r.cancel(id)
	if o := <-outcome; o != signalbox.OutcomeCancelled {
		t.Errorf("it ended %s", o)
	}
	if c := r.counts(); c.Total.Enqueued != 1 || c.Cancelled != 1 {
		t.Errorf("counts %+v", c)
	}
}

// Each delivery in a call of HandleMany has its own follow-ups. Middleware can add some.
func TestThenOfMany(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(4)
	worker.HandleMany(w, func(_ context.Context, jobs []*worker.Each[task]) error {
		for i, e := range jobs {
			if err := scheduler.Then(e.Context(), sequel{Of: e.Job.ID}, scheduler.ID("after-"+e.Job.ID)); err != nil {
				t.Error(err)
			}
			if i == 0 {
				e.Return(signalbox.Cancel(errBoom))
			}
		}
		return nil
	}, worker.UpTo(4, time.Minute), worker.With(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			return errors.Join(next.Handle(ctx, job), scheduler.Then(ctx, sequel{N: 1}, scheduler.After(time.Hour)))
		})
	}), worker.With(middleware.Recover()))
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, in sequel) error {
		if job.ID != "after-"+in.Of {
			t.Errorf("job %s follows %s", job.ID, in.Of)
		}
		return nil
	})
	r.add(make([]signalbox.Job, 4)...)
	r.start(w)
	r.until("three jobs have completed, with their follow-ups", func(c looks.Counts) bool { return c.Total.Completed == 6 && c.Due == 3 })
	if c := r.counts(); c.Total.Enqueued != 10 || c.Cancelled != 1 {
		t.Errorf("counts %+v", c)
	}
}

// A follow-up's span is a child of its maker's handler.
func TestThenIsTraced(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	w := r.workerWith(r.config(1))
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error { return scheduler.Then(ctx, sequel{}) })
	worker.Handle(w, func(context.Context, *signalbox.Job, sequel) error { return nil })
	r.add(signalbox.Job{})
	r.start(w)
	r.completed(2)
	handle, enqueue, process := r.named("handle task"), r.n("enqueue", 1), r.n("process", 2)
	if len(handle) != 1 || enqueue[0].Parent.SpanID() != handle[0].SpanContext.SpanID() {
		t.Errorf("the follow-up is enqueued below %v, its maker was handled in %v", enqueue[0].Parent, handle)
	}
	if process[1].Parent.SpanID() != enqueue[0].SpanContext.SpanID() {
		t.Errorf("it runs below %v", process[1].Parent)
	}
	if process[1].SpanContext.TraceID() != process[0].SpanContext.TraceID() {
		t.Errorf("it runs in another trace: %v, %v", process[1].SpanContext, process[0].SpanContext)
	}
}

// Workers are killed while their jobs complete. In the end each job has one follow-up.
func TestThenThenKill(t *testing.T) {
	t.Parallel()
	const kills, orders, slots = 6, 60, 10
	const n = kills * orders
	r := newRig(t)
	for range kills {
		c := r.child(slots, 3*time.Second)
		r.orders(orders, order{Do: "then"})
		for range slots {
			c.await("end")
		}
		c.kill()
	}
	r.child(slots, 3*time.Second)
	r.until("all have completed", func(c looks.Counts) bool { return c.Total.Completed >= 2*n })
	if c := r.counts(); c.Total.Enqueued != 2*n || c.Total.Completed != 2*n || c.Dead > 0 {
		t.Errorf("counts %+v, want %d jobs, each with a follow-up", c, n)
	}
}
