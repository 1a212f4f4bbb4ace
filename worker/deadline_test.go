package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// The context of a handler ends at its timeout or at the deadline of its job, whichever is earlier.
func TestDeadlineEndsTheContext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		timeout, deadline, ran time.Duration
		want                   signalbox.Outcome
		cause                  error
		text                   string
	}{
		"the deadline alone": {0, time.Minute, time.Minute, signalbox.OutcomeDead, signalbox.ErrDeadline, "signalbox: the deadline of the job is over: the retry would be due at "},
		"before the timeout": {time.Hour, time.Minute, time.Minute, signalbox.OutcomeDead, signalbox.ErrDeadline, "signalbox: the deadline of the job is over: the retry would be due at "},
		"after the timeout":  {time.Minute, time.Hour, time.Minute, signalbox.OutcomeRetried, signalbox.ErrTimeout, "signalbox: job timed out after 1m0s: context deadline exceeded"},
		"no deadline":        {time.Minute, 0, time.Minute, signalbox.OutcomeRetried, signalbox.ErrTimeout, "signalbox: job timed out after 1m0s: context deadline exceeded"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var cause error
			seen := false
			cfg := worker.Config{ErrorHandler: func(_ context.Context, _ *signalbox.Job, err error) error {
				seen = true
				return err
			}}
			jobs, w, job := rehearsalOf(t, cfg, func(ctx context.Context, _ *signalbox.Job) error {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return ctx.Err()
			})
			began := time.Now()
			job.Timeout = c.timeout
			if c.deadline > 0 {
				job.Deadline = began.Add(c.deadline)
			}
			v := jobs.Work(t.Context(), w, job)
			if v.Outcome != c.want || cause != c.cause || time.Since(began) != c.ran || !seen {
				t.Errorf("%s: %v after %v, cause %v, seen %v", name, v, time.Since(began), cause, seen)
			}
			if strings.Contains(v.Next.LastError, "after 1h") || !strings.HasPrefix(v.Next.LastError, c.text) || v.Next.Attempt != 2 {
				t.Errorf("%s: it is kept with %d failed attempts and %q", name, v.Next.Attempt-1, v.Next.LastError)
			}
		})
	}
	if !errors.Is(signalbox.ErrDeadline, signalbox.ErrTimeout) {
		t.Error("who asks for timeouts doesn't see that of a deadline")
	}
}

// A handler that returns nil has completed its job, however late that is. What it decides otherwise stands as well.
func TestDeadlineAndWhatAHandlerDecides(t *testing.T) {
	t.Parallel()
	for want, err := range map[signalbox.Outcome]error{signalbox.OutcomeCompleted: nil, signalbox.OutcomeCancelled: signalbox.Cancel(nil)} {
		synctest.Test(t, func(t *testing.T) {
			jobs, w, job := rehearsalOf(t, worker.Config{}, func(ctx context.Context, _ *signalbox.Job) error {
				<-ctx.Done()
				return err
			})
			job.Deadline = time.Now().Add(time.Minute)
			if v := jobs.Work(t.Context(), w, job); v.Outcome != want {
				t.Errorf("%v, want %s", v, want)
			}
		})
	}
}

// A retry or a snooze that would be due at the deadline or later isn't made: the job is dead at once. One that is due before is made.
func TestNoRetryBeyondTheDeadline(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err    error
		delay  time.Duration
		want   signalbox.Outcome
		failed int
		text   string
	}{
		"retry before":  {errBoom, time.Minute - time.Microsecond, signalbox.OutcomeRetried, 1, "boom"},
		"retry at it":   {errBoom, time.Minute, signalbox.OutcomeDead, 1, "the retry would be due at 2000-01-01T00:01:00Z or later: boom"},
		"retry later":   {errBoom, time.Hour, signalbox.OutcomeDead, 1, "the retry would be due at 2000-01-01T00:01:00Z or later: boom"},
		"snooze before": {signalbox.Snooze(time.Minute - time.Microsecond), 0, signalbox.OutcomeSnoozed, 0, ""},
		"snooze at it":  {signalbox.Snooze(time.Minute), 0, signalbox.OutcomeDead, 0, "the snooze would be due at 2000-01-01T00:01:00Z or later: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			var died error
			cfg := worker.Config{OnDead: func(_ context.Context, f worker.Failure) { died = f.Err }}
			jobs, w, job := rehearsalOf(t, cfg, func(context.Context, *signalbox.Job) error { return c.err }, worker.Retry(worker.Constant(c.delay)))
			job.Deadline = time.Now().Add(time.Minute)
			v := jobs.Work(t.Context(), w, job)
			if v.Outcome != c.want || v.Next.Attempt != c.failed+1 || !strings.Contains(v.Next.LastError, c.text) || c.text == "" && v.Next.LastError != "" {
				t.Errorf("%s: %v, kept with %d failed attempts and %q", name, v, v.Next.Attempt-1, v.Next.LastError)
			}
			if dead := c.want == signalbox.OutcomeDead; dead != errors.Is(died, signalbox.ErrDeadline) || dead && !errors.Is(died, c.err) {
				t.Errorf("%s: OnDead gets %v", name, died)
			}
		})
	}
}

