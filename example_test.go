package signalbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// Welcome is a job's arguments.
type Welcome struct{ UserID int64 }

// Kind names the job.
func (Welcome) Kind() string { return "email.welcome" }

// sendWelcome is the handler of these jobs.
func sendWelcome(_ context.Context, job *signalbox.Job, in Welcome) error {
	if job.Attempt == 1 {
		return errors.New("mail server busy") // retried
	}
	fmt.Println("welcome, user", in.UserID, "- attempt", job.Attempt, "after:", job.LastError)
	return nil
}

// Report is a job's arguments. These jobs go into a queue of their own.
type Report struct{ Year int }

// Kind names the job.
func (Report) Kind() string { return "report" }

// Defaults say how these jobs are enqueued.
func (Report) Defaults() signalbox.Defaults {
	return signalbox.Defaults{Queue: "reports", MaxAttempts: 3, Timeout: time.Hour}
}

// An option of a call overrides the default of the kind.
func ExampleDefaulter() {
	plan, err := scheduler.Resolve(Report{Year: 2024}, scheduler.MaxAttempts(10))
	fmt.Println(plan.Job.Queue, plan.Job.MaxAttempts, plan.Job.Timeout, err)
	// Output: reports 10 1h0m0s <nil>
}

// A producer enqueues a job, and a worker in the same process runs it.
func Example() {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()

	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Enqueue(ctx, Welcome{UserID: 42}, scheduler.After(10*time.Millisecond)); err != nil {
		fmt.Println(err)
		return
	}

	w, err := worker.New(rdb, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, in Welcome) error {
		err := sendWelcome(ctx, job, in)
		if err == nil {
			stop() // a real service keeps running
		}
		return err
	}, worker.Retry(worker.ExponentialJitter(10*time.Millisecond, time.Second)))
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: welcome, user 42 - attempt 2 after: mail server busy
}
