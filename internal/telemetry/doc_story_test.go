package telemetry_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A story has everything that a scheduler, workers and locks emitted.
type story struct {
	spans   tracetest.SpanStubs
	metrics []metricdata.Metrics

	recorder *recorder
	reader   *sdkmetric.ManualReader
	server   *redistest.Server
	tp       *sdktrace.TracerProvider
	mp       *sdkmetric.MeterProvider
	queue    string // prefix of the names of all queues
	lockKey  string
}

// canary is a text in every payload.
const canary = "canary-of-the-payload"

// A recorder keeps all spans that ended, and the attributes that each had at its start. It is also the
// sampler, and keeps the attributes that it was given.
type recorder struct {
	mu      sync.Mutex
	started map[trace.SpanID][]attribute.Key
	asked   map[asked]bool
	ended   []sdktrace.ReadOnlySpan
}

// asked means that the sampler was given the attribute for such a span.
type asked struct {
	kind trace.SpanKind
	name string
	key  attribute.Key
}

func (r *recorder) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kv := range p.Attributes {
		r.asked[asked{p.Kind, p.Name, kv.Key}] = true
	}
	return sdktrace.AlwaysSample().ShouldSample(p)
}

func (r *recorder) Description() string { return "notes attributes" }

// knew reports whether the span had the attribute at its start, and the sampler got it.
func (r *recorder) knew(sp tracetest.SpanStub, key attribute.Key) bool {
	return slices.Contains(r.started[sp.SpanContext.SpanID()], key) && r.asked[asked{sp.SpanKind, sp.Name, key}]
}

func (r *recorder) OnStart(_ context.Context, sp sdktrace.ReadWriteSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, kv := range sp.Attributes() {
		id := sp.SpanContext().SpanID()
		r.started[id] = append(r.started[id], kv.Key)
	}
}

func (r *recorder) OnEnd(sp sdktrace.ReadOnlySpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, sp)
}

func (r *recorder) Shutdown(context.Context) error   { return nil }
func (r *recorder) ForceFlush(context.Context) error { return nil }

// name returns the span's name as docs/tracing/spans.md writes it.
func (s *story) name(sp tracetest.SpanStub) string {
	if sp.InstrumentationScope.Name != telemetry.Scope {
		return "the caller's"
	}
	word, rest, _ := strings.Cut(sp.Name, " ")
	switch {
	case strings.HasPrefix(sp.Name, "handle many "):
		return "handle many {kind}"
	case word == "handle":
		return "handle {kind}"
	case word == "tick":
		return "tick {entry}"
	case word == "enqueue" && sp.SpanKind == trace.SpanKindClient:
		return "enqueue {queue} of a bulk"
	case strings.HasPrefix(rest, s.queue):
		return word + " {queue}"
	}
	return sp.Name
}

func (s *story) ours() tracetest.SpanStubs {
	var ours tracetest.SpanStubs
	for _, sp := range s.spans {
		if sp.InstrumentationScope.Name == telemetry.Scope {
			ours = append(ours, sp)
		}
	}
	return ours
}

// play makes everything happen at least once, in parts that run at the same time.
func play(t *testing.T) *story {
	t.Helper()
	s := &story{
		recorder: &recorder{started: make(map[trace.SpanID][]attribute.Key), asked: make(map[asked]bool)},
		reader:   sdkmetric.NewManualReader(),
		server:   redistest.New(t),
		queue:    redistest.Name(t),
		lockKey:  redistest.Name(t) + "-key",
	}
	s.tp = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.recorder), sdktrace.WithSampler(s.recorder))
	s.mp = sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
	t.Run("story", func(t *testing.T) {
		for name, play := range map[string]func(*part){
			"jobs": jobs, "locks": locks, "taken-over": takenOver, "cut-off": cutOff, "ticks": ticks, "failed-tick": failedTick, "refused": refused,
			"failures": failures, "stuck": stuck, "outbox": outbox, "many": many,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				play(newPart(t, s, name))
			})
		}
	})
	s.collect(t)
	s.spans = tracetest.SpanStubsFromReadOnlySpans(s.recorder.ended)
	return s
}

// collect adds the current metrics. Some exist only while a part runs.
func (s *story) collect(t *testing.T) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(t.Context(), &all); err != nil {
		t.Error(err)
	}
	for _, scope := range all.ScopeMetrics {
		s.metrics = append(s.metrics, scope.Metrics...)
	}
}

// A part of the story has its own queue.
type part struct {
	*testing.T
	*story
	name  string // of the queue
	rdb   redis.UniversalClient
	sched *scheduler.Scheduler
	ends  chan string // kinds of deliveries whose handlers and all middleware have returned
}

