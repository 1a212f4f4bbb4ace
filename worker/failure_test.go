package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// rehearsal returns a worker of a configuration, with a handler that returns what end does, and a job for it.
func rehearsal(t *testing.T, cfg worker.Config, end func(*signalbox.Job) error, opts ...worker.Option) (*signalboxtest.Jobs, *worker.Worker, *signalbox.Job) {
	t.Helper()
	return rehearsalOf(t, cfg, func(_ context.Context, job *signalbox.Job) error { return end(job) }, opts...)
}

// rehearsalOf is rehearsal with a handler that has its context.
func rehearsalOf(t *testing.T, cfg worker.Config, handle func(context.Context, *signalbox.Job) error, opts ...worker.Option) (*signalboxtest.Jobs, *worker.Worker, *signalbox.Job) {
	t.Helper()
	jobs := signalboxtest.New(t)
	cfg.Logger = slog.New(slog.DiscardHandler)
	w, err := worker.New(jobs.Client(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error { return handle(ctx, job) }, opts...)
	return jobs, w, jobs.NewJob(task{})
}

// An overloaded is an error of a client that knows when the server is back.
type overloaded struct{ wait time.Duration }

func (overloaded) Error() string               { return "overloaded" }
func (o overloaded) RetryAfter() time.Duration { return o.wait }

// An error that says when to come back counts more than the policy, within a bound.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	policy := worker.Retry(worker.Constant(7 * time.Second))
	for name, c := range map[string]struct {
		err  error
		want time.Duration
	}{
		"of signalbox":  {signalbox.RetryAfter(time.Minute, errBoom), time.Minute},
		"of the user's": {overloaded{time.Hour}, time.Hour},
		"wrapped":       {fmt.Errorf("call: %w", errors.Join(errBoom, overloaded{time.Hour})), time.Hour},
		"too long":      {overloaded{365 * 24 * time.Hour}, 24 * time.Hour},
		"nothing":       {overloaded{0}, 7 * time.Second},
		"negative":      {overloaded{-time.Hour}, 7 * time.Second},
		"none":          {errBoom, 7 * time.Second},
	} {
		jobs, w, job := rehearsal(t, worker.Config{}, func(*signalbox.Job) error { return c.err }, policy)
		v := jobs.Work(t.Context(), w, job)
		if v.Outcome != signalbox.OutcomeRetried || v.Delay != c.want || v.Next.Attempt != 2 {
			t.Errorf("%s: %v", name, v)
		}
	}
	if err := signalbox.RetryAfter(time.Minute, errBoom); err.Error() != errBoom.Error() || !errors.Is(err, errBoom) {
		t.Errorf("error %v", err)
	}
}

// An error that is final, by itself or by the kind's classifier, makes the job dead at its first attempt.
func TestFinalErrors(t *testing.T) {
	t.Parallel()
	declined := errors.New("declined")
	is := worker.Terminal(func(err error) bool { return errors.Is(err, declined) })
	panics := worker.Terminal(func(err error) bool { _, ok := errors.AsType[*signalbox.PanicError](err); return ok })
	refusals := worker.Terminal(func(err error) bool { _, ok := errors.AsType[*signalbox.PayloadError](err); return ok })
	all := worker.Terminal(func(error) bool { return true })
	for name, c := range map[string]struct {
		end     func() error
		opts    []worker.Option
		payload string
		want    signalbox.Outcome
		message string
	}{
		"Dead":               {end: func() error { return signalbox.Dead(declined) }, want: signalbox.OutcomeDead, message: "declined"},
		"Dead, wrapped":      {end: func() error { return fmt.Errorf("charge: %w", signalbox.Dead(declined)) }, want: signalbox.OutcomeDead, message: "charge: declined"},
		"Dead of nil":        {end: func() error { return signalbox.Dead(nil) }, want: signalbox.OutcomeDead, message: "the handler gave the job up"},
		"classified":         {end: func() error { return fmt.Errorf("charge: %w", declined) }, opts: []worker.Option{is}, want: signalbox.OutcomeDead, message: "charge: declined"},
		"by the second":      {end: func() error { return declined }, opts: []worker.Option{panics, is}, want: signalbox.OutcomeDead, message: "declined"},
		"not classified":     {end: func() error { return errBoom }, opts: []worker.Option{is}, want: signalbox.OutcomeRetried, message: errBoom.Error()},
		"panic":              {end: func() error { panic("boom") }, opts: []worker.Option{panics}, want: signalbox.OutcomeDead, message: "handler panicked: boom"},
		"refused":            {payload: `{"N":"x"}`, opts: []worker.Option{refusals}, want: signalbox.OutcomeDead},
		"snoozed all same":   {end: func() error { return signalbox.Snooze(time.Hour) }, opts: []worker.Option{all}, want: signalbox.OutcomeSnoozed},
		"cancelled all same": {end: func() error { return signalbox.Cancel(nil) }, opts: []worker.Option{all}, want: signalbox.OutcomeCancelled, message: "job cancelled"},
	} {
		jobs, w, job := rehearsal(t, worker.Config{}, func(*signalbox.Job) error { return c.end() }, c.opts...)
		if c.payload != "" {
			job.Payload = []byte(c.payload)
		}
		v := jobs.Work(t.Context(), w, job)
		if v.Outcome != c.want || c.message != "" && v.Next.LastError != c.message {
			t.Errorf("%s: %v, kept with %q", name, v, v.Next.LastError)
		}
		if want := 1; c.want == signalbox.OutcomeDead && v.Next.Attempt != want+1 {
			t.Errorf("%s: kept with %d failed attempts", name, v.Next.Attempt-1)
		}
	}
}

