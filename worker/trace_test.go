package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
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
	"github.com/signalbox-go/signalbox/worker"
)

// A tracedRig is a rig with an exporter in memory.
type tracedRig struct {
	*rig
	spans *tracetest.InMemoryExporter
	tp    *sdktrace.TracerProvider
}

func newTracedRig(t *testing.T) *tracedRig {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	return &tracedRig{newRig(t), exporter, sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))}
}

func (r *tracedRig) config(slots int) worker.Config {
	cfg := r.rig.config(slots)
	cfg.TracerProvider, cfg.Propagator = r.tp, propagation.TraceContext{}
	return cfg
}

// headers are those of a job that this span created.
func (r *tracedRig) headers() (map[string]string, trace.SpanContext) {
	ctx, span := r.tp.Tracer("test").Start(r.Context(), "creator")
	defer span.End()
	return telemetry.Inject(ctx, propagation.TraceContext{}, nil, telemetry.ModeAuto, nil), span.SpanContext()
}

// named are the spans of this name, in the order of their beginnings.
func (r *tracedRig) named(name string) tracetest.SpanStubs {
	var found tracetest.SpanStubs
	for _, s := range r.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

// n waits for so many spans of an operation on the queue.
func (r *tracedRig) n(op string, n int) tracetest.SpanStubs {
	r.Helper()
	name := op + " " + r.name()
	r.until(name, func(store.Counts) bool { return len(r.named(name)) >= n })
	got := r.named(name)
	if len(got) != n {
		r.Fatalf("%d spans %q, want %d", len(got), name, n)
	}
	return got
}

func value(s tracetest.SpanStub, key attribute.Key) attribute.Value {
	set := attribute.NewSet(s.Attributes...)
	v, _ := set.Value(key)
	return v
}

func linksTo(s tracetest.SpanStub, sc trace.SpanContext) bool {
	return slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool {
		return l.SpanContext.TraceID() == sc.TraceID() && l.SpanContext.SpanID() == sc.SpanID()
	})
}

// One job is one trace: creator, process, handle and ack, each within the one before.
func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	headers, creator := r.headers()
	w := r.workerWith(r.config(1))
	inner := make(chan trace.SpanContext, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		inner <- trace.SpanContextFromContext(ctx)
		return nil
	}, worker.With(middleware.Trace(middleware.WithTracerProvider(r.tp)))) // once more, which does nothing
	id := r.addOne(signalbox.Job{Headers: headers})
	r.start(w)
	process, ack := r.n("process", 1)[0], r.n("ack", 1)[0]
	handle := r.named("handle task")
	if len(handle) != 1 || handle[0].SpanContext.SpanID() != get(t, inner, "the handler").SpanID() {
		t.Fatalf("handle: %v", handle)
	}
	if process.Parent.SpanID() != creator.SpanID() || process.SpanContext.TraceID() != creator.TraceID() || len(process.Links) != 0 {
		t.Errorf("process is under %v with links %v", process.Parent, process.Links)
	}
	for _, s := range []tracetest.SpanStub{handle[0], ack} {
		if s.Parent.SpanID() != process.SpanContext.SpanID() || s.StartTime.Before(process.StartTime) || s.EndTime.After(process.EndTime) {
			t.Errorf("%s is not within process", s.Name)
		}
	}
	if ack.StartTime.Before(handle[0].EndTime) {
		t.Error("ack began before the handler returned")
	}
	for _, s := range []tracetest.SpanStub{process, ack, handle[0]} {
		for key, want := range map[attribute.Key]string{
			"messaging.system": "signalbox", "messaging.destination.name": r.name(), "messaging.message.id": id,
			telemetry.JobKind: "task", telemetry.JobAttempt: "1", telemetry.JobMaxAttempts: "25",
		} {
			if got := value(s, key); got.String() != want {
				t.Errorf("%s: %s is %q, want %q", s.Name, key, got.String(), want)
			}
		}
		if value(s, "messaging.client.id").AsString() == "" || value(s, "server.address").AsString() == "" || s.Status.Code != codes.Unset {
			t.Errorf("%s: %v %v", s.Name, s.Attributes, s.Status)
		}
	}
	if value(process, telemetry.LockToken).AsInt64() == 0 || value(ack, telemetry.JobOutcome).AsString() != "completed" {
		t.Errorf("%v, %v", process.Attributes, ack.Attributes)
	}
	if process.SpanKind != trace.SpanKindConsumer || ack.SpanKind != trace.SpanKindClient || handle[0].SpanKind != trace.SpanKindInternal {
		t.Error("kinds")
	}
}

