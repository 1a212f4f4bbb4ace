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
// session can't be renewed, the contexts of its handlers end with a cause that is [lock.ErrLost], by
// the worker's own clocks, before anybody else can take the jobs. What a superseded worker
// still wants to change is refused.
//
// # How a job ends
//
// A handler that returns nil completes the job, which is then deleted. [signalbox.Snooze]
// and a worker's shutdown put it back with no attempt used, [signalbox.Cancel] ends it as
// cancelled, and any other error, or a panic, is a failed attempt: the job is retried with
// exponential backoff and jitter, and is dead when its attempts are used up. A payload that doesn't fit the handler's arguments is
// dead after five attempts: see [Handle]. [Retry], [RetryFor] and [Terminal] say otherwise for a kind, [signalbox.RetryAfter] and
// [signalbox.Dead] for an error, and Config.ErrorHandler for all. Jobs of a
// kind that no handler is registered for are put back, for half a second while they are young up to a minute.
// Jobs of a worker that died run again within its session's TTL plus a second. For each of them that is
// one more crash, and no attempt. A job that has crashed five times is dead: see Queue.CrashLimit.
//
// Every handler runs inside [middleware.Trace] and [middleware.Metrics], then
// [middleware.Recover] and [middleware.Lock] (the job's own lease),
// then the middleware of Use, then that of [With], then [middleware.Timeout]. The first two record
// nothing, and cost nothing, unless there is a provider: one of Config or OpenTelemetry's global one.
//
// A middleware or a handler hears how its delivery ended, after Redis has confirmed it, by [signalbox.OnSettled].
//
// # Shutdown
//
// When Run's context ends, nothing more is claimed, and [signalbox.Draining] tells handlers so. They
// have Config.DrainTimeout to
// finish; then their contexts end with cause [signalbox.ErrShutdown], and what they leave
// undone runs elsewhere at once. [Worker.Abort] ends them before that. A handler that ignores its context keeps its job until the
// process exits, and keeps Run from returning: two copies of it never run. If Redis is away, Run
// returns 2.5 s after the drain timeout, or after the last handler has returned. A call that began
// before the shutdown, on the caller's client, can take that client's ReadTimeout longer.
package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/deadline"
	"github.com/signalbox-go/signalbox/internal/parcelseam"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/store/layout"
	"github.com/signalbox-go/signalbox/internal/store/server"
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
	kinds      kinds
	codecs     map[string]signalbox.Codec // by encoding, without JSON's
	middlemen  bool                       // there is middleware of the user's, which may trace or measure, since Run
	houses     *parcelseam.House          // of its follow-ups; nil: there were none

	id       string // of the worker, for people
	spans    *telemetry.Messaging
	leases   *telemetry.LockMetrics     // of the sessions
	consumer *telemetry.ConsumerMetrics // of what gets to no handler
	hooks    hooks
	pace     pace

	running atomic.Bool
	life    life
	link    *link                   // to Redis, of the Run that is under way
	halt    context.CancelCauseFunc // ends the Run that is under way, at once; nil: none is; guarded by mu
	quit    context.CancelCauseFunc // ends it as at the end of its context; the same
}

// New returns a worker that uses the caller's client, which stays the caller's to close.
// It talks to nobody yet. The error names every wrong field of cfg and wraps
// [signalbox.ErrInvalid].
func New(rdb redis.UniversalClient, cfg Config) (*Worker, error) {
	cfg, err := cfg.filled()
	err = errors.Join(server.CheckClient(rdb), err)
	if err != nil {
		return nil, err
	}
	w := &Worker{rdb: rdb, cfg: cfg, log: cfg.Logger, kinds: kinds{named: make(map[string]*kind)}, codecs: make(map[string]signalbox.Codec), id: workerID()}
	for _, codec := range cfg.Codecs {
		w.codecs[codec.Encoding()] = codec
	}
	w.life.since = time.Now()
	w.pace.usual = hangLimit(cfg.SessionTTL) / guardRounds
	w.hooks.log = cfg.Logger
	w.spans = telemetry.NewMessaging(cfg.TracerProvider, w.who())
	w.consumer = telemetry.NewConsumerMetrics(cfg.MeterProvider, w.who())
	w.leases = telemetry.NewLockMetrics(cfg.MeterProvider)
	return w, nil
}

// ID returns the worker's name for people, such as "web-3:4711:k2x9q": the host, the process, and letters that no other worker has. Redis
// knows it under that name: see package inspect.
func (w *Worker) ID() string { return w.id }