// What is given back at a shutdown is no failed attempt, whatever the policies say of its error.
func TestShutdownIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		jobs := signalboxtest.New(t)
		cfg := worker.Config{DrainTimeout: -1, Logger: slog.New(slog.DiscardHandler), ErrorHandler: func(_ context.Context, _ *signalbox.Job, err error) error {
			t.Error("the error handler is called")
			return err
		}}
		w, err := worker.New(jobs.Client(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
			<-ctx.Done()
			return ctx.Err()
		}, worker.Terminal(func(error) bool { return true }), worker.RetryFor(time.Nanosecond))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if v := jobs.Work(ctx, w, jobs.NewJob(task{}, scheduler.MaxAttempts(1))); v.Outcome != signalbox.OutcomeReturned {
			t.Error(v)
		}
	})
}

// A delay near the longest there is doesn't count as a short one.
func TestRetryForOfAnEndlessDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		jobs, w, job := rehearsal(t, worker.Config{}, func(*signalbox.Job) error {
			time.Sleep(time.Second)
			return errBoom
		}, worker.Retry(worker.Constant(math.MaxInt64)), worker.RetryFor(time.Hour))
		if v := jobs.Work(t.Context(), w, job); v.Outcome != signalbox.OutcomeDead {
			t.Errorf("%v", v)
		}
	})
}

// A job is retried for as long as RetryFor says, from its enqueueing on, and no attempt begins later.
func TestRetryFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		attempts := 0
		jobs, w, job := rehearsal(t, worker.Config{}, func(*signalbox.Job) error {
			attempts++
			if since := time.Since(began); since > time.Hour {
				t.Errorf("attempt %d begins after %v", attempts, since)
			}
			time.Sleep(time.Second) // counts
			return errBoom
		}, worker.Retry(worker.Constant(10*time.Minute)), worker.RetryFor(time.Hour))
		v := jobs.Work(t.Context(), w, job)
		for v.Outcome == signalbox.OutcomeRetried {
			time.Sleep(v.Delay)
			v = jobs.Work(t.Context(), w, v.Next)
		}
		if took := time.Since(began); took != 50*time.Minute+6*time.Second { // not when the next attempt would begin
			t.Errorf("it is dead after %v", took)
		}
		if attempts != 6 || v.Outcome != signalbox.OutcomeDead || v.Delay != 0 || v.Next.Attempt != 7 || v.Next.LastError != errBoom.Error() {
			t.Errorf("%d attempts, then %v: %+v", attempts, v, v.Next)
		}
	})
}

// Where no worker takes a retry in time, the attempt is not made. The first one is.
func TestRetryForWithoutAWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dead []worker.Failure
		attempts := 0
		cfg := worker.Config{OnDead: func(_ context.Context, f worker.Failure) { dead = append(dead, f) }}
		jobs, w, job := rehearsal(t, cfg, func(*signalbox.Job) error {
			attempts++
			return errBoom
		}, worker.Retry(worker.Constant(10*time.Minute)), worker.RetryFor(time.Hour))

		late := *job
		time.Sleep(2 * time.Hour)
		if v := jobs.Work(t.Context(), w, &late); attempts != 1 || v.Outcome != signalbox.OutcomeDead || v.Next.Attempt != 2 {
			t.Errorf("the first attempt, late: %d made, %v", attempts, v)
		}

		job = jobs.NewJob(task{})
		v := jobs.Work(t.Context(), w, job)
		time.Sleep(2 * time.Hour)
		v = jobs.Work(t.Context(), w, v.Next)
		if attempts != 2 || v.Outcome != signalbox.OutcomeDead || v.Next.Attempt != 2 || v.Next.LastError != errBoom.Error() {
			t.Errorf("the second attempt, late: %d made, %v: %+v", attempts, v, v.Next)
		}
		if len(dead) != 2 || dead[1].Job.ID != job.ID || dead[1].Err == nil {
			t.Errorf("deaths %+v", dead)
		}
	})
}