// What isn't a success: how each is settled, and that the attempt after it links to it.
func TestTraceOfAttempts(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	headers, creator := r.headers()
	w := r.workerWith(r.config(1))
	answers := []error{errors.New("no luck"), signalbox.Snooze(0), nil}
	const retryIn = 10 * time.Millisecond
	worker.Handle(w, func(_ context.Context, _ *signalbox.Job, _ task) error {
		err := answers[0]
		answers = answers[1:]
		return err
	}, worker.Retry(func(int, error) time.Duration { return retryIn }))
	r.addOne(signalbox.Job{Headers: headers})
	run := r.start(w)
	process := r.n("process", 3)
	for i, op := range []string{"retry", "snooze", "ack"} {
		settle := r.n(op, 1)[0]
		if settle.Parent.SpanID() != process[i].SpanContext.SpanID() {
			t.Errorf("%s is not under delivery %d", op, i+1)
		}
		next, err := time.Parse(time.RFC3339Nano, value(settle, telemetry.JobNextRun).AsString())
		if later := err == nil; later != (op == "retry") || later && next.Sub(process[i].StartTime) < retryIn {
			t.Errorf("%s: %v", op, settle.Attributes)
		}
		if process[i].Parent.SpanID() != creator.SpanID() {
			t.Errorf("delivery %d is no sibling", i+1)
		}
		if i > 0 && !linksTo(process[i], process[i-1].SpanContext) {
			t.Errorf("delivery %d links to %v", i+1, process[i].Links)
		}
		if failed := process[i].Status.Code == codes.Error; failed != (op == "retry") {
			t.Errorf("delivery %d: %v", i+1, process[i].Status)
		}
	}
	run.stop()

	w = r.workerWith(r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return errors.New("never") })
	r.addOne(signalbox.Job{MaxAttempts: 1})
	r.start(w)
	if dead := r.n("dead_letter", 1)[0]; value(dead, telemetry.JobOutcome).AsString() != "dead" {
		t.Errorf("%v", dead.Attributes)
	}
}

// The span of a delivery whose worker lost its lease is known to who takes the job over.
func TestTraceOfACrash(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	headers, _ := r.headers()
	w := r.workerWith(r.config(1))
	began, end := make(chan trace.SpanContext, 2), make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		began <- trace.SpanContextFromContext(ctx)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-end:
			return nil
		}
	})
	r.addOne(signalbox.Job{Headers: headers})
	r.start(w)
	lost := get(t, began, "the first delivery")
	r.until("the mark", func(store.Counts) bool { return r.rdb.HLen(t.Context(), r.key("spans")).Val() == 1 })
	// As if the worker had stood still for too long.
	for _, session := range r.rdb.ZRange(t.Context(), r.key("sessions"), 0, -1).Val() {
		r.rdb.ZAdd(t.Context(), r.key("sessions"), redis.Z{Score: 1, Member: session})
	}
	other := r.workerWith(r.config(1))
	worker.Handle(other, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		began <- trace.SpanContextFromContext(ctx)
		return nil
	})
	r.start(other)
	get(t, began, "the second delivery")
	reclaim := r.n("reclaim", 1)[0]
	close(end)
	r.completed(1)
	process := r.n("process", 2)
	first := process[0]
	if first.SpanContext.TraceID() != lost.TraceID() {
		t.Errorf("the first process span is %v", first.SpanContext)
	}
	if !linksTo(reclaim, first.SpanContext) || !linksTo(process[1], first.SpanContext) {
		t.Errorf("reclaim links to %v, the next delivery to %v", reclaim.Links, process[1].Links)
	}
	names := make([]string, len(first.Events))
	for i, e := range first.Events {
		names[i] = e.Name
	}
	if !slices.Contains(names, telemetry.EventRejected) { // it completed, too late
		t.Errorf("events %v", names)
	}
}

// An outage of the renewals is one event, whatever the number of tries, and no failure.
func TestTraceOfFailedRenewals(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	cfg := r.config(1)
	cfg.SessionTTL = 3 * time.Second // the outages are short against it, also on a busy machine
	w := r.workerOn(proxy.Client(), cfg)
	began := make(chan struct{})
	release, end := r.gate()
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		close(began)
		<-release
		return ctx.Err()
	})
	r.addOne(signalbox.Job{})
	r.start(w)
	get(t, began, "the job runs")
	const outages, tries = 2, 3
	for range outages {
		before := proxy.Count(r.isRenew())
		proxy.Reply(r.isRenew(), "-ERR not now", tries)
		// One may have come before the rule, one goes well, and by the next one the worker knows.
		redistest.Eventually(t, func() bool { return proxy.Count(r.isRenew()) >= before+1+tries+2 }, "it is renewed again")
	}
	end()
	process := r.n("process", 1)[0]
	var names []string
	for _, e := range process.Events {
		names = append(names, e.Name)
	}
	if !slices.Equal(names, slices.Repeat([]string{"lease.renew_failed"}, outages)) || process.Status.Code != codes.Unset {
		t.Errorf("events %q, status %v", names, process.Status)
	}
	r.completed(1)
}

