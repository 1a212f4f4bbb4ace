package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
)

// deliver calls a handler as a worker would.
func deliver(mw signalbox.Middleware, job *signalbox.Job, h signalbox.HandlerFunc) error {
	return signalbox.Chain(middleware.Recover(), mw)(h).Handle(context.Background(), job)
}

// onRedis calls f with a Redis for development.
func onRedis(f func(srv *embedded.Server, rdb *redis.Client)) {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer rdb.Close()
	f(srv, rdb)
}

// Two jobs want the lock named digest. The second is put back: its slot is free.
func ExampleLock() {
	onRedis(func(_ *embedded.Server, rdb *redis.Client) {
		locker, err := lock.New(rdb, lock.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		digest := middleware.Lock(locker, middleware.LockName("digest"))

		err = deliver(digest, &signalbox.Job{ID: "first"}, func(ctx context.Context, job *signalbox.Job) error {
			lease, _ := lock.FromContext(ctx)
			fmt.Println(job.ID, "runs under the key", lease.Key())

			second := deliver(digest, &signalbox.Job{ID: "second"}, nil)
			var snooze *signalbox.SnoozeError
			fmt.Println("second is snoozed:", errors.As(second, &snooze))
			return nil
		})
		fmt.Println(err)
	})
	// Output:
	// first runs under the key signalbox:lock:digest
	// second is snoozed: true
	// <nil>
}

// Another program locks the key "digest". It doesn't know the prefix.
func ExampleRawKey() {
	onRedis(func(_ *embedded.Server, rdb *redis.Client) {
		locker, err := lock.New(rdb, lock.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		err = lock.Do(context.Background(), locker, "digest", func(context.Context) error {
			shared := middleware.Lock(locker, middleware.RawKey("digest"), middleware.WhenHeld(middleware.PolicyFail))
			return deliver(shared, &signalbox.Job{}, nil)
		})
		fmt.Println(errors.Is(err, lock.ErrHeld))
	})
	// Output: true
}

// A timed task is started on two machines and must run on one. The job on the other machine completes without
// running. The lock is kept for longer than the machines' clocks may differ, although the task itself takes no
// time.
func ExampleWhenHeld() {
	onRedis(func(_ *embedded.Server, rdb *redis.Client) {
		for _, machine := range []string{"a", "b"} {
			locker, err := lock.New(rdb, lock.Config{MinHold: 10 * time.Second})
			if err != nil {
				fmt.Println(err)
				return
			}
			once := middleware.Lock(locker, middleware.LockName("nightly"), middleware.WhenHeld(middleware.PolicyDrop))
			err = deliver(once, &signalbox.Job{}, func(context.Context, *signalbox.Job) error {
				fmt.Println("runs on machine", machine)
				return nil
			})
			fmt.Println(machine, err)
		}
	})
	// Output:
	// runs on machine a
	// a <nil>
	// b <nil>
}

// The lock only saves work here: to warm the cache twice is better than not at all. So the job runs even if
// Redis doesn't answer. Then other jobs may run beside it.
func ExampleWhenDown() {
	onRedis(func(srv *embedded.Server, rdb *redis.Client) {
		locker, err := lock.New(rdb, lock.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		warm := middleware.Lock(locker, middleware.LockName("warm"), middleware.WhenDown(middleware.PolicyRunAnyway))
		job := func(ctx context.Context, _ *signalbox.Job) error {
			lease, ok := lock.FromContext(ctx) // in a worker, without the lock: the job's own lease
			fmt.Println("under the lock:", ok && lease.Key() == middleware.KeyPrefix+"warm")
			return nil
		}
		fmt.Println(deliver(warm, &signalbox.Job{}, job))
		srv.Close()
		fmt.Println(deliver(warm, &signalbox.Job{}, job))
	})
	// Output:
	// under the lock: true
	// <nil>
	// under the lock: false
	// <nil>
}

// The lock is held only for a moment. The second job keeps its slot and waits.
func ExampleMaxWait() {
	onRedis(func(_ *embedded.Server, rdb *redis.Client) {
		locker, err := lock.New(rdb, lock.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		counter := middleware.Lock(locker, middleware.LockName("counter"), middleware.MaxWait(10*time.Second))
		begun, second := make(chan struct{}), make(chan error)
		go func() {
			<-begun
			second <- deliver(counter, &signalbox.Job{}, func(context.Context, *signalbox.Job) error {
				fmt.Println("second")
				return nil
			})
		}()
		first := deliver(counter, &signalbox.Job{}, func(context.Context, *signalbox.Job) error {
			close(begun)
			time.Sleep(20 * time.Millisecond)
			fmt.Println("first")
			return nil
		})
		fmt.Println(first, <-second)
	})
	// Output:
	// first
	// second
	// <nil> <nil>
}

func ExampleRecover() {
	h := middleware.Recover()(signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error {
		panic("out of paper")
	}))
	err := h.Handle(context.Background(), &signalbox.Job{})
	fmt.Println(err)

	var p *signalbox.PanicError
	fmt.Println(errors.As(err, &p), len(p.Stack) > 0)
	// Output:
	// handler panicked: out of paper
	// true true
}

func ExampleTimeout() {
	err := deliver(middleware.Timeout(time.Minute), &signalbox.Job{Timeout: 10 * time.Millisecond},
		func(ctx context.Context, _ *signalbox.Job) error {
			<-ctx.Done()
			return ctx.Err()
		})
	fmt.Println(err)
	// Output:
	// signalbox: job timed out after 10ms: context deadline exceeded
}

// The record has no error: the worker logs it separately.
func ExampleLog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == "duration" {
				return slog.Attr{} // differs from run to run
			}
			return a
		},
	}))
	job := &signalbox.Job{ID: "7", Kind: "email.welcome", Queue: "default", Attempt: 1, Token: 1760000000000000}
	_ = deliver(middleware.Log(logger), job, func(context.Context, *signalbox.Job) error {
		return errors.New("mailbox full")
	})
	// Output:
	// level=INFO msg=job job=7 kind=email.welcome queue=default attempt=1 token=1760000000000000 outcome=failed
}

// The trace that began where the job was enqueued continues in the handler.
func ExampleTrace() {
	mw := middleware.Trace(middleware.WithPropagator(propagation.TraceContext{}))
	job := &signalbox.Job{Headers: map[string]string{
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}}
	_ = deliver(mw, job, func(ctx context.Context, _ *signalbox.Job) error {
		fmt.Println(trace.SpanContextFromContext(ctx).TraceID())
		return nil
	})
	// Output:
	// 0af7651916cd43dd8448eb211c80319c
}