// An error handler sees each failed attempt as it is, panics included, and what it returns counts.
func TestErrorHandler(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handle func() error // the job's handler
		answer func(error) error
		seen   string // "": it isn't called
		want   signalbox.Outcome
		delay  time.Duration
		kept   string
	}{
		"as it is":     {func() error { return errBoom }, func(err error) error { return err }, "boom", signalbox.OutcomeRetried, time.Second, "boom"},
		"panic":        {func() error { panic("oh") }, func(err error) error { return err }, "handler panicked: oh", signalbox.OutcomeRetried, time.Second, "handler panicked: oh"},
		"to nil":       {func() error { panic("oh") }, func(error) error { return nil }, "handler panicked: oh", signalbox.OutcomeCompleted, 0, ""},
		"to Snooze":    {func() error { return errBoom }, func(error) error { return signalbox.Snooze(time.Minute) }, "boom", signalbox.OutcomeSnoozed, time.Minute, ""},
		"to Cancel":    {func() error { return errBoom }, func(err error) error { return signalbox.Cancel(err) }, "boom", signalbox.OutcomeCancelled, 0, "job cancelled: boom"},
		"to Dead":      {func() error { return errBoom }, func(err error) error { return signalbox.Dead(err) }, "boom", signalbox.OutcomeDead, 0, "boom"},
		"to a time":    {func() error { return errBoom }, func(err error) error { return signalbox.RetryAfter(time.Hour, err) }, "boom", signalbox.OutcomeRetried, time.Hour, "boom"},
		"from Dead":    {func() error { return signalbox.Dead(errBoom) }, func(error) error { return errors.New("again") }, "boom", signalbox.OutcomeRetried, time.Second, "again"},
		"it panics":    {func() error { return errBoom }, func(error) error { panic("no") }, "boom", signalbox.OutcomeRetried, time.Second, "handler panicked: no"},
		"not of nil":   {func() error { return nil }, func(error) error { return errBoom }, "", signalbox.OutcomeCompleted, 0, ""},
		"not a snooze": {func() error { return signalbox.Snooze(time.Minute) }, func(error) error { return errBoom }, "", signalbox.OutcomeSnoozed, time.Minute, ""},
	} {
		seen := ""
		cfg := worker.Config{ErrorHandler: func(_ context.Context, job *signalbox.Job, err error) error {
			seen = err.Error()
			if job.Kind != "task" || job.Attempt != 1 {
				t.Errorf("%s: with job %+v", name, job)
			}
			return c.answer(err)
		}}
		jobs, w, job := rehearsal(t, cfg, func(job *signalbox.Job) error {
			job.Kind = "changed" // the handler's own
			return c.handle()
		}, worker.Retry(worker.Constant(time.Second)))
		v := jobs.Work(t.Context(), w, job)
		kept := ""
		if v.Next != nil {
			kept = v.Next.LastError
		}
		if seen != c.seen || v.Outcome != c.want || v.Delay != c.delay || kept != c.kept {
			t.Errorf("%s: it has seen %q; %v, kept with %q", name, seen, v, kept)
		}
	}
}

// OnRetry and OnDead hear of what happened, with the job and its error.
func TestHooks(t *testing.T) {
	t.Parallel()
	var heard []string
	hook := func(what string) func(context.Context, worker.Failure) {
		return func(_ context.Context, f worker.Failure) {
			heard = append(heard, fmt.Sprintf("%s %d of %s in %v: %v", what, f.Job.Attempt, f.Job.Kind, f.RetryIn, f.Err))
		}
	}
	ends := []error{errBoom, signalbox.Snooze(0), errBoom, errBoom}
	jobs, w, job := rehearsal(t, worker.Config{OnRetry: hook("retry"), OnDead: hook("dead")}, func(*signalbox.Job) error {
		end := ends[0]
		ends = ends[1:]
		return end
	}, worker.Retry(worker.Constant(time.Second)))
	job.MaxAttempts = 3
	for range 4 {
		job = jobs.Work(t.Context(), w, job).Next
	}
	if got := fmt.Sprint(heard); got != "[retry 1 of task in 1s: boom retry 2 of task in 1s: boom dead 3 of task in 0s: boom]" {
		t.Errorf("heard %s", got)
	}
}