// How deliveries are connected with what created the job.
func TestTraceModes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		worker  signalbox.TraceMode
		kind    signalbox.TraceMode
		job     string
		forTime time.Duration
		parent  bool
		link    bool
	}{
		"by default":   {parent: true},
		"none is old":  {forTime: -1, link: true},
		"worker links": {worker: signalbox.TraceLink, link: true},
		"worker none":  {worker: signalbox.TraceNone},
		"kind":         {worker: signalbox.TraceNone, kind: signalbox.TraceParent, parent: true},
		"job":          {worker: signalbox.TraceNone, kind: signalbox.TraceParent, job: "link", link: true},
		"unknown":      {job: "whatever", parent: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			headers, creator := r.headers()
			if c.job != "" {
				headers[telemetry.ModeHeader] = c.job
			}
			cfg := r.config(1)
			cfg.TraceMode, cfg.ParentFor = c.worker, c.forTime
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil }, worker.TraceMode(c.kind))
			r.addOne(signalbox.Job{Headers: headers})
			r.start(w)
			process := r.n("process", 1)[0]
			if parent := process.Parent.SpanID() == creator.SpanID(); parent != c.parent || linksTo(process, creator) != c.link {
				t.Errorf("parent %v, links %v", process.Parent, process.Links)
			}
			if process.Parent.IsValid() != c.parent {
				t.Errorf("parent %v", process.Parent)
			}
		})
	}
}

// A worker that isn't stopped gives no job back, whatever its handler says.
func TestTraceOfAnothersShutdown(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	reader := sdkmetric.NewManualReader()
	cfg := r.config(1)
	cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	w := r.workerWith(cfg)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error {
		return fmt.Errorf("inner pool: %w", signalbox.ErrShutdown)
	})
	r.addOne(signalbox.Job{MaxAttempts: 1})
	r.start(w)
	dead, process := r.n("dead_letter", 1)[0], r.n("process", 1)[0]
	if got := value(dead, telemetry.JobOutcome).AsString(); got != "dead" {
		t.Errorf("the job is %q", got)
	}
	for _, s := range append(r.named("handle task"), process) {
		if s.Status.Code != codes.Error || value(s, "error.type").AsString() == "" {
			t.Errorf("%s: %v %v", s.Name, s.Status, s.Attributes)
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "messaging.process.duration" {
			if len(h.DataPoints) != 1 || !h.DataPoints[0].Attributes.HasValue("error.type") {
				t.Errorf("measured as %v", h.DataPoints)
			}
		}
	}
}

// An attempt that failed for want of a lock says so.
func TestTraceOfAHeldLock(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	l, key := lock.New(r.rdb), redistest.Name(t)
	if _, err := l.TryAcquire(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	w := r.workerWith(r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil },
		worker.With(middleware.Lock(l, middleware.Key(key), middleware.WhenHeld(middleware.Fail))))
	r.addOne(signalbox.Job{MaxAttempts: 1})
	r.start(w)
	if got := value(r.n("process", 1)[0], "error.type").AsString(); got != telemetry.ErrorLockHeld {
		t.Errorf("its error.type is %q", got)
	}
}

// nilError panics when it is looked at, as a nil pointer in an error does.
type nilError struct{ err error }

func (e *nilError) Error() string { return e.err.Error() }
func (e *nilError) Unwrap() error { return e.err }

// An error that panics is a failed attempt, and not the end of the process, whoever looks at it.
func TestTraceOfABrokenError(t *testing.T) {
	t.Parallel()
	broken := func(signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error {
			var err *nilError
			return err
		})
	}
	for name, with := range map[string]func(r *tracedRig, cfg *worker.Config){
		"traced": func(r *tracedRig, cfg *worker.Config) { cfg.TracerProvider = r.tp },
		"measured": func(_ *tracedRig, cfg *worker.Config) {
			cfg.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			cfg := r.rig.config(1)
			with(r, &cfg)
			w := r.workerWith(cfg)
			worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil }, worker.With(broken))
			r.addOne(signalbox.Job{MaxAttempts: 1})
			r.start(w)
			r.until("it is dead", func(c store.Counts) bool { return c.Dead == 1 })
		})
	}
}

