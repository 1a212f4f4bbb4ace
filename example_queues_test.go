package signalbox_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// Queues, cron entries, and what operators do.

// This is only compiled: its file isn't there.
var _ = func(ctx context.Context, s *scheduler.Scheduler, berlin *time.Location) (err error) {
	err = s.Cron("yesterday", "0 1 * * *", DayReport{}, scheduler.In(berlin), scheduler.ArgsAt(func(tick time.Time) signalbox.Args {
		return DayReport{Day: tick.AddDate(0, 0, -1).Format(time.DateOnly)}
	}))
	if err != nil {
		return err
	}
	err = s.Cron("sync", "@every 1m", Sync{}, scheduler.Overlap(scheduler.SkipIfRunning))
	if err != nil {
		return err
	}
	err = s.CronFrom(ctx, scheduler.CronFile("/etc/app/cron.json"), 10*time.Second)
	return err
}

// A worker has two queues, and a handler for each kind of their jobs.
func Example_queues() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		res, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 200})
		if err != nil {
			return err // the job is not in, or may not be: see "When an enqueue fails"
		}
		fmt.Println("new:", res.New)
		if _, err := s.Enqueue(ctx, Receipt{Order: 7}, scheduler.Queue("mail")); err != nil {
			return err
		}

		cfg := worker.Config{Queues: worker.Queues{
			"images": {Concurrency: 2},  // slots: handlers that run at the same time
			"mail":   {Concurrency: 50}, // the default
		}}
		cfg.Logger = quiet
		w, err := worker.New(rdb, cfg)
		if err != nil {
			return err
		}
		var both sync.WaitGroup
		both.Add(2)
		go func() { both.Wait(); stop() }()
		w.Use(func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				defer both.Done()
				return next.Handle(ctx, job)
			})
		})
		worker.Handle(w, makeThumbnail)
		worker.Handle(w, sendReceipt, worker.Timeout(30*time.Second),
			worker.Retry(worker.ExponentialJitter(5*time.Second, time.Hour)))
		return w.Run(ctx)
	})
	// Unordered output:
	// new: true
	// cat.png 200 attempt 1 of 8
	// receipt 7
}

// Jobs of a tenant take turns with those of others. Jobs of an account run one at a time.
func Example_groups() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		tenant := func() error {
			_, err := s.Enqueue(ctx, Thumbnail{Image: "cat.png", Width: 100}, scheduler.Group("tenant-42")) // takes turns with other tenants
			if err == nil {
				_, err = s.Enqueue(ctx, Receipt{Order: 8}, scheduler.Serial("account-7")) // one at a time, in order
			}
			return err
		}
		yields := func() error {
			_, err = s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Serial("account-7"), scheduler.YieldOnRetry())
			return err
		}
		fmt.Println(tenant(), yields())
		return nil
	})
	// Output: <nil> <nil>
}

// A queue and its groups have limits, and an operator changes them while workers run.
func Example_limits() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Queue("mail"), scheduler.Group("tenant-42")); err != nil {
			return err
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}

		cfg := worker.Config{Logger: quiet}
		cfg.Queues = worker.Queues{"mail": {
			Limits:      signalbox.Limits{Rate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 10}}, // what the mail server allows
			GroupLimits: signalbox.Limits{Running: 2},                                                   // of each tenant
		}}
		w, err := worker.New(rdb, cfg)
		if err != nil {
			return err
		}
		w.Use(func(next signalbox.Handler) signalbox.Handler {
			return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
				defer stop()
				return next.Handle(ctx, job)
			})
		})
		worker.Handle(w, sendReceipt)
		if err := w.Run(ctx); err != nil {
			return err
		}

		ctx = context.WithoutCancel(ctx)
		err = ins.SetLimits(ctx, "mail", signalbox.Limits{Running: 20}) // later, while it runs
		if err != nil {
			return err
		}
		err = ins.SetLimitsOf(ctx, "mail", "tenant-42", signalbox.Limits{Running: 5}) // one tenant may have more
		return err
	})
	// Output: receipt 9
}