// On a real queue too, Run waits for what was to be called; OnDead also hears of a job whose workers died.
func TestHooksOfAWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	poison := r.poison()
	r.die(1)
	deaths := make(chan worker.Failure, 10)
	cfg := r.config(1)
	returned := false
	cfg.OnDead = func(ctx context.Context, f worker.Failure) {
		if ctx.Err() != nil {
			t.Error("its context has ended")
		}
		deaths <- f
	}
	next := make(chan struct{})
	cfg.OnRetry = func(context.Context, worker.Failure) {
		<-next
		for range 10 { // it takes a while
			_ = r.rdb.Ping(context.Background()).Err()
		}
		returned = true
	}
	w := r.workerWith(cfg)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		return errBoom
	}, worker.Retry(worker.Constant(time.Hour)))
	run := r.start(w)
	if f := get(t, deaths, "OnDead hears of the crash"); f.Job.ID != poison || f.Job.Crashes != store.CrashLimit || f.Job.Kind != "task" || !errors.Is(f.Err, signalbox.ErrCrashed) {
		t.Errorf("death %+v", f)
	}
	dead := r.addOne(signalbox.Job{MaxAttempts: 1})
	if f := get(t, deaths, "OnDead hears of the last attempt"); f.Job.ID != dead || !errors.Is(f.Err, errBoom) {
		t.Errorf("death %+v", f)
	}
	r.addOne(signalbox.Job{})
	r.until("it is retried", func(c looks.Counts) bool { return c.Total.Retried == 1 })
	run.cancel()
	redistest.Eventually(t, func() bool { return r.rdb.ZCard(context.Background(), r.key("sessions")).Val() == 0 }, "the session is closed")
	close(next)
	run.stop()
	if !returned {
		t.Error("Run has returned before OnRetry")
	}
}

// A death that Redis refuses is none: OnDead isn't called.
func TestHooksOfSuperseded(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, redistest.New(t).Client())
	cfg := r.short(1)
	deaths := make(chan worker.Failure, 10)
	cfg.OnDead = func(_ context.Context, f worker.Failure) { deaths <- f }
	w := r.workerWith(cfg)
	began, next, ends := make(chan struct{}, 1), make(chan struct{}), make(chan signalbox.Settled, 1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		began <- struct{}{}
		<-next
		return signalbox.Dead(errBoom)
	}, worker.With(hears(ends)))
	run := r.start(w)
	r.addOne(signalbox.Job{})
	get(t, began, "the job runs")
	if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	next <- struct{}{}
	if s := get(t, ends, "it is refused"); s.Outcome != signalbox.OutcomeSuperseded {
		t.Errorf("%+v", s)
	}
	run.cancel()
	_ = run.wait()
	if len(deaths) != 0 {
		t.Errorf("OnDead was called: %+v", <-deaths)
	}
}

// A queue may have a crash limit of its own: below the default the job is dead earlier, above it later.
func TestCrashLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 0, 7} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			want := limit
			if limit == 0 {
				want = store.CrashLimit
			}
			r := newRig(t)
			id := r.addOne(signalbox.Job{})
			for range want - 1 { // more than the default are counted by somebody with a limit as high
				if res, err := r.queue.WithCrashLimit(store.MaxCrashLimit).Sessions().Reclaim(r.die(1), false).Next(context.Background()); err != nil || len(res.Returned) != 1 {
					t.Fatal(res, err)
				}
			}
			r.die(1)
			deaths := make(chan worker.Failure, 1)
			cfg := r.config(1)
			q := cfg.Queues[r.name()]
			q.CrashLimit = limit
			cfg.Queues[r.name()] = q
			cfg.OnDead = func(_ context.Context, f worker.Failure) { deaths <- f }
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
				t.Error("it runs again")
				return nil
			})
			r.start(w)
			f := get(t, deaths, "it is dead")
			if job := r.job(id); f.Job.Crashes != want || job.LastError != fmt.Sprintf("the process running this job died, or lost its lease, %d times", want) {
				t.Errorf("%d crashes, kept with %q", f.Job.Crashes, job.LastError)
			}
		})
	}
}

// Below the limit a job runs again, however often others crashed.
func TestBelowTheCrashLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.poison()
	r.die(1) // the fifth crash
	cfg := r.config(1)
	q := cfg.Queues[r.name()]
	q.CrashLimit = store.CrashLimit + 1
	cfg.Queues[r.name()] = q
	w := r.workerWith(cfg)
	ran := make(chan int, 1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		ran <- job.Crashes
		return nil
	})
	r.start(w)
	if crashes := get(t, ran, "it runs again"); crashes != store.CrashLimit {
		t.Errorf("it runs after %d crashes", crashes)
	}
	r.completed(1)
}
