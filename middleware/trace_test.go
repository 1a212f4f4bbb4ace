package middleware

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/handlerctx"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// traced runs a handler as a worker does and returns the spans by the first word of their names.
func traced(t *testing.T, ctx context.Context, job *signalbox.Job, h signalbox.HandlerFunc) map[string]tracetest.SpanStub {
	t.Helper()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	d := &telemetry.Delivery{}
	inner := func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			ctx, end := d.Handle(ctx)
			err := errPanicked
			defer func() { end(err) }()
			err = next.Handle(ctx, job)
			return err
		})
	}
	mw := signalbox.Chain(Trace(WithTracerProvider(tp), WithPropagator(propagation.TraceContext{})), Recover(), inner)
	ctx, end := delivered(context.WithValue(ctx, telemetry.DeliveryKey{}, d))
	_ = run(ctx, job, mw, h)
	settle(t, end, signalbox.Settled{Outcome: signalbox.OutcomeCompleted, Asked: signalbox.OutcomeCompleted, Returned: time.Now()})
	spans := make(map[string]tracetest.SpanStub)
	for _, s := range exporter.GetSpans() {
		word, _, _ := strings.Cut(s.Name, " ")
		spans[word] = s
	}
	if len(spans) != 3 || len(exporter.GetSpans()) != 3 {
		t.Fatalf("spans: %v", spans)
	}
	if err := tp.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return spans
}

// delivered returns the context of a delivery, as a worker makes it, and its end.
func delivered(ctx context.Context) (context.Context, *handlerctx.End) {
	end := new(handlerctx.End)
	return context.WithValue(ctx, handlerctx.EndKey{}, end), end
}

// settle ends a delivery as a worker does.
func settle(t *testing.T, end *handlerctx.End, s signalbox.Settled) {
	t.Helper()
	first := end.Seal()
	if first == nil {
		t.Fatal("nobody waits for the end of the delivery")
	}
	for w := first; w != nil; w = w.Next {
		w.F.(func(signalbox.Settled))(s)
	}
}

// Without a worker, the span doesn't show when the handler begins and what comes after it.
func TestTraceByItself(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	_ = run(t.Context(), &signalbox.Job{Queue: "q", Kind: "k"}, Trace(WithTracerProvider(tp)), func(context.Context, *signalbox.Job) error { return errMine })
	if spans := exporter.GetSpans(); len(spans) != 1 || spans[0].Name != "process q" || spans[0].Status.Code != codes.Error {
		t.Errorf("%+v", spans)
	}
}

func TestTraceJoinsTheCreatorsTrace(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	ctx, enqueue := telemetry.NewMessaging(tp, telemetry.Who{}).StartEnqueue(t.Context(), telemetry.Job{Queue: "mail", ID: "1", Kind: "welcome", MaxAttempts: 25})
	mine := map[string]string{"mine": "1"}
	headers := telemetry.Inject(ctx, propagation.TraceContext{}, mine, "auto", nil)
	enqueue.End()
	if len(mine) != 1 || len(headers) != 2 || headers["mine"] != "1" {
		t.Fatalf("headers %v, the caller's %v", headers, mine)
	}
	_ = tp.Shutdown(t.Context())

	due := time.UnixMilli(1_000_000)
	job := &signalbox.Job{
		ID: "1", Kind: "welcome", Queue: "mail", Attempt: 2, MaxAttempts: 25, Headers: headers,
		EnqueuedAt: due, ScheduledAt: due, ClaimedAt: due.Add(1500 * time.Millisecond), Payload: []byte("secret"),
	}
	delivered, v := delivery(t, time.Hour)
	// The span in the worker's own context is not the creator.
	delivered = trace.ContextWithSpanContext(delivered, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{9}, SpanID: trace.SpanID{9}, TraceFlags: trace.FlagsSampled,
	}))
	var inside trace.SpanContext
	spans := traced(t, delivered, job, func(ctx context.Context, _ *signalbox.Job) error {
		inside = trace.SpanContextFromContext(ctx)
		v.End(lock.ErrLost)
		if ctx.Err() == nil {
			t.Error("the context lost touch with its parent")
		}
		return nil
	})
	handle, process := spans["handle"], spans["process"]
	if process.Name != "process mail" || process.SpanKind != trace.SpanKindConsumer || process.Parent.SpanID() != enqueue.SpanContext().SpanID() ||
		process.SpanContext.TraceID() != enqueue.SpanContext().TraceID() {
		t.Errorf("process: %+v", process)
	}
	if handle.Name != "handle welcome" || handle.SpanKind != trace.SpanKindInternal || handle.Parent.SpanID() != process.SpanContext.SpanID() ||
		inside.SpanID() != handle.SpanContext.SpanID() {
		t.Errorf("handle: %+v", handle)
	}
	about := attribute.NewSet(process.Attributes...)
	if wait, _ := about.Value("signalbox.job.wait_ms"); wait.AsInt64() != 1500 {
		t.Errorf("wait: %v", wait.AsInt64())
	}
	for _, span := range []tracetest.SpanStub{handle, process} {
		set := attribute.NewSet(span.Attributes...)
		for key, want := range map[string]string{
			"messaging.system": "signalbox", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "mail", "messaging.message.id": "1", "signalbox.job.kind": "welcome",
			"signalbox.job.attempt": "2", "signalbox.job.max_attempts": "25",
		} {
			if got, _ := set.Value(attribute.Key(key)); got.String() != want {
				t.Errorf("%s: %s is %q, want %q", span.Name, key, got.String(), want)
			}
		}
		if span.Status.Code != codes.Unset || len(span.Events) != 0 {
			t.Errorf("%s: status %v, events %v", span.Name, span.Status, span.Events)
		}
	}
}