func newPart(t *testing.T, s *story, name string) *part {
	p := &part{T: t, story: s, name: s.queue + "-" + name, rdb: s.server.Client(), ends: make(chan string, 100)}
	p.sched = p.scheduler()
	return p
}

var silent = slog.New(slog.DiscardHandler)

func (p *part) scheduler() *scheduler.Scheduler {
	p.Helper()
	sched, err := scheduler.New(p.rdb, scheduler.Config{
		Logger: silent, TracerProvider: p.tp, MeterProvider: p.mp, Propagator: propagation.TraceContext{},
	})
	if err != nil {
		p.Fatal(err)
	}
	return sched
}

// A job's kind says what its handler does.
type job struct {
	kind string
	Note string
}

func (j job) Kind() string { return j.kind }

// caller returns a context with a span of the caller.
func (p *part) caller() context.Context {
	ctx, span := p.tp.Tracer("caller").Start(p.Context(), "caller")
	p.Cleanup(func() { span.End() })
	return ctx
}

func (p *part) put(ctx context.Context, kind string, opts ...scheduler.EnqueueOption) {
	p.Helper()
	if _, err := p.sched.Enqueue(ctx, job{kind, canary}, append(opts, scheduler.Queue(p.name))...); err != nil {
		p.Fatal(err)
	}
}

func (p *part) putMany(ctx context.Context, kind string, n int) {
	p.Helper()
	items := make([]scheduler.Item, n)
	for i := range items {
		items[i].Args = job{kind, canary}
	}
	if _, err := p.sched.EnqueueMany(ctx, items, scheduler.Queue(p.name)); err != nil {
		p.Fatal(err)
	}
}

// handlers are the handlers of a worker by kind.
type handlers map[string]signalbox.HandlerFunc

// work starts a worker. Some of its handlers are under named locks. stop waits until the worker has drained.
func (p *part) work(rdb redis.UniversalClient, slots int, ttl time.Duration, hs handlers, under map[string]signalbox.Middleware) (stop func()) {
	p.Helper()
	w, err := worker.New(rdb, worker.Config{
		Queues: worker.Queues{p.name: {Concurrency: slots}}, SessionTTL: ttl, DrainTimeout: -1, Logger: silent,
		TracerProvider: p.tp, MeterProvider: p.mp, Propagator: propagation.TraceContext{},
	})
	if err != nil {
		p.Fatal(err)
	}
	w.Use(func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			defer func() { p.ends <- job.Kind }()
			return next.Handle(ctx, job)
		})
	})
	for kind, h := range hs {
		opts := []worker.Option{worker.Retry(func(int, error) time.Duration { return time.Millisecond })}
		if mw := under[kind]; mw != nil {
			opts = append(opts, worker.With(mw))
		}
		w.HandleKind(kind, h, opts...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.Run(ctx) // a worker that is cut off returns an error
	}()
	stop = func() {
		cancel()
		<-done
	}
	p.Cleanup(stop)
	return stop
}

// await waits for a delivery of each of these kinds to end.
func (p *part) await(kinds ...string) {
	p.Helper()
	late := time.After(20 * time.Second)
	for len(kinds) > 0 {
		select {
		case kind := <-p.ends:
			if i := slices.Index(kinds, kind); i >= 0 {
				kinds = slices.Delete(kinds, i, i+1)
			}
		case <-late:
			p.Fatalf("no delivery of %v ends", kinds)
		}
	}
}

// ended returns how many spans of that name have ended.
func (p *part) ended(name string) int {
	p.recorder.mu.Lock()
	defer p.recorder.mu.Unlock()
	n := 0
	for _, sp := range p.recorder.ended {
		if sp.Name() == name {
			n++
		}
	}
	return n
}

// counted reports whether a metric has an attribute with this value.
func (p *part) counted(key attribute.Key, value string) bool {
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(p.Context(), &all); err != nil {
		p.Error(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			_, points := dissect(m)
			for _, set := range points {
				if v, ok := set.Value(key); ok && v.AsString() == value {
					return true
				}
			}
		}
	}
	return false
}

func succeed(context.Context, *signalbox.Job) error { return nil }