// A delivery that comes at the deadline or later calls no handler, and no retry: the job is dead, also in a worker that has no handler for it.
func TestNoAttemptAtTheDeadline(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"task", "unknown"} {
		synctest.Test(t, func(t *testing.T) {
			var died error
			cfg := worker.Config{OnDead: func(_ context.Context, f worker.Failure) { died = f.Err }}
			jobs, w, job := rehearsalOf(t, cfg, func(context.Context, *signalbox.Job) error {
				t.Error("the handler is called")
				return nil
			})
			job.Kind, job.Attempt, job.LastError, job.Deadline = kind, 2, "boom", time.Now()
			v := jobs.Work(t.Context(), w, job)
			if v.Outcome != signalbox.OutcomeDead || v.Next.Attempt != 2 || !errors.Is(died, signalbox.ErrDeadline) {
				t.Errorf("%s: %v, kept with %d failed attempts; OnDead gets %v", kind, v, v.Next.Attempt-1, died)
			}
			if want := "signalbox: the deadline of the job is over: no worker had the job for another attempt before 2000-01-01T00:00:00Z; the last error: boom"; v.Next.LastError != want {
				t.Errorf("%s: its last error is %q", kind, v.Next.LastError)
			}
		})
	}
}

// The wait of a middleware, as for a lock, ends at the deadline, too.
func TestDeadlineEndsMiddleware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wait := func(signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, _ *signalbox.Job) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}
		jobs, w, job := rehearsalOf(t, worker.Config{}, func(context.Context, *signalbox.Job) error { return nil }, worker.With(wait, middleware.Timeout(time.Second)))
		job.Deadline = time.Now().Add(time.Minute)
		if v := jobs.Work(t.Context(), w, job); v.Outcome != signalbox.OutcomeDead || !errors.Is(v.Err, signalbox.ErrDeadline) {
			t.Errorf("%v", v)
		}
	})
}

// A job that hasn't started by its deadline expires. One that has started keeps it, however often its worker dies, and is dead when a worker gets it at
// the deadline or later. Its unique key is taken until then, and free from then on.
func TestDeadline(t *testing.T) {
	if testing.Short() {
		t.Skip("it is long")
	}
	t.Parallel()
	r := newRig(t)
	began := make(chan *signalbox.Job, 9)
	handle := func(ctx context.Context, job *signalbox.Job, _ entry) error {
		began <- job
		<-ctx.Done()
		return ctx.Err()
	}
	died := make(chan worker.Failure, 9)
	cfg := r.config(1)
	cfg.OnDead = func(_ context.Context, f worker.Failure) { died <- f }
	w := r.workerWith(cfg)
	worker.Handle(w, handle)
	r.start(w)
	r.ready()
	s, err := scheduler.New(r.rdb, scheduler.Config{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(n int, in time.Duration, isNew bool, opts ...scheduler.EnqueueOption) {
		t.Helper()
		at := r.rdb.Time(t.Context()).Val().Add(in)
		opts = append(opts, scheduler.Queue(r.name()), scheduler.Deadline(at), scheduler.UniqueBy(scheduler.UntilEnded))
		if res, err := s.Enqueue(t.Context(), entry{"a", n}, opts...); err != nil || res.New != isNew {
			t.Fatalf("job %d: %+v, %v", n, res, err)
		}
	}
	put(1, 6*time.Second, true)
	job := <-began
	put(1, time.Hour, false)
	if job.Deadline.IsZero() || job.Group != "" || job.ExpireAfter != 0 {
		t.Errorf("a handler gets %+v", job)
	}
	put(2, time.Millisecond, true)
	for range 2 {
		var f worker.Failure
		select {
		case f = <-died:
		case <-time.After(patience):
			t.Fatal("a job doesn't end")
		}
		want, text := signalbox.ErrDeadline, "the retry would be due at"
		if string(f.Job.Payload) == `{"group":"a","n":2}` {
			want, text = signalbox.ErrExpired, "expired: it had not started in time"
		}
		if !errors.Is(f.Err, want) {
			t.Errorf("OnDead gets job %s, %v; want %v", f.Job.Payload, f.Err, want)
		}
		v, _, found, err := r.queue.Looks().Show(t.Context(), f.Job.ID)
		if err != nil || !found || v.State != signalbox.StateDead || !strings.Contains(v.Job.LastError, text) || v.Job.Deadline.IsZero() {
			t.Errorf("job %s: %+v, %v", f.Job.Payload, v.Job, err)
		}
	}
	if c := r.counts(); c.Total.Expired != 1 || c.Dead != 2 || c.Ready+c.Due+c.Running != 0 {
		t.Errorf("in the end: %+v", c)
	}
	if n := r.log.count("a job has expired", "deadline="); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	if n := len(began); n != 0 {
		t.Errorf("%d more have started", n)
	}
	for n := 1; n <= 2; n++ {
		put(n, 2*time.Hour, true, scheduler.After(time.Hour))
	}
}
