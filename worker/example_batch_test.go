package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Sent is a report that all mails are out.
type Sent struct{ What string }

func (Sent) Kind() string { return "mails.sent" }

// A batch has a report run when all of its mails are out, one of which makes another.
func Example_batch() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		b, err := s.Batch(ctx, "mail", scheduler.FlowID("news-7"), scheduler.OnSuccess(Sent{What: "news"}))
		if err != nil {
			return err
		}
		mails := func(yield func(scheduler.Item) bool) {
			for user := 1; user <= 500 && yield(scheduler.Item{Args: Welcome{UserID: user}}); user++ {
			}
		}
		for i, res := range b.AddSeq(ctx, mails) {
			if res.Err != nil {
				return fmt.Errorf("mail %d: %w", i, res.Err)
			}
		}
		if err := b.Seal(ctx); err != nil {
			return err
		}

		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {Concurrency: 10}}, Logger: quiet})
		if err != nil {
			return err
		}
		var mailed atomic.Int64
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Welcome) error {
			mailed.Add(1)
			if b, ok := scheduler.BatchOf(ctx); ok && in.UserID == 42 {
				_, err := b.Add(ctx, Welcome{UserID: 4242}) // also if this handler runs again, it is added once
				return err
			}
			return nil
		})
		worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in Sent) error {
			fmt.Println(in.What, "went to", mailed.Load(), "users")
			stop()
			return nil
		})
		return w.Run(ctx)
	})
	// Output: news went to 501 users
}
