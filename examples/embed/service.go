package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/inspect"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A service has all parts of the process.
type service struct {
	jobs    *scheduler.Scheduler
	worker  *worker.Worker
	inspect *inspect.Inspector
	files   *reports

	adminToken string
	lameDuck   time.Duration
	stopping   gate
}

// newService makes the service, and calls nobody.
func newService(rdb redis.UniversalClient, locker lock.Locker, files *reports, up *upstream, cfg config) (*service, error) {
	s := &service{files: files, adminToken: cfg.adminToken, lameDuck: cfg.lameDuck}
	var err error
	if s.jobs, err = scheduler.New(rdb, scheduler.Config{Namespace: cfg.namespace}); err != nil {
		return nil, err
	}
	if s.inspect, err = inspect.New(rdb, inspect.Config{Namespace: cfg.namespace}); err != nil {
		return nil, err
	}
	s.worker, err = worker.New(rdb, worker.Config{
		Namespace: cfg.namespace,
		Queues: worker.Queues{
			queueReports: {Concurrency: 4}, // they keep the other system busy
			queueNotices: {Concurrency: 20},
		},
		DrainTimeout: cfg.drain,
	})
	if err != nil {
		return nil, err
	}
	s.worker.Use(middleware.Log(nil)) // a line for each job, without its arguments
	b := &builder{files, up, s.jobs, cfg.namespace}
	b.register(s.worker, locker)
	// Each process registers the entry. Each tick is enqueued once.
	if err := s.jobs.Cron("sweep", "30 3 * * *", Sweep{Days: 30}); err != nil {
		return nil, err
	}
	return s, nil
}

// requestTimeout is how long requests that are under way may go on when the service stops.
const requestTimeout = 5 * time.Second

// run runs all parts until ctx ends, or one of them does. Then it stops them in this order:
//
//  1. The probe says that the process is not ready. For the time of the lame duck it goes on, until load balancers know.
//  2. The API takes no more requests. Those that are under way end: they may still enqueue.
//  3. The scheduler and the worker stop. Jobs that run have the drain timeout to end.
//  4. Probes, metrics and operators are answered no more.
//
// All of that, with the 2.5 s that the worker waits for a Redis that is away, must take less than the orchestrator's patience: 30 s on
// Kubernetes. When hurry has ended, handlers are interrupted.
func (s *service) run(ctx, hurry context.Context, api, internal net.Listener, metrics http.Handler) error {
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(hurry, s.worker.Abort)()
	clients := serve(api, otelhttp.NewHandler(s.apiHandler(), "api"), stop)
	operators := serve(internal, s.internalHandler(metrics), stop)
	var jobs sync.WaitGroup
	var scheduling, running error
	jobs.Go(func() { defer stop(); scheduling = s.jobs.Run(working) })
	jobs.Go(func() { defer stop(); running = s.worker.Run(working) }) // nil if an operator has stopped it

	select {
	case <-ctx.Done():
		slog.Info("the service stops")
	case <-working.Done():
		slog.Warn("the service stops: a part of it has ended")
	}
	s.stopping.close()
	select {
	case <-time.After(s.lameDuck):
	case <-working.Done():
	case <-hurry.Done():
	}
	clients.end(hurry)
	stop()
	jobs.Wait()
	operators.end(hurry)
	return errors.Join(scheduling, running, clients.err, operators.err)
}

// A server is one that is being served.
type server struct {
	http.Server
	done chan struct{}
	err  error // why it has ended by itself
}

// serve starts a server. If it ends by itself, stop is called.
func serve(l net.Listener, h http.Handler, stop func()) *server {
	s := &server{Server: http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.err = err
			stop()
		}
	}()
	return s
}

// end takes no more requests, and waits for those that are under way.
func (s *server) end(hurry context.Context) {
	ctx, cancel := context.WithTimeout(hurry, requestTimeout)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close() // they took too long
	}
	<-s.done
}

// A gate is a part of the process that is ready until it is closed.
type gate struct{ closed atomic.Pointer[time.Time] }

func (g *gate) close() {
	now := time.Now()
	g.closed.Store(&now)
}

// Health is asked by health.Ready.
func (g *gate) Health() health.Report {
	since := g.closed.Load()
	if since == nil {
		return health.Report{}
	}
	return health.Report{Problems: []health.Problem{{
		Part: "service", Code: health.Draining, Severity: health.Unready, Since: *since, Detail: "the process is about to end",
	}}}
}
