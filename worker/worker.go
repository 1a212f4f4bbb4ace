// Package worker takes jobs out of their queues and runs them.
//
// A [Worker] works one or more queues, each with slots of its own. [Handle] registers a
// typed function for a kind of job, [Worker.Use] wraps middleware around all of them, and
// [Worker.Run] blocks until its context ends and the running handlers have returned.
//
// # Leases
//
// For each queue a worker holds a session: a lease in Redis that one command renews every third of
// its TTL, however many jobs run. A job that a worker claimed is locked under its
// session, and carries a fencing token larger than that of every earlier delivery. When the
// session can't be renewed, the contexts of its handlers end with cause [lock.ErrLost], by
// the worker's own clocks, before anybody else can take the jobs. What a superseded worker
// still wants to change is refused.
//
// # How a job ends
//
// A handler that returns nil completes the job, which is then deleted. [signalbox.Snooze]
// and a worker's shutdown put it back with no attempt used, [signalbox.Cancel] ends it as
// cancelled, and any other error, or a panic, is a failed attempt: the job is retried with
// exponential backoff and full jitter, and is dead when its attempts are used up. Jobs of a
// kind that no handler is registered for are put back for half a minute or more.
// Jobs of a worker that died run again within its session's TTL plus a second; each counts a
// crash, not an attempt, and a job that was there for five crashes is dead.
//
// Every handler runs inside [middleware.Trace] and [middleware.Metrics], then
// [middleware.Recover] and [middleware.Lock] (the job's own lease),
// then the middleware of Use, then that of [With], then [middleware.Timeout]. The first two record
// nothing, and cost nothing, unless there is a provider: one of Config or OpenTelemetry's global one.
//
// # Shutdown
//
// When Run's context ends, nothing more is claimed. Handlers have Config.DrainTimeout to
// finish; then their contexts end with cause [signalbox.ErrShutdown], and what they leave
// undone runs elsewhere at once. A handler that ignores its context keeps its job until the
// process exits, and keeps Run from returning: two copies of it never run.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
)

// A Worker runs jobs. Register its handlers first, then call Run.
type Worker struct {
	rdb redis.UniversalClient
	cfg Config
	log *slog.Logger

	mu         sync.Mutex
	started    bool
	middleware []signalbox.Middleware
	kinds      map[string]*kind
	middlemen  bool // there is middleware of the user's, which may trace or measure, since Run

	id       string // of the worker, for people
	spans    *telemetry.Messaging
	leases   *telemetry.LockMetrics     // of the sessions
	consumer *telemetry.ConsumerMetrics // of what gets to no handler

	running atomic.Bool
}

// New returns a worker that uses the caller's client, which stays the caller's to close.
// It talks to nobody yet. The error names every wrong field of cfg and wraps
// [signalbox.ErrInvalid].
func New(rdb redis.UniversalClient, cfg Config) (*Worker, error) {
	cfg, err := cfg.filled()
	if store.IsNil(rdb) {
		err = errors.Join(fmt.Errorf("%w rdb: it is nil; pass a client of go-redis", signalbox.ErrInvalid), err)
	}
	if err != nil {
		return nil, err
	}
	w := &Worker{rdb: rdb, cfg: cfg, log: cfg.Logger, kinds: make(map[string]*kind), id: clientID()}
	w.spans = telemetry.NewMessaging(cfg.TracerProvider, w.who())
	w.consumer = telemetry.NewConsumerMetrics(cfg.MeterProvider, w.who())
	w.leases = telemetry.NewLockMetrics(cfg.MeterProvider)
	return w, nil
}

// Use wraps mw around every handler; the first is the outermost. It panics after Run was called.
func (w *Worker) Use(mw ...signalbox.Middleware) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mustNotRun("Use")
	for _, m := range mw {
		if m == nil {
			panic("worker: Use of a nil middleware")
		}
	}
	w.middleware = append(w.middleware, mw...)
}

func (w *Worker) mustNotRun(what string) {
	if w.started {
		panic("worker: " + what + " after Run; register everything first")
	}
}

// Run works the queues until ctx ends, and returns nil after a clean drain. It waits for a
// Redis that isn't there yet, and returns an error at once if Redis is configured in a
// way that loses jobs, if no handler is registered, or if Run is under way already. Handlers'
// contexts have the values of ctx, but end as the package's documentation says.
func (w *Worker) Run(ctx context.Context) error {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("worker: Run is under way already")
	}
	defer w.running.Store(false)

	w.mu.Lock()
	w.started = true
	n := len(w.kinds)
	w.mu.Unlock()
	if n == 0 {
		return fmt.Errorf("%w worker: no handler is registered; call worker.Handle before Run", signalbox.ErrInvalid)
	}
	w.build()

	if err := preflight(ctx, w.rdb, w.log); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before there was anything to drain
		}
		return err
	}

	queues := make([]*queue, 0, len(w.cfg.Queues))
	stores := make([]*store.Queue, 0, len(w.cfg.Queues))
	for name, cfg := range w.cfg.Queues {
		s := store.New(w.rdb, name)
		stores = append(stores, s)
		queues = append(queues, newQueue(w, s, cfg.Concurrency))
	}
	defer w.observe(ctx, stores)()
	listeners := listen(w.rdb, w.log, queues)

	var wg sync.WaitGroup
	for _, l := range listeners {
		wg.Go(func() { l.run(ctx) })
	}
	errs := make([]error, len(queues))
	for i, q := range queues {
		wg.Go(func() { errs[i] = q.run(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
