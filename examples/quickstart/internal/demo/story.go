// Package demo shows the quickstart's application at work. It has a receiver that sometimes fails, processes, of
// which one is killed, and a screen. An application needs none of it.
//
// story.go has the steps. endpoint.go is the receiver. ledger.go records what the receiver got, and decides the
// result. process.go starts the program again as a worker or a scheduler.
package demo

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// An App is the application of the demonstration. Each function runs in its own process, or in several.
type App struct {
	// Work runs jobs until ctx ends.
	Work func(ctx context.Context, p Process) error
	// Schedule enqueues a heartbeat every second until ctx ends.
	Schedule func(ctx context.Context, p Process) error
	// EnqueueSlow enqueues one delivery to an address that is slow to answer, and returns its ID.
	EnqueueSlow func(ctx context.Context, p Process) (id string, err error)
	// Enqueue enqueues all other deliveries, and returns their IDs.
	Enqueue func(ctx context.Context, p Process) (ids []string, err error)
	// LeaseTTL is how long the jobs of a worker that died are not given to another.
	LeaseTTL time.Duration
}

// A Process is passed to the functions of the App.
type Process struct {
	Name     string
	Redis    redis.UniversalClient
	Queue    string
	Endpoint string          // the address of the receiver
	Hurry    context.Context // ends with a second Ctrl-C: leave unfinished work undone
}

const (
	killAfter = 300              // after this many deliveries a worker is killed
	timeLimit = 90 * time.Second // of the whole run, on a slow machine
)

var errTooSlow = fmt.Errorf("not done after %v", timeLimit)

// Main is the main function of a program that demonstrates app.
func Main(app App) {
	verbose := flag.Bool("v", false, "show the logs of the processes")
	flag.Parse()
	if IsChild() {
		exitOn(runChild(app))
		return
	}
	out := newScreen(os.Stdout)
	ctx, hurry := signals(out)
	sum, err := run(ctx, hurry, app, out, os.Getenv(envRedis), *verbose)
	if err == nil {
		out.say("%s", sum)
		err = sum.Problem()
		out.say("%s", sum.lastLine(err == nil))
	}
	exitOn(err)
}

// signals returns a context that ends with the first Ctrl-C, and one that ends with the second. The third Ctrl-C
// ends the program at once.
func signals(out *screen) (ctx, hurry context.Context) {
	ctx, stop := context.WithCancel(context.Background())
	hurry, hurryUp := context.WithCancel(context.Background())
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-caught
		out.say("the processes finish what they do; Ctrl-C again interrupts it")
		stop()
		<-caught
		signal.Stop(caught)
		hurryUp()
	}()
	return ctx, hurry
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// Run runs the whole demonstration, and writes its steps to out. An empty redisURL means a Redis in this process.
func Run(ctx context.Context, app App, out io.Writer, redisURL string) (Summary, error) {
	return run(ctx, context.Background(), app, &screen{out: out, start: time.Now()}, redisURL, false)
}

func run(ctx, hurry context.Context, app App, out *screen, redisURL string, verbose bool) (Summary, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, errTooSlow)
	defer cancel()

	// A Redis for the jobs, and the customer's endpoint that gets them.
	db, err := connect(ctx, out, redisURL)
	if err != nil {
		return Summary{}, err
	}
	defer db.close(out)
	hooks, err := startEndpoint()
	if err != nil {
		return Summary{}, err
	}
	defer hooks.close()

	// Two processes tick the same cron entry. Two others work. The second one starts when the first is busy with a
	// delivery that takes longer than its lease.
	crew := newCrew(ctx, hurry, settings{redisURL: db.url, queue: db.queue, endpoint: hooks.url, verbose: verbose})
	defer crew.stopAll()
	crew.start("scheduler", "scheduler-1")
	crew.start("scheduler", "scheduler-2")
	crew.start("worker", "worker-1")
	ctx = crew.ctx // ends when a process ends by itself

	producer := Process{Name: "producer", Redis: db.rdb, Queue: db.queue, Endpoint: hooks.url, Hurry: hurry}
	slow, err := app.EnqueueSlow(ctx, producer)
	if err != nil {
		return Summary{}, err
	}
	seen := hooks.ledger
	if err := seen.await(ctx, func() bool { return seen.inFlight("worker-1") > 0 }); err != nil {
		return Summary{}, err
	}
	out.say("worker-1 delivers to an endpoint that takes %v to answer, longer than its lease of %v", slowAnswer, app.LeaseTTL)
	victim := crew.start("worker", "worker-2")

	ids, err := app.Enqueue(ctx, producer)
	if err != nil {
		return Summary{}, err
	}
	ids = append(ids, slow)
	out.say("%d jobs enqueued", len(ids))
	defer out.progress(func() string { return seen.progress(len(ids)) })()

	// One worker is killed while it has jobs in flight.
	if err := seen.await(ctx, func() bool {
		return seen.counts().delivered >= killAfter && seen.inFlight("worker-2") > 1
	}); err != nil {
		return Summary{}, err
	}
	busy := seen.inFlight("worker-2")
	if err := victim.kill(); err != nil {
		return Summary{}, err
	}
	out.say("worker-2 is killed with %d deliveries in flight; they run again when its lease of %v is over", busy, app.LeaseTTL)

	// The other worker runs all remaining jobs.
	if err := seen.await(ctx, func() bool {
		return seen.missing(ids) == 0 && seen.counts().ticks >= 3 && seen.counts().recovered > 0
	}); err != nil {
		return Summary{}, fmt.Errorf("%w: %d jobs were not delivered", err, seen.missing(ids))
	}
	crew.stop("scheduler-1", "scheduler-2", "worker-1")
	if err := context.Cause(ctx); err != nil {
		return Summary{}, err
	}
	return summarise(seen, ids, slow, app.LeaseTTL), nil
}
