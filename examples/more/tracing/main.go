// Command tracing is a small shop whose jobs can be seen in Jaeger. Each job has one waterfall, from the HTTP
// request that enqueued it to what its handler did in another process.
//
//	cd examples/more/tracing
//	docker compose up -d     # a Jaeger; or without Docker: see below
//	go run .
//
// It makes a request for each of these, runs the jobs, and prints links to the traces:
//
//	orders       a job that goes well
//	payments     its first attempt fails, and it is retried
//	reports      two jobs that need the same lock: one waits for the other
//	newsletters  three jobs enqueued in bulk: traces of their own, with links between
//	reminders    a job that is not due yet and puts itself back
//	refunds      a job that fails for good
//	exports      a job whose worker is killed; another one recovers it
//	stock        no request: a cron entry of two processes, each tick enqueued once
//
// Without Docker, "make jaeger" at the root of the tree builds Jaeger with Go alone. It also checks this
// program's traces through Jaeger's API. That Jaeger has no web pages. The traces are at
// http://localhost:16686/api/v3/traces/ID:
//
//	OTEL_TRACES_SAMPLER=always_off $(tools/jaeger/build.sh) --config examples/more/tracing/jaeger.yaml
//
// Spans go to OTEL_EXPORTER_OTLP_ENDPOINT, by default http://localhost:4318. Without a collector the jobs run all
// the same, and the program says that no spans were received. JAEGER_URL is the address for the links, by default
// http://localhost:16686. Jobs are in a Redis inside this process. With REDIS_URL the program uses a real one,
// with a queue of its own, which it deletes at the end.
//
// shop.go is the application: a service, its jobs and their handlers. telemetry.go sets up OpenTelemetry, which
// is all that Signalbox needs to make spans. The other files are the demonstration: run.go has its steps,
// process.go starts this program again as its other processes, and ledger.go records their reports.
//
// The last line of the output counts jobs and traces:
//
//	tracing: ok jobs=14 traces=14 retried=1 recovered=1 waited=1 snoozed=1 dead=1 ticks=5
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// timeLimit bounds the whole run, on a slow machine.
const timeLimit = 90 * time.Second

func main() {
	if isChild() {
		exitOn(runChild())
		return
	}
	ctx, hurry := signals()
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done after %v", timeLimit))
	sum, err := run(ctx, hurry, os.Stdout, os.Getenv(envRedis))
	cancel()
	if err == nil {
		err = sum.problem()
		fmt.Println(sum.lastLine(err == nil))
	}
	exitOn(err)
}

// signals returns a context that ends with the first Ctrl-C, and one that ends with the second. Then handlers are
// interrupted. The third Ctrl-C ends the program at once.
func signals() (ctx, hurry context.Context) {
	ctx, stop := context.WithCancel(context.Background())
	hurry, hurryUp := context.WithCancel(context.Background())
	caught := make(chan os.Signal, 2)
	signal.Notify(caught, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-caught
		stop()
		<-caught
		signal.Stop(caught)
		hurryUp()
	}()
	return ctx, hurry
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "tracing:", err)
		os.Exit(1)
	}
}
