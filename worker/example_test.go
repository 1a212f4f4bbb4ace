package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// quiet keeps logs out of the examples' output.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// onRedis calls f with a client of a Redis for development.
func onRedis(f func(ctx context.Context, rdb *redis.Client) error) {
	srv, err := embedded.Start(embedded.Logger(quiet))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := f(ctx, rdb); err != nil {
		fmt.Println(err)
	}
}

type Welcome struct{ UserID int }

func (Welcome) Kind() string { return "email.welcome" }

// A worker runs jobs until Run's context ends. Then it waits for the handlers.
func ExampleWorker() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{
			Queues: worker.Queues{"mail": {Concurrency: 10}},
			Logger: quiet,
		})
		if err != nil {
			return err
		}
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, in Welcome) error {
			fmt.Println("welcome, user", in.UserID, "- attempt", job.Attempt)
			stop()
			return nil
		})

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Welcome{UserID: 42}, scheduler.Queue("mail")); err != nil {
			return err
		}
		return w.Run(ctx)
	})
	// Output: welcome, user 42 - attempt 1
}

// One job is one trace if its scheduler and its worker have a provider and a propagator. A real program has an exporter that
// sends the spans to a collector. It may set all of these as OpenTelemetry's global ones instead.
func ExampleConfig_tracing() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		exporter := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))

		s, err := scheduler.New(rdb, scheduler.Config{TracerProvider: tp, Propagator: propagation.TraceContext{}})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Welcome{UserID: 42}, scheduler.Queue("mail")); err != nil {
			return err
		}
		w, err := worker.New(rdb, worker.Config{
			Queues:         worker.Queues{"mail": {}},
			TracerProvider: tp,
			Propagator:     propagation.TraceContext{},
			Logger:         quiet,
		})
		if err != nil {
			return err
		}
		worker.Handle(w, func(context.Context, *signalbox.Job, Welcome) error {
			stop()
			return nil
		})
		if err := w.Run(ctx); err != nil {
			return err
		}

		spans := exporter.GetSpans() // in the order of their ends
		for _, span := range spans {
			fmt.Println(span.Name, "in the same trace:", span.SpanContext.TraceID() == spans[0].SpanContext.TraceID())
		}
		return nil
	})
	// Output:
	// enqueue mail in the same trace: true
	// handle email.welcome in the same trace: true
	// ack mail in the same trace: true
	// process mail in the same trace: true
}

// The error that a handler returns decides how the job ends.
func ExampleHandle() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ Welcome) error {
			if job.Attempt < 3 {
				fmt.Println("attempt", job.Attempt, "fails")
				return errors.New("mailbox busy")
			}
			fmt.Println("attempt", job.Attempt, "after:", job.LastError)
			stop()
			return nil
		}, worker.Retry(worker.ExponentialJitter(time.Millisecond, time.Second)), worker.Timeout(time.Minute))

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Welcome{}, scheduler.MaxAttempts(5)); err != nil {
			return err
		}
		return w.Run(ctx)
	})
	// Output:
	// attempt 1 fails
	// attempt 2 fails
	// attempt 3 after: mailbox busy
}

// A snooze runs the job again later and uses no attempt.
func ExampleHandle_snooze() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"default": {Concurrency: 1}}, Logger: quiet})
		if err != nil {
			return err
		}
		calls := 0
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ Welcome) error {
			calls++
			fmt.Println("call", calls, "is attempt", job.Attempt)
			if calls < 3 {
				return signalbox.Snooze(10 * time.Millisecond) // the mail server is closed
			}
			stop()
			return nil
		})

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Welcome{}); err != nil {
			return err
		}
		return w.Run(ctx)
	})
	// Output:
	// call 1 is attempt 1
	// call 2 is attempt 1
	// call 3 is attempt 1
}

// A cancelled job is not retried, even if it has attempts left.
func ExampleHandle_cancel() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, in Welcome) error {
			fmt.Println("no user", in.UserID, "any more; attempts left:", job.MaxAttempts-job.Attempt)
			stop()
			return signalbox.Cancel(errors.New("the account was deleted"))
		})

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Welcome{UserID: 7}); err != nil {
			return err
		}
		return w.Run(ctx)
	})
	// Output: no user 7 any more; attempts left: 24
}