func TestTraceStartsItsOwnTrace(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]map[string]string{
		"no headers": nil,
		"no trace":   {"mine": "1"},
		"malformed":  {"traceparent": "00-zz-zz-01", "tracestate": strings.Repeat("\x00,=", 1000)},
		"empty":      {"traceparent": "", "tracestate": ""},
		"all zero":   {"traceparent": "00-00000000000000000000000000000000-0000000000000000-01"},
	} {
		ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{9}, SpanID: trace.SpanID{9}, TraceFlags: trace.FlagsSampled,
		}))
		spans := traced(t, ctx, &signalbox.Job{Headers: headers}, func(context.Context, *signalbox.Job) error { return nil })
		if process := spans["process"]; process.Parent.IsValid() || len(process.Links) != 0 || process.SpanContext.TraceID() == (trace.TraceID{9}) {
			t.Errorf("%s: %+v", name, spans)
		}
	}
}

func TestTraceOutcomes(t *testing.T) {
	t.Parallel()
	stops, v := delivery(t, time.Hour)
	v.End(signalbox.ErrShutdown)
	cancels, v := delivery(t, time.Hour)
	v.End(signalbox.ErrCancelled)
	for _, c := range []struct {
		name      string
		ctx       context.Context
		h         signalbox.HandlerFunc
		errorType string // "" is no error
	}{
		{"success", t.Context(), func(context.Context, *signalbox.Job) error { return nil }, ""},
		{"snooze", t.Context(), func(context.Context, *signalbox.Job) error { return signalbox.Snooze(time.Second) }, ""},
		{"cancel", t.Context(), func(context.Context, *signalbox.Job) error { return signalbox.Cancel(errMine) }, ""},
		{"shutdown", stops, func(context.Context, *signalbox.Job) error { return signalbox.ErrShutdown }, ""},
		{"shutdown, by another word", stops, func(ctx context.Context, _ *signalbox.Job) error { return ctx.Err() }, ""},
		{"cancelled while it ran", cancels, func(ctx context.Context, _ *signalbox.Job) error { return ctx.Err() }, ""},
		{"the shutdown of something else", t.Context(), func(context.Context, *signalbox.Job) error {
			return fmt.Errorf("pool: %w: %w", signalbox.ErrShutdown, &time.ParseError{})
		}, "*time.ParseError"},
		{"timeout", t.Context(), func(context.Context, *signalbox.Job) error { return signalbox.ErrTimeout }, "timeout"},
		{"lost", t.Context(), func(context.Context, *signalbox.Job) error { return lock.ErrLost }, "signalbox.lease_lost"},
		{"held", t.Context(), func(context.Context, *signalbox.Job) error {
			return fmt.Errorf("%w: %w", lock.ErrHeld, context.DeadlineExceeded)
		}, "signalbox.lock_held"},
		{"panic", t.Context(), thePanickingHandler, "panic"},
		{"failure", t.Context(), func(context.Context, *signalbox.Job) error { return &time.ParseError{} }, "*time.ParseError"},
	} {
		spans := traced(t, c.ctx, &signalbox.Job{Queue: "q", Kind: "k"}, c.h)
		for _, span := range []tracetest.SpanStub{spans["handle"], spans["process"]} {
			set := attribute.NewSet(span.Attributes...)
			got, _ := set.Value("error.type")
			failed := c.errorType != ""
			if failed && got.AsString() != c.errorType || !failed && set.HasValue("error.type") {
				t.Errorf("%s: %s: error.type %q, want %q", c.name, span.Name, got.AsString(), c.errorType)
			}
			if (span.Status.Code == codes.Error) != failed || (len(span.Events) == 1) != failed {
				t.Errorf("%s: %s: status %v, events %v", c.name, span.Name, span.Status, span.Events)
			}
		}
	}
}

