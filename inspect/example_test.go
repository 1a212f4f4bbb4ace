package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
)

type Invoice struct{ Order int }

func (Invoice) Kind() string { return "invoice" }

// While a queue is paused, its jobs wait. New jobs can still be enqueued.
func ExampleInspector_Pause() {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler))) // elsewhere, give New your own client
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx := context.Background()

	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Enqueue(ctx, Invoice{Order: 17}, scheduler.Queue("billing")); err != nil {
		log.Fatal(err)
	}

	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ins.Pause(ctx, "billing"); err != nil {
		log.Fatal(err)
	}
	q, err := ins.Queue(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: paused=%v ready=%d running=%d\n", q.Name, q.Paused, q.Ready, q.Running)
	if _, err := ins.Pause(ctx, "biling"); errors.Is(err, inspect.ErrNoQueue) {
		fmt.Println("there is no such queue")
	}
	// Output:
	// billing: paused=true ready=1 running=0
	// there is no such queue
}

// Lists the ready jobs page by page. The second listing continues after the last job of the first.
func ExampleInspector_Jobs() {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler))) // elsewhere, give New your own client
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx := context.Background()

	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for order := range 5 {
		if _, err := s.Enqueue(ctx, Invoice{Order: order}, scheduler.Queue("billing")); err != nil {
			log.Fatal(err)
		}
	}

	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	filter := inspect.Filter{State: signalbox.StateReady, Kind: "invoice", Limit: 3}
	for range 2 {
		for job, err := range ins.Jobs(ctx, "billing", filter) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%s waits %s\n", job.Payload, job.Waits)
			filter.After = job.Cursor
		}
		fmt.Println("--")
	}
	// Output:
	// {"Order":0} waits no worker works the queue
	// {"Order":1} waits no worker works the queue
	// {"Order":2} waits no worker works the queue
	// --
	// {"Order":3} waits no worker works the queue
	// {"Order":4} waits no worker works the queue
	// --
}
