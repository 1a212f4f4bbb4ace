package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Count has a file's words counted.
type Count struct{ File string }

func (Count) Kind() string { return "words.count" }

// A Total adds the words of a batch.
type Total struct{}

func (Total) Kind() string { return "words.total" }

// The callback of a batch reads what its members have returned.
func Example_batchResults() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{})
		if err != nil {
			return err
		}
		b, err := s.Batch(ctx, "words", scheduler.OnEnd(Total{}))
		if err != nil {
			return err
		}
		for _, file := range []string{"a.txt", "bcd.txt", "none"} {
			if _, err := b.Add(ctx, Count{File: file}, scheduler.Retain(time.Hour)); err != nil {
				return err
			}
		}
		if err := b.Seal(ctx); err != nil {
			return err
		}

		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"words": {Concurrency: 10}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Count) error {
			if in.File == "none" {
				return signalbox.Dead(errors.New("no such file"))
			}
			return signalbox.SetResult(ctx, len(in.File))
		})
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ Total) error {
			var words []int
			for m, err := range scheduler.Results[int](ctx) {
				var ended *scheduler.EndedError
				switch {
				case err != nil:
					return err // Redis
				case errors.As(m.Err, &ended):
					fmt.Println("a member is", ended.Status.State)
				case m.Err != nil:
					return m.Err
				default:
					words = append(words, m.Value)
				}
			}
			slices.Sort(words)
			fmt.Println(words)
			stop()
			return nil
		})
		return w.Run(ctx)
	})
	// Output:
	// a member is dead
	// [5 7]
}
