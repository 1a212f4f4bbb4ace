package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/signalbox-go/signalbox/internal/servertest"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/lock/etcdlock"
)

// connect starts an etcd. In production its address is in your configuration.
func connect() (client *clientv3.Client, done func()) {
	members, err := servertest.NewEtcd(1)
	if err != nil {
		panic(err)
	}
	client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{members[0].Addr()}, // all members
		// Leave a member that hangs.
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
		Logger: zap.NewNop(),
	})
	if err != nil {
		panic(err)
	}
	return client, func() {
		client.Close()
		members[0].Close()
	}
}

func Example() {
	client, done := connect()
	defer done()
	ctx := context.Background()
	locker, err := etcdlock.New(client, etcdlock.Config{TTL: 10 * time.Second, Owner: "billing on host-7"})
	if err != nil {
		fmt.Println(err)
		return
	}

	err = lock.Do(ctx, locker, "report:2024-05", func(ctx context.Context) error {
		_, err := locker.TryAcquire(ctx, "report:2024-05")
		fmt.Println("a second holder:", errors.Is(err, lock.ErrHeld))

		info, err := locker.Inspect(ctx, "report:2024-05")
		if err != nil {
			return err
		}
		lease, _ := lock.FromContext(ctx)
		fmt.Println("held by", info.Owner, "with our token:", info.Token == lease.Token())

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
	// a second holder: true
	// held by billing on host-7 with our token: true
	// writing the first page
	// writing the second page
	// <nil>
}
