package scheduler_test

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
	"github.com/signalbox-go/signalbox/scheduler"
)

type Welcome struct{ UserID int64 }

func (Welcome) Kind() string { return "email.welcome" }

type Digest struct{}

func (Digest) Kind() string { return "email.digest" }

// example returns a scheduler on an embedded Redis. Elsewhere, give scheduler.New your own client.
func example() (s *scheduler.Scheduler, end func()) {
	srv, err := embedded.Start(embedded.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	s, err = scheduler.New(rdb, scheduler.Config{})
	if err != nil {
		log.Fatal(err)
	}
	return s, func() {
		if err := errors.Join(rdb.Close(), srv.Close()); err != nil {
			log.Fatal(err)
		}
	}
}

// An ID of one's own makes it safe to call again.
func ExampleScheduler_Enqueue() {
	s, end := example()
	defer end()
	for range 2 {
		res, err := s.Enqueue(context.Background(), Welcome{UserID: 42},
			scheduler.ID("welcome-42"), scheduler.After(time.Hour), scheduler.MaxAttempts(5))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(res.ID, res.New)
	}
	// Output:
	// welcome-42 true
	// welcome-42 false
}

// Each job has a result of its own.
func ExampleScheduler_EnqueueMany() {
	s, end := example()
	defer end()
	items := []scheduler.Item{
		{Args: Welcome{UserID: 1}},
		{Args: Welcome{UserID: 2}, Options: []scheduler.Option{scheduler.Priority(signalbox.PriorityHigh)}},
		{Args: Welcome{UserID: 3}, Options: []scheduler.Option{scheduler.MaxAttempts(0)}},
	}
	results, err := s.EnqueueMany(context.Background(), items, scheduler.Queue("mail"))
	for i, r := range results {
		fmt.Println(i, r.New, r.Err)
	}
	fmt.Println(errors.Is(err, signalbox.ErrInvalid))
	// Output:
	// 0 true <nil>
	// 1 true <nil>
	// 2 false signalbox: invalid MaxAttempts: 0; want 1 to 1000000
	// true
}

// Every process registers the entry and runs it; each tick is enqueued once.
func ExampleScheduler_Cron() {
	s, end := example()
	defer end()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(s.Cron("digest", "0 9 * * 1-5", Digest{}, scheduler.In(berlin)))
	fmt.Println(s.Cron("leap", "0 0 30 2 *", Digest{}))

	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	fmt.Println(s.Run(ctx)) // until ctx ends
	// Output:
	// <nil>
	// scheduler: cron entry "leap": signalbox: invalid: cron spec "0 0 30 2 *": its date never comes; check the day against the month
	// <nil>
}
