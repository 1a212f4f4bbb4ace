package worker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Summary says how the mails of a batch went.
type Summary struct{ To string }

func (Summary) Kind() string { return "mails.summary" }

// The callback of a batch says how many of its jobs have completed.
func Example_batchStatusOf() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		b, err := s.Batch(ctx, "mail", scheduler.OnEnd(Summary{To: "ada@example.com"}))
		if err != nil {
			return err
		}
		for user := range 10 {
			if _, err := b.Add(ctx, Welcome{UserID: user}); err != nil {
				return err
			}
		}
		if err := b.Seal(ctx); err != nil {
			return err
		}

		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {Concurrency: 10}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(_ context.Context, _ *signalbox.Job, in Welcome) error {
			if in.UserID == 7 {
				return signalbox.Dead(errors.New("no such address"))
			}
			return nil
		})
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Summary) error {
			st, err := scheduler.BatchStatusOf(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("to %s: %d of %d mails are out, %d failed\n", in.To, st.Completed, st.Total, st.Dead+st.Gone)
			stop()
			return nil
		})
		return w.Run(ctx)
	})
	// Output: to ada@example.com: 9 of 10 mails are out, 1 failed
}