// untilOver is a handler that runs until its context ends.
func untilOver(ctx context.Context, _ *signalbox.Job) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// outbox measures what a relay does. A relay needs a driver of a database, which this module doesn't have: package tests/outboxsql checks that relays measure this.
func outbox(p *part) {
	m := telemetry.NewOutboxMetrics(p.mp)
	defer m.ObserveDepths(func() []telemetry.OutboxDepth {
		return []telemetry.OutboxDepth{{Namespace: "default", Queue: p.name, Backlog: 3, Dead: 1, Lag: time.Second}}
	})()
	for _, outcome := range []string{telemetry.RowEnqueued, telemetry.RowLeftOut, telemetry.RowDead} {
		m.Relayed(p.Context(), "default", p.name, outcome, 1)
	}
	for _, reason := range []string{telemetry.RepairRedis, telemetry.RepairLost, telemetry.RepairDatabase, telemetry.RepairFork} {
		m.Repaired(p.Context(), "default", p.name, reason)
	}
	p.collect(p.T)
}

// stuck has a handler that goes on after the end of its context.
func stuck(p *part) {
	release := make(chan struct{})
	open := sync.OnceFunc(func() { close(release) })
	stop := p.work(p.rdb, 1, 5*time.Second, handlers{"stubborn": func(context.Context, *signalbox.Job) error { <-release; return nil }}, nil)
	defer stop()
	defer open()
	p.put(p.Context(), "stubborn", scheduler.Timeout(time.Millisecond))
	redistest.Eventually(p, func() bool { return p.measured("signalbox.worker.stuck") }, "it is counted")
	open()
	p.await("stubborn")
}

// measured reports whether there is a metric of that name.
func (p *part) measured(name string) bool {
	var all metricdata.ResourceMetrics
	if err := p.reader.Collect(p.Context(), &all); err != nil {
		p.Error(err)
	}
	for _, scope := range all.ScopeMetrics {
		if slices.ContainsFunc(scope.Metrics, func(m metricdata.Metrics) bool { return m.Name == name }) {
			return true
		}
	}
	return false
}

// jobs has every way in which a job can end, and every outcome of its locks.
// visit is the argument of jobs that are handled together.
type visit struct{ Note string }

func (visit) Kind() string { return "visit" }