// Jobs that enqueue one after the other are in one trace as long as the first of them is young, and then
// in another: no trace grows without end.
func TestTraceOfAChain(t *testing.T) {
	t.Parallel()
	const within, traces = 300 * time.Millisecond, 3
	r := newTracedRig(t)
	cfg := r.config(1)
	cfg.ParentFor = within
	w := r.workerWith(cfg)
	type run struct {
		*signalbox.Job
		trace trace.TraceID
	}
	runs, over := make(chan run), make(chan struct{})
	worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
		select {
		case runs <- run{job, trace.SpanContextFromContext(ctx).TraceID()}:
			r.addOne(signalbox.Job{Headers: telemetry.Inject(ctx, propagation.TraceContext{}, nil, telemetry.ModeAuto, nil)})
		case <-over:
		}
		return nil
	})
	headers, _ := r.headers()
	r.addOne(signalbox.Job{Headers: headers})
	r.start(w)
	var (
		since time.Time // when the first job in the trace was enqueued, or if it is its root, claimed
		last  trace.TraceID
	)
	for seen := 0; seen < traces; {
		job := get(t, runs, "the next job runs")
		if job.trace != last {
			if seen++; seen == 1 {
				since = job.EnqueuedAt
			} else if job.ClaimedAt.Sub(since) <= within {
				t.Errorf("trace %d begins after %v", seen, job.ClaimedAt.Sub(since))
			} else {
				since = job.ClaimedAt
			}
			last = job.trace
		} else if age := job.ClaimedAt.Sub(since); age > within {
			t.Fatalf("a job is in a trace that is %v old", age)
		}
	}
	close(over)
}

// What Run's context has in its baggage is no job's.
func TestBaggageOfRun(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	cfg := r.config(1)
	cfg.Propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	w := r.workerWith(cfg)
	got := make(chan string, 2)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		got <- baggage.FromContext(ctx).String()
		return nil
	})
	m, err := baggage.NewMember("run", "main")
	if err != nil {
		t.Fatal(err)
	}
	b, err := baggage.New(m)
	if err != nil {
		t.Fatal(err)
	}
	headers, _ := r.headers()
	headers["baggage"] = "tenant=acme"
	r.addOne(signalbox.Job{ID: "with", Headers: headers})
	r.addOne(signalbox.Job{ID: "without"})
	r.startUnder(baggage.ContextWithBaggage(context.Background(), b), w)
	for _, want := range []string{"tenant=acme", ""} {
		if s := get(t, got, "a job runs"); s != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

// slowSpans are spans that take their time for events.
type slowSpans struct {
	trace.TracerProvider
	until <-chan struct{}
}

func (p slowSpans) Tracer(name string, opts ...trace.TracerOption) trace.Tracer {
	return slowTracer{p.TracerProvider.Tracer(name, opts...), p.until}
}

type slowTracer struct {
	trace.Tracer
	until <-chan struct{}
}

func (t slowTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	_, span := t.Tracer.Start(ctx, name, opts...)
	slow := slowSpan{span, t.until}
	return trace.ContextWithSpan(ctx, slow), slow
}

type slowSpan struct {
	trace.Span
	until <-chan struct{}
}

func (s slowSpan) AddEvent(name string, opts ...trace.EventOption) {
	<-s.until
	s.Span.AddEvent(name, opts...)
}

// A span is the user's code. However long it takes for an event, the lease is renewed.
func TestSlowEvents(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	free, end := r.gate()
	cfg := r.config(1)
	cfg.SessionTTL, cfg.TracerProvider = 2*time.Second, slowSpans{r.tp, free}
	w := r.workerOn(proxy.Client(), cfg)
	began, release := make(chan struct{}), make(chan struct{})
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		close(began)
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	r.addOne(signalbox.Job{})
	r.start(w)
	get(t, began, "the job runs")
	before := proxy.Count(r.isRenew())
	proxy.Reply(r.isRenew(), "-ERR not now", 1)
	redistest.Eventually(t, func() bool { return proxy.Count(r.isRenew()) >= before+5 }, "the lease is renewed on and on")
	close(release)
	end()
	if names := r.n("process", 1)[0].Events; len(names) != 1 || names[0].Name != telemetry.EventRenewFailed {
		t.Errorf("the events are %v", names)
	}
	r.completed(1)
}