// Queues of one worker share its room by rank and weight.
func Example_ranksAndWeights() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		queues := []string{"alarms", "mail", "reports"}
		for i, queue := range queues {
			if _, err := s.Enqueue(ctx, Receipt{Order: int64(i)}, scheduler.Queue(queue)); err != nil {
				return err
			}
		}

		cfg := worker.Config{Logger: quiet}
		cfg.Queues = worker.Queues{
			"alarms":  {Rank: 2},   // nineteen of twenty starts, while it has jobs
			"mail":    {Weight: 3}, // three for each one of reports
			"reports": {},          // rank 1, weight 1
		}
		cfg.Concurrency = 20 // handlers over all queues: what they share
		w, err := worker.New(rdb, cfg)
		if err != nil {
			return err
		}
		var all sync.WaitGroup
		all.Add(len(queues))
		go func() { all.Wait(); stop() }()
		worker.Handle(w, func(context.Context, *signalbox.Job, Receipt) error { all.Done(); return nil })
		err = w.Run(ctx)
		fmt.Println("all have run:", err)
		return err
	})
	// Output: all have run: <nil>
}

// A full queue refuses jobs, or has callers wait.
func Example_maxLength() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		for order := range int64(2) {
			if _, err := s.Enqueue(ctx, Receipt{Order: order}, scheduler.Queue("mail")); err != nil {
				return err
			}
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}

		cfg := worker.Config{Logger: quiet}
		cfg.Queues = worker.Queues{"mail": {MaxLength: 100_000}}
		if _, err := worker.New(rdb, cfg); err != nil {
			return err
		}
		err = ins.SetMaxLength(ctx, "mail", 2) // later, while it runs
		if err != nil {
			return err
		}

		_, err = s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Queue("mail"))
		if full, ok := errors.AsType[*signalbox.QueueFullError](err); ok {
			fmt.Printf("%d of %d jobs: try again later\n", full.Length, full.Max)
		}

		raised := make(chan error, 1)
		go func() { raised <- ins.SetMaxLength(ctx, "mail", 3) }()
		_, err = s.Enqueue(ctx, Receipt{Order: 9}, scheduler.Queue("mail"), scheduler.WaitForRoom())
		return errors.Join(err, <-raised)
	})
	// Output: 2 of 2 jobs: try again later
}

// Every process may declare the entry and run it: each tick is enqueued once.
func Example_cron() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ Digest) error {
			fmt.Println("a tick of a whole second:", job.ScheduledAt.Nanosecond() == 0)
			stop()
			return nil
		})
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			return err
		}
		err = s.Cron("digest", "0 9 * * 1-5", Digest{}, scheduler.In(berlin), scheduler.Queue("mail"))
		if err != nil {
			return err
		}
		err = s.Cron("report", "@daily", Digest{}, scheduler.Missed(scheduler.RunOnce))
		if err != nil {
			return err
		}
		if err := s.Cron("often", "@every 1s", Digest{}, scheduler.Queue("mail")); err != nil {
			return err
		}

		ctx, cancel := context.WithCancelCause(ctx)
		var wg sync.WaitGroup
		wg.Go(func() { cancel(s.Run(ctx)) }) // enqueues the ticks
		wg.Go(func() { cancel(w.Run(ctx)) }) // runs the jobs
		wg.Wait()                            // when one of them ends, the other does
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	})
	// Output: a tick of a whole second: true
}