// namespace returns the worker's namespace as jobs have it: "" for the default one.
func (w *Worker) namespace() string {
	if w.cfg.Namespace == layout.DefaultNamespace {
		return ""
	}
	return w.cfg.Namespace
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

// errAborted is why Run ends after Abort.
var errAborted = errors.New("worker: Abort was called")

// Abort ends the contexts of all handlers at once, with cause [signalbox.ErrShutdown], and Run without waiting
// for Config.DrainTimeout: a hard stop, as for a second Ctrl-C. Run returns when the handlers have, and what
// they leave undone runs elsewhere at once. It does nothing when Run is not under way, and does not
// wait. It may be called at any time, from any goroutine.
func (w *Worker) Abort() { w.end(errAborted) }

// errStopped is why Run ends after inspect.Stop.
var errStopped = errors.New("worker: an operator has stopped it")

// stop ends Run as at the end of its context.
func (w *Worker) stop() {
	w.mu.Lock()
	quit := w.quit
	w.mu.Unlock()
	if quit != nil {
		quit(errStopped)
	}
}

// asked reports whether somebody asked the worker to end, by the cause of the end of its context.
func asked(cause error) bool { return errors.Is(cause, errAborted) || errors.Is(cause, errStopped) }

// end ends Run and its handlers' contexts.
func (w *Worker) end(cause error) {
	w.mu.Lock()
	halt := w.halt
	w.mu.Unlock()
	if halt != nil {
		halt(cause)
	}
}

// Run works the queues until ctx ends, or an operator stops the worker (inspect.Inspector.Stop), and returns nil after a clean drain. A
// nil while ctx goes on says that it was stopped, or that [Worker.Abort] was called. It waits for a
// Redis that isn't there yet, or that is a replica, as in a failover. It returns an error at once if Redis is configured in a
// way that loses jobs, if no handler is registered, or if Run is under way already. It also returns an
// error if the client is closed before Run has returned. Handlers'
// contexts have the values of ctx, but end as the package's documentation says.
//
// If Redis hangs, a call that is already under way on the caller's client ends only with that client's ReadTimeout, and Run
// returns no earlier. So don't disable ReadTimeout: Run might never return then.
//
// The subscription for wake-ups, renewals and the reading of depths don't use the pool of the caller's client: Run makes a
// client of its own from its settings, and closes it when it returns.
func (w *Worker) Run(ctx context.Context) (err error) {
	if !w.running.CompareAndSwap(false, true) {
		return errors.New("worker: Run is under way already")
	}
	defer w.running.Store(false)
	caller := ctx
	w.life.begin()
	defer func() { w.life.end(err != nil && caller.Err() == nil && !asked(context.Cause(ctx))) }()

	w.mu.Lock()
	w.started = true
	none := len(w.kinds.named) == 0 && w.kinds.others == nil
	w.mu.Unlock()
	if none {
		return fmt.Errorf("%w worker: no handler is registered; call worker.Handle before Run", signalbox.ErrInvalid)
	}
	w.build()

	// Handlers may go on when stop was called, but not when halt was.
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	halted, halt := context.WithCancelCause(context.WithoutCancel(ctx))
	defer halt(nil)
	w.mu.Lock()
	w.halt, w.quit = func(cause error) { stop(cause); halt(cause) }, stop
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.halt, w.quit = nil, nil
		w.mu.Unlock()
	}()

	stores := make([]*store.Queue, 0, len(w.cfg.Queues))
	for name, q := range w.cfg.Queues {
		stores = append(stores, store.New(w.rdb, w.cfg.Namespace, name).As(w.id).WithCrashLimit(q.CrashLimit).WithSessionTTL(w.cfg.SessionTTL))
	}
	conns := w.connect(ctx)
	defer conns.close()
	found, waited, err := preflight(ctx, w.rdb, w.log, stores, w.cfg.SessionTTL/3)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop before there was anything to drain
		}
		return err
	}
	own := conns.client(ctx)
	w.link = newLink(w, found)

	bound := newBound(w.cfg.Concurrency)
	queues, owned := make([]*queue, 0, len(stores)), make([]*store.Queue, 0, len(stores))
	for _, s := range stores {
		o := s.On(own)
		queues, owned = append(queues, newQueue(w, s, o, w.cfg.Queues[s.Name()].Concurrency, bound)), append(owned, o)
	}
	bound.divide(queues, w.cfg.Queues)
	if waited { // so did other workers, whose sessions have ended meanwhile
		for _, q := range queues {
			q.contact.disturbed()
		}
	}
	w.checkPool(ctx, stores)
	deadline.Warn(w.rdb, w.log)
	defer observe(ctx, w.cfg.MeterProvider, w.log, owned)()
	w.life.serve(queues, w.link)
	listener := listen(own, w.log, queues, strings.Contains(found.Mode, "cluster"))

	var wg sync.WaitGroup
	wg.Go(func() {
		server.Oversee(ctx, own, w.log, &w.link.found, w.link.again, store.Keys(stores), server.Worker)
	})
	wg.Go(func() { listener.run(ctx) })
	guarded, unguard := context.WithCancel(context.WithoutCancel(ctx))
	var guarding sync.WaitGroup
	guarding.Go(func() { w.guard(guarded, queues) })
	errs := make([]error, len(queues), len(queues)+1)
	for i, q := range queues {
		wg.Go(func() { errs[i] = q.run(ctx, halted) })
	}
	done := make(chan struct{})
	var hurrying sync.WaitGroup
	hurrying.Go(func() { w.hurry(ctx, halted, done, queues, conns.close) })
	wg.Wait()
	unguard()
	guarding.Wait()
	close(done)
	hurrying.Wait()
	w.hooks.wait()
	if caller.Err() == nil && !asked(context.Cause(ctx)) {
		errs = append(errs, context.Cause(ctx)) // nobody asked it to stop
	}
	return errors.Join(errs...)
}

// workerID returns a name of the worker for people: the host, the process ID and some random letters. In a container each start may
// have the same host and process ID.
func workerID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	printable := func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune("{}@", r) {
			return '_'
		}
		return r
	}
	return fmt.Sprintf("%.64s:%d:%s", strings.Map(printable, host), os.Getpid(), strings.ToLower(rand.Text()[:5]))
}
