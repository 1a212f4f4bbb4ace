package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

type Invoice struct{ Order int }

func (Invoice) Kind() string { return "invoice" }

// A service has a queue for each of its tenants. Called each hour, with UnusedFor: 24 * time.Hour, this has those go that are empty and that nobody uses any more.
func ExampleInspector_RemoveQueues() {
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
	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, tenant := range []string{"tenant-acme", "tenant-initech"} {
		if _, err := s.Enqueue(ctx, Invoice{Order: 17}, scheduler.Queue(tenant), scheduler.ID("invoice-17")); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := ins.Do(ctx, "tenant-acme", "invoice-17", inspect.Delete{}); err != nil {
		log.Fatal(err)
	}
	for listed := 0; listed < 2; { // a queue is listed a moment after its first job
		queues, err := ins.Queues(ctx)
		if err != nil {
			log.Fatal(err)
		}
		listed = len(queues)
	}

	removed, kept, err := ins.RemoveQueues(ctx, "tenant-*", inspect.Removal{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("removed:", removed)
	for _, k := range kept {
		fmt.Println("kept:", k.Queue, "has", len(k.Reasons), "reason to stay")
	}
	// Output:
	// removed: [tenant-acme]
	// kept: tenant-initech has 1 reason to stay
}

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

// Says how many jobs of a queue completed in the last three hours, and how long their handlers ran.
func ExampleInspector_Stats() {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler))) // elsewhere, give New your own client
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"billing": {}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	sent := make(chan int)
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, i Invoice) error {
		sent <- i.Order
		return nil
	})
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	s, err := scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for order := range 3 {
		if _, err := s.Enqueue(ctx, Invoice{Order: order}, scheduler.Queue("billing")); err != nil {
			log.Fatal(err)
		}
		<-sent
	}
	stop() // a worker's last times go to Redis with its end
	if err := <-ended; err != nil {
		log.Fatal(err)
	}

	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	stats, err := ins.Stats(context.Background(), "billing", inspect.ByMinute)
	if err != nil {
		log.Fatal(err)
	}
	var completed int64
	var run inspect.Histogram
	for _, b := range stats.Buckets {
		completed += b.Completed
		run = run.Plus(b.Run)
	}
	fmt.Printf("%d completed, 95%% of %d within a minute: %v\n", completed, run.Count(), run.Quantile(0.95) < time.Minute)
	// Output: 3 completed, 95% of 3 within a minute: true
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

// Runs a cron entry now, and pauses it. Its arguments and options come from the process that declares it.
func ExampleInspector_RunEntry() {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler))) // elsewhere, give New your own client
	if err != nil {
		log.Fatal(err)
	}
	defer srv.Close()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	ctx, stop := context.WithCancel(context.Background())

	s, err := scheduler.New(rdb, scheduler.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Cron("invoices", "CRON_TZ=Europe/Berlin 0 9 1 * *", Invoice{Order: 17}, scheduler.Queue("billing")); err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() { stop(); <-ended }()

	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var entries []inspect.Entry
	for len(entries) == 0 { // the scheduler is about to start
		if entries, err = ins.Entries(ctx); err != nil {
			log.Fatal(err)
		}
	}
	e := entries[0]
	for tick := range e.Ticks(time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)) {
		fmt.Println(e.Name, "next fires at", tick.Format(time.RFC3339))
		break
	}

	id, err := ins.RunEntry(ctx, "billing", "invoices")
	if err != nil {
		log.Fatal(err)
	}
	job, err := ins.Job(ctx, "billing", id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s %s is %s\n", job.Kind, job.Payload, job.State)

	if _, err := ins.PauseEntry(ctx, "billing", "invoices"); err != nil {
		log.Fatal(err)
	}
	e, err = ins.Entry(ctx, "billing", "invoices")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("paused:", e.Paused)
	// Output:
	// invoices next fires at 2026-04-01T09:00:00+02:00
	// invoice {"Order":17} is ready
	// paused: true
}

// Checks a queue, and repairs what is wrong. Workers may run meanwhile.
func ExampleInspector_Doctor() {
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
	if _, err := s.Enqueue(ctx, Invoice{Order: 17}, scheduler.Queue("billing"), scheduler.ID("order-17")); err != nil {
		log.Fatal(err)
	}
	rdb.Del(ctx, "signalbox:{default:billing}:ready:normal") // somebody's mistake

	ins, err := inspect.New(rdb, inspect.Config{})
	if err != nil {
		log.Fatal(err)
	}
	for _, repair := range []bool{false, true, false} {
		report, err := ins.Doctor(ctx, "billing", inspect.Checkup{Repair: repair})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("jobs: %d, findings: %d, repaired: %d\n", report.Jobs, report.Found, report.Repaired)
		for _, f := range report.Findings {
			fmt.Printf("  %s: %s\n", f.Fault, f.Text)
		}
	}
	// Output:
	// jobs: 1, findings: 1, repaired: 0
	//   no_place: job "order-17" has a record and no state
	// jobs: 1, findings: 1, repaired: 1
	//   no_place: job "order-17" has a record and no state
	// jobs: 1, findings: 0, repaired: 0
}
