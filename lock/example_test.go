package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/lock"
)

// connect starts a Redis inside the process; in production it is your client.
func connect() (rdb *redis.Client, done func()) {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.NewTextHandler(io.Discard, nil))))
	if err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: srv.Addr(), ContextTimeoutEnabled: true})
	return rdb, func() {
		rdb.Close()
		srv.Close()
	}
}

func ExampleDo() {
	rdb, done := connect()
	defer done()
	locker, err := lock.New(rdb, lock.Config{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}

	err = lock.Do(context.Background(), locker, "report:2024-05", func(ctx context.Context) error {
		for _, page := range []string{"first", "second"} {
			if ctx.Err() != nil { // reads the clock: nothing starts after a pause
				return context.Cause(ctx)
			}
			fmt.Println("writing the", page, "page")
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// writing the first page
	// writing the second page
	// <nil>
}

func ExampleRedis_TryAcquire() {
	rdb, done := connect()
	defer done()
	ctx := context.Background()
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}

	held, err := locker.TryAcquire(ctx, "printer")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locker.TryAcquire(ctx, "printer")
	fmt.Println("a second holder:", errors.Is(err, lock.ErrHeld))

	fmt.Println("release:", held.Release(ctx))
	fmt.Println("use after release:", held.Context().Err())
	// Output:
	// a second holder: true
	// release: <nil>
	// use after release: context canceled
}

// A token lets a store refuse those who were superseded.
func ExampleFromContext() {
	rdb, done := connect()
	defer done()
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}

	var last int64 // the largest token that the store has seen
	write := func(ctx context.Context) error {
		lease, ok := lock.FromContext(ctx)
		if !ok || lease.Token() <= last {
			return errors.New("stale")
		}
		last = lease.Token()
		return nil
	}
	var stale context.Context
	for range 2 {
		err := lock.Do(context.Background(), locker, "account:42", func(ctx context.Context) error {
			if stale == nil {
				stale = ctx
			}
			return write(ctx)
		})
		fmt.Println(err)
	}
	fmt.Println(write(stale))
	// Output:
	// <nil>
	// <nil>
	// stale
}
