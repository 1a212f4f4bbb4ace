// Command embed is a service with its background jobs inside: an HTTP API, a worker and a scheduler in one process. Copy it.
//
//	cd examples/embed
//	go run .
//
// It makes sales reports. A client posts a report with an ID of its own, and asks for it until it is done. A job fetches the sales of
// each day of the month from another system. Then another job notifies the client. It needs only Go: jobs are in a Redis inside the
// process, the other system is a toy, and reports are in a temporary folder. It prints what to try with curl.
//
// The files, in the order in which to read them:
//
//	jobs.go       the types of the jobs, and their handlers
//	api.go        the API for clients: make, look at, fetch and cancel a report
//	admin.go      what operators need: probes, metrics, dead jobs, pause and resume
//	service.go    puts it together, runs it, and stops it in the right order
//	telemetry.go  metrics for Prometheus, traces for an OTLP collector
//	reports.go    the files of the reports; a database in a real service
//	upstream.go   the client of the other system
//	main.go       settings and signals; toy.go is the other system when there is none
//
// service_test.go tests all of this without Redis. process_test.go tests a real process on a real Redis, which is stopped while a job
// runs.
//
// Secrets are in the environment, where other users of the machine can't read them:
//
//	REDIS_URL     redis://, rediss:// or unix://
//	ADMIN_TOKEN   what operators send as "Authorization: Bearer ..."; without it they can't act
//	UPSTREAM_URL  the other system
//
// With OTEL_EXPORTER_OTLP_ENDPOINT, traces go to that collector. The other settings are flags: see -h.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox/embedded"
	"github.com/signalbox-go/signalbox/lock"
)

// A config has the settings of the service.
type config struct {
	api, internal string // addresses to listen on
	dir           string // of the reports; "": a temporary one
	namespace     string
	lameDuck      time.Duration
	drain         time.Duration

	redisURL, adminToken, upstreamURL string
}

func main() {
	cfg, err := parse(os.Args[1:], os.Getenv)
	if err != nil {
		os.Exit(2) // package flag has said why
	}
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, hurry := signals()
	if err := run(ctx, hurry, cfg, os.Stdout); err != nil {
		slog.Error("the service has failed", "error", err)
		os.Exit(1)
	}
}

func parse(args []string, getenv func(string) string) (config, error) {
	cfg := config{redisURL: getenv("REDIS_URL"), adminToken: getenv("ADMIN_TOKEN"), upstreamURL: getenv("UPSTREAM_URL")}
	flags := flag.NewFlagSet("embed", flag.ContinueOnError)
	flags.StringVar(&cfg.api, "api", "127.0.0.1:8080", "the address of the API")
	flags.StringVar(&cfg.internal, "internal", "127.0.0.1:9090", "the address of probes, metrics and operators")
	flags.StringVar(&cfg.dir, "dir", "", "the folder of the reports, which all processes share; empty: a temporary one")
	flags.StringVar(&cfg.namespace, "namespace", "default", "the namespace of the queues")
	flags.DurationVar(&cfg.lameDuck, "lame-duck", 0, "how long to answer requests after SIGTERM, until load balancers know")
	flags.DurationVar(&cfg.drain, "drain", 18*time.Second, "how long jobs may go on after SIGTERM")
	if err := flags.Parse(args); err != nil {
		return config{}, err
	}
	return cfg, nil
}

// signals returns a context that ends with the first SIGTERM or Ctrl-C, and one that ends with the second. Then handlers are
// interrupted. The third ends the process at once.
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

// run opens what the service needs, runs it, and closes that in the reverse order: first the service has stopped, then the last spans
// are sent, then the client of Redis is closed.
func run(ctx, hurry context.Context, cfg config, out io.Writer) (err error) {
	closing := func(f func() error) { err = errors.Join(err, f()) }
	if cfg.dir == "" {
		dir, err := os.MkdirTemp("", "embed-")
		if err != nil {
			return err
		}
		defer closing(func() error { return os.RemoveAll(dir) })
		cfg.dir = dir
	}
	files, err := openReports(cfg.dir)
	if err != nil {
		return err
	}
	defer closing(files.Close)
	if cfg.upstreamURL == "" {
		toy, err := startToy()
		if err != nil {
			return err
		}
		defer toy.Close()
		cfg.upstreamURL = toy.url
	}
	try := "" // the token of operators, if this is a trial without any settings
	if cfg.redisURL == "" {
		srv, err := embedded.Start()
		if err != nil {
			return err
		}
		defer closing(srv.Close)
		cfg.redisURL = "redis://" + srv.Addr()
		if cfg.adminToken == "" {
			try = rand.Text()
			cfg.adminToken = try
		}
	}
	opt, err := redis.ParseURL(cfg.redisURL)
	if err != nil {
		return errors.New("REDIS_URL can't be read; want redis://host:6379/0, rediss://... or unix:///path/to.sock") // it may have a password
	}
	opt.ContextTimeoutEnabled = true // else go-redis ignores the deadlines of contexts
	rdb := redis.NewClient(opt)
	defer closing(rdb.Close)

	metrics, flush, err := startTelemetry(ctx)
	if err != nil {
		return err
	}
	defer closing(flush)
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return err
	}
	s, err := newService(rdb, locker, files, newUpstream(cfg.upstreamURL), cfg)
	if err != nil {
		return err
	}
	api, err := net.Listen("tcp", cfg.api)
	if err != nil {
		return err
	}
	internal, err := net.Listen("tcp", cfg.internal)
	if err != nil {
		return errors.Join(err, api.Close())
	}
	fmt.Fprintf(out, "embed: API on http://%s, for operators on http://%s\n", api.Addr(), internal.Addr())
	if try != "" {
		fmt.Fprintf(out, usage, "http://"+api.Addr().String(), "http://"+internal.Addr().String(), try)
	}
	return s.run(ctx, hurry, api, internal, metrics)
}

const usage = `embed: the jobs are in a Redis inside this process; REDIS_URL takes a real one. Try:

  curl -d '{"id":"r-1","account":"acme","month":"2026-02"}' %[1]s/reports
  curl %[1]s/reports/r-1              # how far it is; again, when it is done
  curl %[1]s/reports/r-1/rows         # the report
  curl -X DELETE %[1]s/reports/r-1    # cancels it while it is being made
  curl -d '{"id":"r-2","account":"nobody","month":"2026-02"}' %[1]s/reports    # dies: nobody has no sales

  curl %[2]s/readyz
  curl %[2]s/metrics
  curl -H 'Authorization: Bearer %[3]s' %[2]s/queues
  curl -H 'Authorization: Bearer %[3]s' %[2]s/queues/reports/dead
  curl -H 'Authorization: Bearer %[3]s' %[2]s/queues/reports/stats
  curl -H 'Authorization: Bearer %[3]s' -X POST %[2]s/queues/reports/jobs/r-2/retry
  curl -H 'Authorization: Bearer %[3]s' -X POST %[2]s/queues/reports/pause

Ctrl-C stops it as SIGTERM does: a report goes on with the next start, if Redis and its folder are still there. A second Ctrl-C doesn't wait.
`