// A job is cancelled while its handler runs.
func Example_cancel() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		running := make(chan struct{})
		writePages := func(ctx context.Context, _ Export) error {
			close(running)
			<-ctx.Done()
			return ctx.Err()
		}
		removePages := func(Export) { fmt.Println("removed") }
		ended := make(chan signalbox.Outcome, 1)
		w, err := worker.New(rdb, worker.Config{Queues: worker.Queues{"mail": {}}, Logger: quiet})
		if err != nil {
			return err
		}
		worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, in Export) error {
			signalbox.OnSettled(ctx, func(s signalbox.Settled) { ended <- s.Outcome })
			err := writePages(ctx, in) // its calls end with ctx
			if errors.Is(context.Cause(ctx), signalbox.ErrCancelled) {
				removePages(in) // with a context of its own
			}
			return err
		})
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Export{}, scheduler.Queue("mail"), scheduler.ID("receipt:7")); err != nil {
			return err
		}
		working, stop := context.WithCancel(ctx)
		defer stop()
		done := make(chan error, 1)
		go func() { done <- w.Run(working) }()
		<-running

		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		was, err := ins.Do(ctx, "mail", "receipt:7", inspect.Cancel{Why: "the order was refunded"})
		switch {
		case errors.Is(err, inspect.ErrNoJob):
			fmt.Println("it is done, or never was there")
		case errors.Is(err, inspect.ErrState):
			fmt.Println("it has ended")
		case err == nil:
			fmt.Println("it was", was)
		}
		fmt.Println("it ended", <-ended)
		stop()
		return <-done
	})
	// Unordered output:
	// it was running
	// removed
	// it ended cancelled
}

// Dead jobs of a kind run again whose cause was mended.
func Example_retry() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Receipt{Order: 7}, scheduler.Queue("mail")); err != nil {
			return err
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		dead := inspect.Filter{State: signalbox.StateDead, Kind: "mail.receipt", Error: "connection refused"}
		n, err := ins.DoAll(ctx, "mail", dead, inspect.Retry{}, inspect.Bulk{DryRun: true})
		fmt.Println(n.Matched, "would run again")
		if err != nil {
			return err
		}
		n, err = ins.DoAll(ctx, "mail", dead, inspect.Retry{}, inspect.Bulk{})
		fmt.Println(n.Done, "run again")
		return err
	})
	// Output:
	// 0 would run again
	// 0 run again
}

// An operator stops a queue, and looks at it.
func Example_inspect() {
	onRedis(func(ctx context.Context, rdb *redis.Client) error {
		s, err := scheduler.New(rdb, scheduler.Config{Logger: quiet})
		if err != nil {
			return err
		}
		if _, err := s.Enqueue(ctx, Receipt{Order: 7}, scheduler.Queue("mail")); err != nil {
			return err
		}
		ins, err := inspect.New(rdb, inspect.Config{})
		if err != nil {
			return err
		}
		if _, err := ins.Pause(ctx, "mail"); err != nil {
			return err
		}
		queues, err := ins.Queues(ctx)
		for _, q := range queues { // those that could be read, also if err isn't nil
			fmt.Println(q.Name, "ready:", q.Ready, "running:", q.Running, "dead:", q.Dead, "paused:", q.Paused)
		}
		if err != nil {
			slog.Error("some queues could not be read", "error", err) // it names them
		}
		f := inspect.Filter{State: signalbox.StateDead, Kind: "email.welcome", NewerThan: time.Hour}
		for job, err := range ins.Jobs(ctx, "mail", f) {
			if err != nil {
				return err
			}
			fmt.Println(job.ID, job.EndedAt, job.LastError, string(job.Payload))
			for _, a := range job.Attempts { // the last ten that failed
				fmt.Println(a.Number, a.At, a.Ran, a.Worker, a.Error, a.TraceID, a.Stack)
			}
		}
		err = ins.SetCompletedRetention(ctx, "mail", signalbox.Retention{Age: 24 * time.Hour, Jobs: 10_000})
		if err != nil {
			return err
		}
		return nil
	})
	// Output: mail ready: 1 running: 0 dead: 0 paused: true
}

func _(cfg worker.Config) {
	cfg.Queues = worker.Queues{"default": {LimitsOf: map[string]signalbox.Limits{
		"exports": {Running: 5},                                                   // at a time
		"letters": {Rate: signalbox.Rate{Jobs: 100, Per: time.Second, Burst: 10}}, // start each second
	}}}
}
