// Command quickstart delivers a thousand webhooks to an endpoint that fails now and then, with two
// worker processes, one of which is killed on the way.
//
//	go run ./examples/quickstart
//
// It needs nothing but Go: jobs are in a Redis inside its own process. REDIS_URL points it at a
// real one (redis://, rediss:// or unix://), where it uses a queue of its own and deletes it
// at the end. The flag -v shows the logs of its processes.
//
// What an application would have is in deliver.go: the jobs' types, their handlers, a worker and
// a scheduler. This file is the story that happens to them; endpoint.go is the receiver of the
// webhooks, whose ledger has the last word; process.go starts this program again as a
// worker or a scheduler.
//
// The exit status is 0 only if jobs were retried, recovered and ticked, and the ledger has all.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/signalbox-go/signalbox/scheduler"
)

// A thousand deliveries: one slow, the others in bulk, one by one, and later.
const (
	inBulk   = 900
	oneByOne = 79
	later    = 20

	killAfter = 300              // deliveries, then a worker is killed
	timeLimit = 90 * time.Second // of the whole run, on a slow machine
)

var errTooSlow = fmt.Errorf("not done after %v", timeLimit)

func main() {
	verbose := flag.Bool("v", false, "show the logs of the processes")
	flag.Parse()
	if isChild() {
		exitOn(runChild())
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	out := newScreen(os.Stdout)
	context.AfterFunc(ctx, func() {
		stop() // so that a second Ctrl-C ends the program at once
		out.say("the processes finish what they do; Ctrl-C again ends at once, and leaves the queue's keys in Redis")
	})
	sum, err := run(ctx, out, os.Getenv(envRedis), *verbose)
	if err == nil {
		out.say("%s", sum)
		err = sum.problem()
		out.say("%s", sum.lastLine(err == nil))
	}
	exitOn(err)
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// run is the story, from beginning to end. An empty redisURL means: a Redis in this process.
func run(ctx context.Context, out *screen, redisURL string, verbose bool) (summary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, errTooSlow)
	defer cancel()

	// A Redis to keep the jobs, and the customer's endpoint to send them to.
	db, err := connect(ctx, out, redisURL)
	if err != nil {
		return summary{}, err
	}
	defer db.close(out)
	hooks, err := startEndpoint()
	if err != nil {
		return summary{}, err
	}
	defer hooks.close()

	// Two processes tick the same cron entry. Two others work, the second when the first is
	// busy with a delivery that takes longer than its lease.
	crew := newCrew(ctx, settings{redisURL: db.url, queue: db.queue, endpoint: hooks.url, verbose: verbose})
	defer crew.stopAll()
	crew.start("scheduler", "scheduler-1")
	crew.start("scheduler", "scheduler-2")
	crew.start("worker", "worker-1")
	ctx = crew.ctx // ends when a process does that was not asked to

	s, err := scheduler.New(db.rdb, scheduler.Config{})
	if err != nil {
		return summary{}, err
	}
	slow, err := s.Enqueue(ctx, Delivery{URL: hooks.url + "/slow", Event: "report.ready"}, scheduler.Queue(db.queue))
	if err != nil {
		return summary{}, err
	}
	seen := hooks.ledger
	if err := seen.await(ctx, func() bool { return seen.inFlight("worker-1") > 0 }); err != nil {
		return summary{}, err
	}
	out.say("worker-1 delivers to an endpoint that takes %v to answer, longer than its lease of %v", slowAnswer, sessionTTL)
	victim := crew.start("worker", "worker-2")

	ids, err := enqueue(ctx, s, db.queue, hooks.url+"/orders")
	if err != nil {
		return summary{}, err
	}
	ids = append(ids, slow.ID)
	out.say("%d jobs enqueued: %d in bulk, %d one by one, %d of them for later", len(ids), inBulk, len(ids)-inBulk, later)
	defer out.progress(func() string { return seen.progress(len(ids)) })()

	// One worker dies as hard as a process can, with jobs in flight.
	if err := seen.await(ctx, func() bool {
		return seen.counts().delivered >= killAfter && seen.inFlight("worker-2") > 1
	}); err != nil {
		return summary{}, err
	}
	busy := seen.inFlight("worker-2")
	if err := victim.kill(); err != nil {
		return summary{}, err
	}
	out.say("worker-2 is killed with %d deliveries in flight; they run again when its lease of %v is over", busy, sessionTTL)

	// The other one does the rest: all that is in the queue, once nobody ticks any more.
	if err := seen.await(ctx, func() bool { return seen.missing(ids) == 0 && seen.counts().ticks >= 3 }); err != nil {
		return summary{}, fmt.Errorf("%w: %d jobs were not delivered", err, seen.missing(ids))
	}
	crew.stop("scheduler-1", "scheduler-2")
	if err := db.empty(ctx); err != nil {
		return summary{}, err
	}
	crew.stop("worker-1")
	if err := context.Cause(ctx); err != nil {
		return summary{}, err
	}

	return summarise(seen, ids, slow.ID), nil
}

// enqueue puts the jobs in, in three ways, and returns their IDs.
func enqueue(ctx context.Context, s *scheduler.Scheduler, queue, url string) ([]string, error) {
	var ids []string
	items := make([]scheduler.Item, inBulk)
	for i := range items {
		items[i].Args = Delivery{URL: url, Event: "order.paid", Order: i + 1}
	}
	results, err := s.EnqueueMany(ctx, items, scheduler.Queue(queue))
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		ids = append(ids, r.ID)
	}
	for i := range oneByOne + later {
		opts := []scheduler.Option{scheduler.Queue(queue)}
		if i >= oneByOne {
			opts = append(opts, scheduler.After(time.Duration(i-oneByOne+1)*250*time.Millisecond))
		}
		r, err := s.Enqueue(ctx, Delivery{URL: url, Event: "order.shipped", Order: i + 1}, opts...)
		if err != nil {
			return nil, err
		}
		ids = append(ids, r.ID)
	}
	return ids, nil
}
