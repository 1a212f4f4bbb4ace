package zklock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/zklock"
)

func Example() {
	servers := zklock.ServersOfExamples() // such as "zk1:2181", "zk2:2181", "zk3:2181"
	ctx := context.Background()
	locker, err := zklock.New(servers, zklock.Config{TTL: 10 * time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()

	err = lock.Do(ctx, locker, "report:2024-05", func(ctx context.Context) error {
		_, err := locker.TryAcquire(ctx, "report:2024-05")
		fmt.Println("held:", errors.Is(err, lock.ErrHeld))
		lease, _ := lock.FromContext(ctx)
		fmt.Println("a token for the store:", lease.Token() > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// held: true
	// a token for the store: true
	// <nil>
}

func ExampleLocker_Inspect() {
	ctx := context.Background()
	locker, err := zklock.New(zklock.ServersOfExamples(), zklock.Config{Owner: "worker-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
	l, err := locker.Acquire(ctx, "digest")
	if err != nil {
		fmt.Println(err)
		return
	}
	info, err := locker.Inspect(ctx, "digest")
	fmt.Println(info.Owner, info.Token == l.Token(), err)
	fmt.Println(l.Release(ctx))
	// Output:
	// worker-7 true <nil>
	// <nil>
}