// many has a call with two jobs fail, and then complete.
func many(p *part) {
	w, err := worker.New(p.rdb, worker.Config{
		Queues: worker.Queues{p.name: {Concurrency: 2}}, Logger: silent, TracerProvider: p.tp, MeterProvider: p.mp, Propagator: propagation.TraceContext{},
	})
	if err != nil {
		p.Fatal(err)
	}
	calls := make(chan int, 10)
	worker.HandleMany(w, func(_ context.Context, jobs []*worker.Each[visit]) error {
		calls <- len(jobs)
		if jobs[0].Job.Attempt == 1 {
			return errors.New("the first time it fails")
		}
		return nil
	}, worker.UpTo(2, time.Minute), worker.Retry(func(int, error) time.Duration { return time.Millisecond }))
	for range 2 {
		if _, err := p.sched.Enqueue(p.Context(), visit{canary}, scheduler.Queue(p.name)); err != nil {
			p.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	late := time.After(20 * time.Second)
	for range 2 {
		select {
		case n := <-calls:
			if n != 2 {
				p.Errorf("a call has %d jobs", n)
			}
		case <-late:
			p.Error("there are no two calls")
		}
	}
	cancel()
	if err := <-done; err != nil {
		p.Error(err)
	}
}

func jobs(p *part) {
	near := newLocker(p.rdb, lock.Config{TTL: 5 * time.Second, MeterProvider: p.mp})
	broken := redistest.NewProxy(p, p.server.Addr())
	broken.Reply(redistest.Any, "-ERR it is broken", -1)
	far := newLocker(broken.Client(), lock.Config{MeterProvider: p.mp})
	taken, err := newLocker(p.rdb, lock.Config{TTL: time.Hour, MeterProvider: p.mp}).TryAcquire(p.Context(), p.lockKey)
	if err != nil {
		p.Fatal(err)
	}
	began := make(chan struct{})
	hs := handlers{
		"succeed": succeed, "dropped": succeed, "snoozed": succeed, "down": succeed, "anyway": succeed, "waits": succeed, "until-over": func(ctx context.Context, job *signalbox.Job) error {
			close(began)
			return untilOver(ctx, job)
		},
		"panic":   func(context.Context, *signalbox.Job) error { panic("as it is meant to") },
		"timeout": untilOver,
		"cancel":  func(context.Context, *signalbox.Job) error { return signalbox.Cancel(errors.New("not wanted")) },
		"retry": func(_ context.Context, job *signalbox.Job) error {
			if job.Attempt == 1 {
				return errors.New("the first time it fails")
			}
			return nil
		},
		"has-follow-up": func(ctx context.Context, _ *signalbox.Job) error {
			return scheduler.Then(ctx, job{"succeed", canary})
		},
		"locks": func(ctx context.Context, _ *signalbox.Job) error {
			return lock.Do(ctx, near, p.lockKey+"-inner", func(context.Context) error { return nil })
		},
		"loses": func(ctx context.Context, _ *signalbox.Job) error {
			if err := p.rdb.Set(ctx, p.lockKey+"-lost", "another's", time.Minute).Err(); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
	}
	under := map[string]signalbox.Middleware{
		"dropped": middleware.Lock(near, middleware.RawKey(p.lockKey), middleware.WhenHeld(middleware.PolicyDrop)),
		"snoozed": middleware.Lock(near, middleware.RawKey(p.lockKey), middleware.RetryIn(10*time.Millisecond)),
		"waits":   middleware.Lock(near, middleware.RawKey(p.lockKey), middleware.MaxWait(20*time.Second)),
		"down":    middleware.Lock(far, middleware.RawKey(p.lockKey)),
		"anyway":  middleware.Lock(far, middleware.RawKey(p.lockKey), middleware.WhenDown(middleware.PolicyRunAnyway)),
		"loses":   middleware.Lock(near, middleware.RawKey(p.lockKey+"-lost")),
	}
	once := scheduler.MaxAttempts(1)
	p.put(p.caller(), "succeed")
	p.put(p.Context(), "succeed")
	p.put(p.Context(), "succeed", scheduler.TraceMode(signalbox.TraceLink))
	p.putMany(p.caller(), "succeed", 2)
	p.putMany(p.Context(), "succeed", 2)
	for _, kind := range []string{"panic", "down"} {
		p.put(p.Context(), kind, once)
	}
	p.put(p.Context(), "timeout", once, scheduler.Timeout(50*time.Millisecond))
	for _, kind := range []string{"cancel", "retry", "has-follow-up", "locks", "loses", "dropped", "snoozed", "waits", "anyway"} {
		p.put(p.Context(), kind)
	}
	stop := p.work(p.rdb, 30, 5*time.Second, hs, under)
	p.await("dropped", "snoozed")
	if err := taken.Release(p.Context()); err != nil {
		p.Error(err)
	}
	p.await("snoozed", "waits")
	q := store.New(p.rdb, "", p.name)
	redistest.Eventually(p, func() bool {
		c, err := q.Looks().Counts(p.Context())
		return err == nil && c.Ready+c.Due+c.Running == 0
	}, "all jobs have ended")
	p.put(p.Context(), "until-over")
	<-began
	p.collect(p.T)
	stop()
}

// locks has locks without jobs.
func locks(p *part) {
	locker := newLocker(p.rdb, lock.Config{MeterProvider: p.mp})
	key := p.lockKey + "-alone"
	held, err := locker.Acquire(p.caller(), key)
	if err != nil {
		p.Fatal(err)
	}
	if err := errors.Join(held.Extend(p.caller()), held.Release(p.caller())); err != nil {
		p.Error(err)
	}
	if held, err = locker.Acquire(p.caller(), key); err != nil {
		p.Fatal(err)
	}
	if _, err := locker.TryAcquire(p.caller(), key); !errors.Is(err, lock.ErrHeld) {
		p.Errorf("a held lock: %v", err)
	}
	if err := held.Release(p.Context()); err != nil {
		p.Error(err)
	}
	l, err := newLocker(p.rdb, lock.Config{TTL: time.Second, MeterProvider: p.mp}).Acquire(p.caller(), key)
	if err != nil {
		p.Fatal(err)
	}
	<-l.Context().Done()
}

// takenOver has jobs that another worker takes over. Then their own worker settles them.
func takenOver(p *part) {
	open := make(map[string]func())
	first, second := make(handlers), make(handlers)
	for kind, err := range map[string]error{
		"succeed": nil, "fail": errors.New("it fails"), "snooze": signalbox.Snooze(time.Minute), "cancel": signalbox.Cancel(errors.New("not wanted")),
	} {
		gate := make(chan struct{})
		open[kind] = sync.OnceFunc(func() { close(gate) })
		first[kind] = func(context.Context, *signalbox.Job) error {
			<-gate
			return err
		}
		second[kind] = succeed
	}
	first["until-over"], second["until-over"] = untilOver, succeed
	p.put(p.Context(), "succeed", scheduler.TraceMode(signalbox.TraceLink))
	p.putMany(p.Context(), "fail", 1)
	for _, kind := range []string{"snooze", "cancel", "until-over"} {
		p.put(p.Context(), kind)
	}
	key := "signalbox:{default:" + p.name + "}:"
	p.work(p.rdb, len(first), 30*time.Second, first, nil)
	p.Cleanup(func() { // the worker's end waits for them
		for _, open := range open {
			open()
		}
	})
	redistest.Eventually(p, func() bool { return p.rdb.HLen(p.Context(), key+"notes").Val() == int64(len(first)) }, "Redis has the notes")
	for _, session := range p.rdb.ZRange(p.Context(), key+"sessions", 0, -1).Val() {
		p.rdb.ZAdd(p.Context(), key+"sessions", redis.Z{Score: 1, Member: session})
	}
	p.work(p.rdb, len(second), time.Second, second, nil)
	p.await("succeed", "fail", "snooze", "cancel", "until-over")
	open["fail"]() // from its settlement the worker learns of the loss
	p.await("fail")
	redistest.Eventually(p, func() bool { return p.ended("retry "+p.name) > 0 }, "Redis has refused the retry")
	for _, kind := range []string{"succeed", "snooze", "cancel"} {
		open[kind]()
	}
	p.await("succeed", "snooze", "cancel", "until-over")
}

// cutOff has a worker that loses Redis and is stopped before Redis is back.
func cutOff(p *part) {
	proxy := redistest.NewProxy(p, p.server.Addr())
	rdb := proxy.ClientWith(func(o *redis.UniversalOptions) { o.MaxRetries = -1 })
	began := make(chan struct{})
	p.put(p.Context(), "until-over")
	stop := p.work(rdb, 1, time.Second, handlers{"until-over": func(ctx context.Context, job *signalbox.Job) error {
		close(began)
		return untilOver(ctx, job)
	}}, nil)
	<-began
	proxy.Reply(redistest.Any, "-LOADING Redis is loading the dataset in memory", -1)
	p.await("until-over")
	stop()
}

// ticks has a cron entry in two processes, and a worker that renews its lease meanwhile. One of the jobs has
// no handler.
func ticks(p *part) {
	p.put(p.Context(), "stranger")
	p.work(p.rdb, 1, time.Second, handlers{"tick": succeed}, nil)
	ctx, cancel := context.WithCancel(p.Context())
	var running sync.WaitGroup
	for _, sched := range []*scheduler.Scheduler{p.sched, p.scheduler()} {
		if err := sched.Cron("every-second", "@every 1s", job{"tick", canary}, scheduler.Queue(p.name)); err != nil {
			p.Fatal(err)
		}
		running.Go(func() {
			if err := sched.Run(ctx); err != nil {
				p.Error(err)
			}
		})
	}
	redistest.Eventually(p, func() bool {
		return p.ended("tick every-second") > 1 && p.counted("signalbox.schedule.outcome", "skipped")
	},
		"two ticks fire, and who is late for one skips it")
	cancel()
	running.Wait()
}

// failedTick has a tick that Redis refuses until the scheduler stops.
func failedTick(p *part) {
	proxy, evalsha := redistest.NewProxy(p, p.server.Addr()), redistest.Command("EVALSHA")
	enqueues := func(cmd []string) bool { return evalsha(cmd) && len(cmd) > 2 && cmd[2] == "20" } // an enqueue has so many keys
	proxy.Reply(enqueues, "-OOM command not allowed when used memory > 'maxmemory'.", -1)
	p.rdb = proxy.Client()
	sched := p.scheduler()
	if err := sched.Cron("refused", "@every 1s", job{"tick", canary}, scheduler.Queue(p.name)); err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := sched.Run(ctx); err != nil {
			p.Error(err)
		}
	})
	redistest.Eventually(p, func() bool { return proxy.Count(enqueues) > 0 }, "a tick is tried")
	cancel()
	running.Wait()
}

// refused has jobs that can't be enqueued.
func refused(p *part) {
	large := job{"large", strings.Repeat(canary, 1<<20/len(canary))}
	if _, err := p.sched.Enqueue(p.Context(), large, scheduler.Queue(p.name)); err == nil {
		p.Error("a job that is too large was enqueued")
	}
	if _, err := p.sched.EnqueueMany(p.Context(), []scheduler.Item{{Args: large}}, scheduler.Queue(p.name)); err == nil {
		p.Error("a job that is too large was enqueued in bulk")
	}
	ctx, cancel := context.WithCancel(p.Context())
	cancel()
	if _, err := p.sched.EnqueueMany(ctx, []scheduler.Item{{Args: job{"late", canary}}}, scheduler.Queue(p.name)); err == nil {
		p.Error("a job was enqueued after its context had ended")
	}
}
