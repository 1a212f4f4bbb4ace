package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

func testRetried(r *rig) {
	w := r.worker(10)
	got := make(chan signalbox.Job, 3)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		got <- *job
		if job.Attempt < 3 {
			return fmt.Errorf("failure %d", job.Attempt)
		}
		return nil
	}, worker.Retry(func(attempt int, err error) time.Duration {
		if err.Error() != fmt.Sprintf("failure %d", attempt) {
			r.Errorf("the policy is asked of attempt %d with %q", attempt, err)
		}
		return 50 * time.Millisecond
	}))
	r.start(w)
	r.addOne(signalbox.Job{})
	var last signalbox.Job
	for attempt, lastError := range []string{"", "failure 1", "failure 2"} {
		job := get(r.T, got, "the next attempt")
		if job.Attempt != attempt+1 || job.LastError != lastError || job.Crashes != 0 {
			r.Errorf("attempt %d, last error %q, crashes %d; want %d, %q, 0", job.Attempt, job.LastError, job.Crashes, attempt+1, lastError)
		}
		if job.Token <= last.Token {
			r.Errorf("token %d after %d", job.Token, last.Token)
		}
		if attempt > 0 {
			if d := job.ScheduledAt.Sub(last.ClaimedAt); d < 50*time.Millisecond {
				r.Errorf("attempt %d was due %v after the one before, want 50 ms or more", job.Attempt, d)
			}
			if job.ClaimedAt.Before(job.ScheduledAt) {
				r.Errorf("attempt %d began before it was due", job.Attempt)
			}
		}
		last = job
	}
	r.completed(1)
	if c := r.counts(); c.Total.Retried != 2 {
		r.Errorf("counts %+v", c)
	}
}

func testDead(r *rig) {
	w := r.worker(10)
	var attempts atomic.Int32
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		return fmt.Errorf("%s, time %d", strings.Repeat("ö", 3000), attempts.Add(1))
	}, worker.Retry(soon))
	r.start(w)
	id := r.addOne(signalbox.Job{MaxAttempts: 3})
	r.until("the job is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	if n := attempts.Load(); n != 3 {
		r.Errorf("%d attempts, want 3", n)
	}
	job := r.job(id)
	if !strings.HasPrefix(job.LastError, "öööö") || !strings.HasSuffix(job.LastError, " bytes)") || len(job.LastError) > 2100 {
		r.Errorf("the last error that is kept: %d bytes, %.40q", len(job.LastError), job.LastError)
	}
	if r.log.count("ERROR", "attempts are used up", id) != 1 {
		r.Error("the log doesn't say once that the job is dead")
	}
}

func testCancelled(r *rig) {
	w := r.worker(10)
	var calls atomic.Int32
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		calls.Add(1)
		return fmt.Errorf("wrapped: %w", signalbox.Cancel(errBoom))
	}, worker.Retry(soon))
	r.start(w)
	id := r.addOne(signalbox.Job{})
	r.until("the job is cancelled", func(c looks.Counts) bool { return c.Cancelled == 1 && c.Ready+c.Due+c.Running == 0 })
	if job := r.job(id); calls.Load() != 1 || !strings.Contains(job.LastError, "boom") || job.Attempt != 1 {
		r.Errorf("%d calls, job %+v", calls.Load(), job)
	}
}

func testSnoozed(r *rig) {
	w := r.worker(10)
	got := make(chan signalbox.Job, 4)
	var calls atomic.Int32
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		got <- *job
		if n := calls.Add(1); n < 4 {
			return fmt.Errorf("not yet: %w", signalbox.Snooze(time.Duration(n-1)*30*time.Millisecond))
		}
		return nil
	})
	r.start(w)
	r.addOne(signalbox.Job{MaxAttempts: 1})
	for range 4 {
		if job := get(r.T, got, "the job runs again"); job.Attempt != 1 || job.LastError != "" {
			r.Errorf("a snooze used an attempt: %+v", job)
		}
	}
	r.completed(1)
}

func testPanic(r *rig) {
	w := r.worker(1)
	seen := make(chan error, 1)
	w.Use(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) (err error) {
			defer func() { // Recover stands outside of this
				if p := recover(); p != nil {
					seen <- p.(error)
					panic(p)
				}
			}()
			return next.Handle(ctx, job)
		})
	})
	asked := make(chan error, 1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt == 1 {
			panicHere()
		}
		return nil
	}, worker.Retry(func(_ int, err error) time.Duration {
		asked <- err
		return 0
	}))
	r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	if err := get(r.T, seen, "the middleware sees the panic"); err != errBoom {
		r.Errorf("the middleware saw %v", err)
	}
	var p *signalbox.PanicError
	if err := get(r.T, asked, "the policy is asked"); !errors.As(err, &p) || !errors.Is(err, errBoom) {
		r.Errorf("the attempt's error is %v", err)
	} else if !strings.Contains(string(p.Stack), "panicHere") {
		r.Errorf("the stack doesn't show who panicked:\n%s", p.Stack)
	}
	if n := r.log.count("an attempt failed", "stack=", "panicHere"); n != 1 {
		r.Errorf("%d log entries show who panicked, want 1", n)
	}
}

// The error is a nil pointer of its own type, and its Error method dereferences it. The worker must survive that.
type brokenError struct{ why string }

func (e *brokenError) Error() string { return e.why }

func testPanickingError(r *rig) {
	w := r.worker(1)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt == 1 {
			var broken *brokenError
			return broken
		}
		if !strings.Contains(job.LastError, "when it was looked at") {
			r.Errorf("last error %q", job.LastError)
		}
		return nil
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
}

func panicHere() { panic(errBoom) }

func testGoexit(r *rig) {
	w := r.worker(1) // so the slot must continue to serve
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		if job.Attempt < 3 {
			runtime.Goexit()
		}
		if !strings.Contains(job.LastError, "Goexit") {
			r.Errorf("last error %q", job.LastError)
		}
		return nil
	}, worker.Retry(soon))
	run := r.start(w)
	r.addOne(signalbox.Job{})
	r.completed(1)
	run.stop()
}

func testTimeout(r *rig) {
	w := r.worker(10)
	causes := make(chan error, 2)
	handle := func(ctx context.Context, job *signalbox.Job) error {
		if job.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}
	w.HandleKind("own", signalbox.HandlerFunc(handle), worker.Retry(soon))
	w.HandleKind("kinds", signalbox.HandlerFunc(handle), worker.Retry(soon), worker.Timeout(20*time.Millisecond))
	r.start(w)
	r.add(signalbox.Job{Kind: "own", Timeout: 20 * time.Millisecond}, signalbox.Job{Kind: "kinds"})
	for range 2 {
		if err := get(r.T, causes, "the handler's context ends"); !errors.Is(err, signalbox.ErrTimeout) {
			r.Errorf("cause %v, want ErrTimeout", err)
		}
	}
	r.completed(2)
	if c := r.counts(); c.Total.Retried != 2 {
		r.Errorf("a timeout is a failed attempt: counts %+v", c)
	}
}
