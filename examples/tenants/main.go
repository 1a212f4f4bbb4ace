// Command tenants runs the jobs of a hundred tenants. One of them floods the queue. The others hardly notice.
//
//	go run ./examples/tenants
//
// It needs only Go: jobs are in a Redis inside its own process. With REDIS_URL it uses a real Redis (redis://,
// rediss:// or unix://), with a namespace of its own, which it deletes at the end. The flag -fifo runs the same jobs
// without groups, to compare. The flag -v shows the logs of the workers.
//
// This file is the application: the job, how it is enqueued, and a worker. story.go has the load. ledger.go counts,
// from what the handlers see and without asking Redis. picture.go draws. The exit status is 0 only if all jobs ran, no order was
// broken, and no limit was exceeded.
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
	"github.com/signalbox-go/signalbox/examples/internal/stage"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A Task is the job of a tenant.
type Task struct {
	Tenant int `json:"tenant"`
	Number int `json:"number"` // counts the tenant's jobs
}

// Kind names the job.
func (Task) Kind() string { return "tenant.task" }

// limit is how many jobs of a tenant run at a time, in all workers.
const limit = 6

// serial reports whether the jobs of a tenant must run one at a time, in order. Each tenth tenant is such an account.
func serial(tenant int) bool { return tenant%10 == 9 }

// enqueue puts jobs in, each into the group of its tenant.
func enqueue(ctx context.Context, s *scheduler.Scheduler, tasks []Task, fifo bool) error {
	items := make([]scheduler.Item, len(tasks))
	for i, t := range tasks {
		key := fmt.Sprintf("tenant-%d", t.Tenant)
		items[i].Args = t
		switch {
		case fifo: // no group: first in, first out
		case serial(t.Tenant):
			items[i].Options = []scheduler.EnqueueOption{scheduler.Serial(key)}
		default:
			items[i].Options = []scheduler.EnqueueOption{scheduler.Group(key)}
		}
	}
	_, err := s.EnqueueMany(ctx, items)
	return err
}

// work runs jobs until ctx ends.
func work(ctx context.Context, rdb redis.UniversalClient, namespace string, slots int, handle func(context.Context, *signalbox.Job, Task) error) error {
	w, err := worker.New(rdb, worker.Config{
		Namespace: namespace,
		Queues: worker.Queues{signalbox.DefaultQueue: {
			Concurrency: slots,
			GroupLimits: signalbox.Limits{Running: limit},
		}},
	})
	if err != nil {
		return err
	}
	// A failed job of a serial group keeps its place: those behind it wait until it has been retried.
	worker.Handle(w, handle, worker.Retry(worker.Constant(20*time.Millisecond)))
	return w.Run(ctx)
}

func main() {
	p := standard(newScreen(os.Stdout), os.Getenv(stage.Env))
	flag.IntVar(&p.tenants, "tenants", p.tenants, "number of tenants, 20 or more")
	flag.IntVar(&p.flood, "flood", p.flood, "number of jobs that the first tenant enqueues at once")
	flag.DurationVar(&p.lasts, "for", p.lasts, "how long the other tenants enqueue, 500ms or more")
	flag.BoolVar(&p.fifo, "fifo", false, "enqueue the jobs without groups, to see what that does: it fails")
	flag.BoolVar(&p.verbose, "v", false, "show the logs of the workers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := p.run(ctx)
	if err == nil {
		fmt.Println(r)
		err = r.problem()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}