// Two jobs of this kind never run at the same time, although the worker has many slots: each handler runs under the same named lock. If
// a job finds the lock held, it is snoozed.
func ExampleWith() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		locker, err := lock.New(rdb, lock.Config{})
		if err != nil {
			return err
		}
		sent := make(chan struct{}, 1)
		done := 0
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ Welcome) error {
			l, _ := lock.FromContext(ctx)
			sent <- struct{}{} // would block if another job were here
			time.Sleep(20 * time.Millisecond)
			<-sent
			done++
			fmt.Println("sent under the lock", l.Key())
			if done == 3 {
				stop()
			}
			return nil
		}, worker.With(middleware.Lock(locker, middleware.LockName("mail-server"), middleware.RetryIn(20*time.Millisecond))))

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		for i := range 3 {
			if _, err := s.Enqueue(ctx, Welcome{UserID: i}); err != nil {
				return err
			}
		}
		return w.Run(ctx)
	})
	// Output:
	// sent under the lock signalbox:lock:mail-server
	// sent under the lock signalbox:lock:mail-server
	// sent under the lock signalbox:lock:mail-server
}

// A Transfer can check itself.
type Transfer struct {
	Account string `json:"account"`
	Cents   int64  `json:"cents"`
}

func (Transfer) Kind() string { return "transfer" }

// Validate is called before the job is enqueued, and again before it is handled.
func (t Transfer) Validate() error {
	if t.Account == "" || t.Cents <= 0 {
		return errors.New("a transfer needs an account and an amount above 0")
	}
	return nil
}

// Transfers of the same account run one after the other. Transfers of different accounts run at the same time. The lock is named after
// the arguments.
func ExampleLockBy() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		locker, err := lock.New(rdb, lock.Config{})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Transfer) error {
			l, _ := lock.FromContext(ctx)
			fmt.Println(in.Cents, "cents under the lock", l.Key())
			stop()
			return nil
		}, worker.LockBy(locker, func(in Transfer) string { return "account:" + in.Account }))

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Transfer{Account: "7", Cents: 250}); err != nil {
			return err
		}
		return w.Run(ctx)
	})
	// Output: 250 cents under the lock signalbox:lock:account:7
}

// LegacyTransfer has the arguments that an older release enqueued under the same kind.
type LegacyTransfer struct {
	Account string `json:"account"`
	Amount  int64  `json:"amount"` // renamed since
}

func (LegacyTransfer) Kind() string { return "transfer" }

// Without Strict the renamed field would be ignored, and the new one would be 0.
func ExampleStrict() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Logger: quiet})
		if err != nil {
			return err
		}
		report := func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				err := next.Handle(ctx, job)
				if refused, ok := errors.AsType[*signalbox.PayloadError](err); ok {
					fmt.Println(refused)
					stop()
				}
				return err
			})
		}
		worker.Handle(w, func(context.Context, *signalbox.Job, Transfer) error {
			fmt.Println("handled")
			return nil
		}, worker.Strict(), worker.With(report))

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, LegacyTransfer{Account: "7", Amount: 250}); err != nil {
			return err
		}
		return w.Run(ctx)
	})
	// Output: decode the job's arguments: the payload has a field "amount", which Go type worker_test.Transfer doesn't have
}

// A producer gets an error at once for arguments that no handler would accept.
func ExampleHandle_validate() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		_, err = s.Enqueue(ctx, Transfer{Account: "7"})
		return err
	})
	// Output: scheduler: enqueue: signalbox: invalid args of kind transfer: a transfer needs an account and an amount above 0
}

// Many jobs are written by one statement. Each has an outcome of its own.
func ExampleHandleMany() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {Concurrency: 10}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.HandleMany(w, func(_ context.Context, jobs []*worker.Each[Welcome]) error {
			for _, e := range jobs {
				if e.Args.UserID == 0 {
					e.Return(signalbox.Cancel(errors.New("no such user"))) // this one alone
				}
			}
			fmt.Println("one call for", len(jobs), "jobs")
			stop()
			return nil // completes the others; an error would be a failed attempt of each
		}, worker.UpTo(3, time.Minute))

		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		for _, user := range []int{42, 0, 43} {
			if _, err := s.Enqueue(ctx, Welcome{UserID: user}, scheduler.Queue("mail")); err != nil {
				return err
			}
		}
		return w.Run(ctx)
	})
	// Output: one call for 3 jobs
}
