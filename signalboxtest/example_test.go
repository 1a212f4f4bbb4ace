package signalboxtest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/signalboxtest"
	"github.com/signalbox-go/signalbox/worker"
)

// The code under test: a service that enqueues, and what registers its handlers.

type Welcome struct{ UserID int }

func (Welcome) Kind() string { return "email.welcome" }

func (w Welcome) Validate() error {
	if w.UserID == 0 {
		return errors.New("UserID is 0")
	}
	return nil
}

type Service struct{ jobs *scheduler.Scheduler }

func NewService(s *scheduler.Scheduler) *Service { return &Service{s} }

// SignUp has the welcome sent in an hour.
func (s *Service) SignUp(ctx context.Context, user int) error {
	_, err := s.jobs.Enqueue(ctx, Welcome{UserID: user}, scheduler.Queue("mail"), scheduler.After(time.Hour))
	return err
}

var errAway = errors.New("the mail server is away")

// register registers the handlers.
func register(w *worker.Worker) {
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, args Welcome) error {
		if job.Attempt == 1 {
			return errAway
		}
		return nil
	})
}

func Example() {
	t := &testing.T{} // yours
	ctx := context.Background()
	jobs := signalboxtest.New(t)
	s, _ := scheduler.New(jobs.Client(), scheduler.Config{})
	w, _ := worker.New(jobs.Client(), worker.Config{Queues: worker.Queues{"mail": {}}, Logger: silent})
	register(w)

	// What the service enqueues ...
	_ = NewService(s).SignUp(ctx, 42)
	job := signalboxtest.One[Welcome](jobs)
	fmt.Println("user", job.Args.UserID, "in", job.Queue, "after", job.ScheduledAt.Sub(job.EnqueuedAt))

	// ... and what becomes of it.
	v := jobs.Work(ctx, w, job.Job)
	fmt.Println(v.Outcome, "as", v.Err, "within a second:", v.Delay <= time.Second)
	v = jobs.Work(ctx, w, v.Next)
	fmt.Println(v.Outcome, "at attempt", v.Job.Attempt)
	// Output:
	// user 42 in mail after 1h0m0s
	// retried as the mail server is away within a second: true
	// completed at attempt 2
}

// A handler is tested alone with a job that nobody has enqueued. The job is yours to change first: here it is at its last attempt.
func ExampleJobs_NewJob() {
	t := &testing.T{} // yours
	jobs := signalboxtest.New(t)
	w, _ := worker.New(jobs.Client(), worker.Config{Logger: silent})
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, args Welcome) error { return errAway })

	job := jobs.NewJob(Welcome{UserID: 42}, scheduler.MaxAttempts(3))
	job.Attempt = 3
	v := jobs.Work(context.Background(), w, job)
	fmt.Println(v)

	job.Payload = []byte(`{"UserID": "forty-two"}`)
	job.Attempt = 1
	v = jobs.Work(context.Background(), w, job)
	_, refused := errors.AsType[*signalbox.PayloadError](v.Err)
	fmt.Println(v.Outcome, "refused:", refused)
	// Output:
	// dead after attempt 3 of 3: the mail server is away
	// retried refused: true
}

var silent = slog.New(slog.DiscardHandler)