// A middleware between the worker and the handler may end its own context with the worker's cause. That
// gives no job back.
func TestTraceOfAShutdownOfTheMiddlewares(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	d := &telemetry.Delivery{}
	stops := func(next signalbox.Handler) signalbox.Handler {
		return signalbox.HandlerFunc(func(ctx context.Context, job *signalbox.Job) error {
			ctx, stop := context.WithCancelCause(ctx)
			stop(signalbox.ErrShutdown)
			ctx, end := d.Handle(ctx)
			err := next.Handle(ctx, job)
			end(err)
			return err
		})
	}
	mw := signalbox.Chain(Trace(WithTracerProvider(tp)), stops)
	ctx, end := delivered(context.WithValue(t.Context(), telemetry.DeliveryKey{}, d))
	_ = run(ctx, &signalbox.Job{}, mw, func(ctx context.Context, _ *signalbox.Job) error { return context.Cause(ctx) })
	settle(t, end, signalbox.Settled{Outcome: signalbox.OutcomeRetried, Asked: signalbox.OutcomeRetried, Returned: time.Now()})
	for _, s := range exporter.GetSpans() {
		if s.Name != "retry " && s.Status.Code != codes.Error {
			t.Errorf("%q: status %v", s.Name, s.Status)
		}
	}
}

// created returns the headers of a job, and the context of the span that created it.
func created() (map[string]string, trace.SpanContext) {
	creator := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{7}, SpanID: trace.SpanID{7}, TraceFlags: trace.FlagsSampled})
	ctx := trace.ContextWithSpanContext(context.Background(), creator)
	return telemetry.Inject(ctx, propagation.TraceContext{}, nil, "auto", nil), creator
}

// With WithParentFor(0) no age is small enough, not even a negative one after a step of the clock.
func TestTraceParentForNothing(t *testing.T) {
	t.Parallel()
	headers, _ := created()
	for _, c := range []struct {
		parentFor, age time.Duration
		parent         bool
	}{
		{0, 0, false},
		{-time.Second, -time.Minute, false},
		{time.Second, time.Second, true},
		{time.Second, -time.Minute, true},
		{time.Second, time.Second + 1, false},
	} {
		exporter := tracetest.NewInMemoryExporter()
		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
		now := time.Now()
		job := &signalbox.Job{Headers: headers, EnqueuedAt: now, ClaimedAt: now.Add(c.age)}
		mw := Trace(WithTracerProvider(tp), WithPropagator(propagation.TraceContext{}), WithParentFor(c.parentFor))
		_ = run(t.Context(), job, mw, func(context.Context, *signalbox.Job) error { return nil })
		if s := exporter.GetSpans()[0]; s.Parent.IsValid() != c.parent || (len(s.Links) == 1) == c.parent {
			t.Errorf("WithParentFor(%v), %v old: parent %v, links %v", c.parentFor, c.age, s.Parent, s.Links)
		}
	}
}

