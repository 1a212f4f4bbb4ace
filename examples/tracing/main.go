// Command tracing is a small shop whose jobs are seen in Jaeger: one waterfall per job, from the
// HTTP request that enqueued it to what its handler did in another process.
//
//	cd examples/tracing
//	docker compose up -d     # a Jaeger; or without Docker: see below
//	go run .
//
// It makes a request for each of these, runs the jobs, and prints the links to open:
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
// Without Docker, "make jaeger" at the root of the tree builds Jaeger with nothing but Go (and checks
// by its API what it shows of this program). That one has no web pages; the traces are at
// http://localhost:16686/api/v3/traces/ID:
//
//	OTEL_TRACES_SAMPLER=always_off $(tools/jaeger/build.sh) --config examples/tracing/jaeger.yaml
//
// Spans go to OTEL_EXPORTER_OTLP_ENDPOINT, by default http://localhost:4318. If no collector is there
// the jobs run all the same, and the program says that nobody saw it. JAEGER_URL is where the
// links lead, by default http://localhost:16686. Jobs are in a Redis inside this process;
// REDIS_URL takes a real one, where the program uses a queue of its own and deletes it at the end.
//
// shop.go is what an application would have: a service, its jobs and their handlers. telemetry.go
// sets OpenTelemetry up, which is all that Signalbox needs to make spans. The rest sets the scene:
// run.go is the story, process.go starts this program again as its other processes, and
// ledger.go is what they tell about it.
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

// timeLimit is for the whole run, on a slow machine.
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

// signals returns a context that ends with the first Ctrl-C, and one that ends with the second: then handlers are
// interrupted. The third ends the program by itself.
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
