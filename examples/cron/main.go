// Command cron runs one cron entry in several scheduler processes, and kills one of them. Each tick runs once.
//
//	go run ./examples/cron -schedulers 3 -for 10s
//
// It needs only Go: jobs are in a Redis inside its own process. With REDIS_URL it uses a real Redis (redis://,
// rediss:// or unix://), with a namespace of its own, which it deletes at the end. The flag -v shows the logs of the
// schedulers.
//
// This file is the application: the entry, the scheduler and the worker. story.go starts the processes, kills one, and
// counts the ticks. The exit status is 0 only if no tick was missed or came twice.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Report is the job of the entry.
type Report struct{}

// Kind names the job.
func (Report) Kind() string { return "report" }

// period is the time from one tick to the next.
const period = time.Second

// schedule runs a scheduler until ctx ends. All processes have the same entry. There is no leader among them.
func schedule(ctx context.Context, rdb redis.UniversalClient, namespace string) error {
	s, err := scheduler.New(rdb, scheduler.Config{Namespace: namespace})
	if err != nil {
		return err
	}
	if err := s.Cron("report", "@every "+period.String(), Report{}); err != nil {
		return err
	}
	return s.Run(ctx)
}

// work runs the jobs until ctx ends. It calls ran with the time of each job's tick.
func work(ctx context.Context, rdb redis.UniversalClient, namespace string, ran func(tick time.Time)) error {
	w, err := worker.New(rdb, worker.Config{
		Namespace: namespace,
		Queues:    worker.Queues{signalbox.DefaultQueue: {Concurrency: 1}},
	})
	if err != nil {
		return err
	}
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ Report) error {
		ran(job.ScheduledAt)
		return nil
	})
	return w.Run(ctx)
}

func main() {
	if isChild() {
		exitOn(child())
		return
	}
	p := plan{out: os.Stdout, redisURL: os.Getenv(envRedis)}
	flag.IntVar(&p.schedulers, "schedulers", 3, "number of scheduler processes, 2 or more; one is killed")
	flag.DurationVar(&p.lasts, "for", 10*time.Second, "how long ticks are counted, 2s or more")
	flag.BoolVar(&p.verbose, "v", false, "show the logs of the schedulers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := p.run(ctx)
	if err == nil {
		fmt.Println(c)
		err = c.problem()
	}
	exitOn(err)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "cron:", err)
		os.Exit(1)
	}
}