// Without a provider, handlers are in their creator's trace exactly if a span would be.
func TestTraceModesWithoutAProvider(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode, own signalbox.TraceMode
		age       time.Duration
		parent    bool
	}{
		"young":         {signalbox.TraceAuto, signalbox.TraceAuto, 0, true},
		"old":           {signalbox.TraceAuto, signalbox.TraceAuto, time.Hour, false},
		"old child":     {signalbox.TraceParent, signalbox.TraceAuto, time.Hour, true},
		"linked":        {signalbox.TraceLink, signalbox.TraceAuto, 0, false},
		"neither":       {signalbox.TraceNone, signalbox.TraceAuto, 0, false},
		"its own child": {signalbox.TraceNone, signalbox.TraceParent, 0, true},
		"its own link":  {signalbox.TraceParent, signalbox.TraceLink, 0, false},
	} {
		headers, creator := created()
		if c.own != signalbox.TraceAuto {
			headers[telemetry.ModeHeader] = c.own.String()
		}
		bag, err := baggage.Parse("tenant=blue")
		if err != nil {
			t.Fatal(err)
		}
		headers["baggage"] = bag.String()
		now := time.Now()
		job := &signalbox.Job{Headers: headers, EnqueuedAt: now, ClaimedAt: now.Add(c.age)}
		both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
		mw := Trace(WithTracerProvider(noop.NewTracerProvider()), WithPropagator(both), WithTraceMode(c.mode))
		_ = run(t.Context(), job, mw, func(ctx context.Context, _ *signalbox.Job) error {
			if got := trace.SpanContextFromContext(ctx); got.IsValid() != c.parent || c.parent && got.TraceID() != creator.TraceID() {
				t.Errorf("%s: the handler is in the trace %v", name, got.TraceID())
			}
			if got := baggage.FromContext(ctx); got.String() != bag.String() {
				t.Errorf("%s: the baggage is %v", name, got)
			}
			since := ""
			if c.parent {
				since = strconv.FormatInt(now.UnixMicro(), 10)
			}
			if got := telemetry.Inject(ctx, both, nil, "auto", nil)[telemetry.SinceHeader]; got != since {
				t.Errorf("%s: a job of the handler's is told %q, want %q", name, got, since)
			}
			return nil
		})
	}
}

// Without a provider, a job without headers costs nothing. One with a creator costs only the reading of the
// headers.
func TestTraceSilentCosts(t *testing.T) {
	headers, _ := created()
	ctx := t.Context()
	h := Trace(WithTracerProvider(noop.NewTracerProvider()), WithPropagator(propagation.TraceContext{}))(
		signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }))
	bare := &signalbox.Job{}
	if n := testing.AllocsPerRun(100, func() { _ = h.Handle(ctx, bare) }); n != 0 {
		t.Errorf("%v allocations without headers", n)
	}
	job := &signalbox.Job{Headers: headers}
	reading := testing.AllocsPerRun(100, func() { telemetry.Extract(ctx, propagation.TraceContext{}, headers) })
	const since = 2 // what the handler's own jobs get
	if n := testing.AllocsPerRun(100, func() { _ = h.Handle(ctx, job) }); n > reading+since {
		t.Errorf("%v allocations with headers, of which reading them takes %v", n, reading)
	}
}

// The value of a panic is in no span, even if the lease was lost before it.
func TestTraceKeepsPanicsToItself(t *testing.T) {
	t.Parallel()
	for _, value := range []any{"secret", fmt.Errorf("secret: %w", lock.ErrLost)} {
		for name, span := range traced(t, t.Context(), &signalbox.Job{Queue: "q", Kind: "k"}, func(context.Context, *signalbox.Job) error { panic(value) }) {
			if name != "ack" && span.Status.Code != codes.Error || strings.Contains(fmt.Sprint(span.Status, span.Events, span.Attributes), "secret") {
				t.Errorf("%s: %v %v", name, span.Status, span.Events)
			}
		}
	}
}

// The handler's decision stands, even if its lease ended meanwhile: Redis may accept it.
func TestTraceOfADecisionUnderALostLease(t *testing.T) {
	t.Parallel()
	for name, decision := range map[string]error{"snooze": signalbox.Snooze(time.Second), "cancel": signalbox.Cancel(errMine)} {
		ctx, v := delivery(t, time.Hour)
		spans := traced(t, ctx, &signalbox.Job{Queue: "q", Kind: "k"}, func(context.Context, *signalbox.Job) error {
			v.End(lock.ErrLost)
			return decision
		})
		for _, span := range []tracetest.SpanStub{spans["handle"], spans["process"]} {
			if span.Status.Code != codes.Unset {
				t.Errorf("%s: %s: status %v", name, span.Name, span.Status)
			}
		}
	}
}
