package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store"
)

const modeHeader = "signalbox-trace-mode"

var everything = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

func traced(t *testing.T) (Config, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() {
		if err := tp.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return Config{Logger: slog.New(slog.DiscardHandler), TracerProvider: tp, Propagator: everything}, spans
}

// tracedSetup is setup with a scheduler that traces, and the span of a caller in a context.
func tracedSetup(t *testing.T, change func(*Config)) (context.Context, *Scheduler, *store.Queue, *tracetest.SpanRecorder) {
	t.Helper()
	config, spans := traced(t)
	if change != nil {
		change(&config)
	}
	rdb := redistest.Start(t).Client()
	s, err := New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if config.TracerProvider != nil {
		ctx, _ = config.TracerProvider.Tracer("caller").Start(ctx, "GET /")
	}
	return ctx, s, checked(t, rdb), spans
}

// attributes of a span, as text.
func attributes(span sdktrace.ReadOnlySpan) map[string]string {
	m := make(map[string]string)
	for _, kv := range span.Attributes() {
		m[string(kv.Key)] = kv.Value.String()
	}
	return m
}

func spansOf(spans *tracetest.SpanRecorder, name string) []sdktrace.ReadOnlySpan {
	return slices.DeleteFunc(spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name })
}

// expected is what is on every messaging span of a test.
func expected(s *Scheduler, queue, operation, opType string, more map[string]string) map[string]string {
	host, port := store.Address(s.rdb)
	m := map[string]string{
		"messaging.system": "signalbox", "messaging.operation.name": operation, "messaging.operation.type": opType,
		"messaging.destination.name": queue, "server.address": host, "server.port": fmt.Sprint(port),
	}
	if port == 0 {
		delete(m, "server.port")
	}
	maps.Copy(m, more)
	return m
}

func expectedJob(s *Scheduler, queue, operation, opType, id string) map[string]string {
	return expected(s, queue, operation, opType, map[string]string{
		"messaging.message.id": id, "signalbox.job.kind": "note", "signalbox.job.max_attempts": "25",
	})
}

func traceparent(sc trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%s", sc.TraceID(), sc.SpanID(), sc.TraceFlags())
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func sameMap(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestEnqueueSpan(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, nil)
	r, err := s.Enqueue(ctx, note{}, Queue(q.Name()), Header("k", "v"))
	if err != nil {
		t.Fatal(err)
	}
	ended := spans.Ended()
	if len(ended) != 1 {
		t.Fatalf("%d spans", len(ended))
	}
	span := ended[0]
	same(t, "the name", span.Name(), "enqueue "+q.Name())
	same(t, "the kind", span.SpanKind(), trace.SpanKindProducer)
	same(t, "the parent", span.Parent().SpanID(), trace.SpanContextFromContext(ctx).SpanID())
	same(t, "the status", span.Status().Code, codes.Unset)
	same(t, "links", len(span.Links()), 0)
	sameMap(t, "attributes", attributes(span), expectedJob(s, q.Name(), "enqueue", "send", r.ID))
	sameMap(t, "headers", claimAll(t, q)[0].Headers, map[string]string{"k": "v", "traceparent": traceparent(span.SpanContext())})

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Enqueue(cancelled, note{}, Queue(q.Name())); err == nil {
		t.Fatal("no error")
	}
	failed := spans.Ended()[1]
	if failed.Status().Code != codes.Error || failed.Status().Description == "" || len(failed.Events()) != 1 {
		t.Errorf("the failure is not in its span: %+v, %v", failed.Status(), failed.Events())
	}
	same(t, "error.type", attributes(failed)["error.type"], "cancelled")
}

func TestBulkSpans(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		items []Item
		links int
	}{
		"one":           {many(1), 1},
		"three":         {many(3), 3},
		"1,000":         {many(1000), maxLinks},
		"chunks":        {many(2500), maxLinks},
		"little chunks": {largeNotes(300), maxLinks}, // the first ones have fewer jobs than there are links
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, q, spans := tracedSetup(t, nil)
			results, err := s.EnqueueMany(ctx, tc.items, Queue(q.Name()))
			if err != nil {
				t.Fatal(err)
			}
			caller := trace.SpanContextFromContext(ctx)
			created := make(map[string]sdktrace.ReadOnlySpan)
			var first []trace.SpanID
			for i, span := range spansOf(spans, "create "+q.Name()) {
				id := results[i].ID
				created[id] = span
				if i < tc.links {
					first = append(first, span.SpanContext().SpanID())
				}
				same(t, "the kind", span.SpanKind(), trace.SpanKindProducer)
				same(t, "the parent", span.Parent().SpanID(), caller.SpanID())
				same(t, "links", len(span.Links()), 0)
				want := expectedJob(s, q.Name(), "create", "create", id)
				want["signalbox.job.kind"] = tc.items[i].Args.Kind()
				sameMap(t, "attributes", attributes(span), want)
			}
			same(t, "create spans", len(created), len(tc.items))

			sends := spansOf(spans, "enqueue "+q.Name())
			if len(sends) != 1 || len(spans.Ended()) != len(tc.items)+1 {
				t.Fatalf("%d spans, %d of sending", len(spans.Ended()), len(sends))
			}
			send := sends[0]
			same(t, "the kind", send.SpanKind(), trace.SpanKindClient)
			same(t, "the parent", send.Parent().SpanID(), caller.SpanID())
			same(t, "the status", send.Status().Code, codes.Unset)
			sameMap(t, "attributes", attributes(send),
				expected(s, q.Name(), "enqueue", "send", map[string]string{"messaging.batch.message_count": fmt.Sprint(len(tc.items))}))
			var links []trace.SpanID
			for _, l := range send.Links() {
				links = append(links, l.SpanContext.SpanID())
			}
			if !slices.Equal(links, first) || send.DroppedLinks() != 0 {
				t.Errorf("%d links and %d dropped, want %d, to the first jobs", len(links), send.DroppedLinks(), tc.links)
			}

			jobs := claimAll(t, q)
			same(t, "jobs", len(jobs), len(tc.items))
			for _, j := range jobs {
				sameMap(t, "headers", j.Headers, map[string]string{"traceparent": traceparent(created[j.ID].SpanContext()), modeHeader: "link"})
			}
		})
	}
}

type largeNote struct{ Data string }

func (largeNote) Kind() string { return "large" }

func largeNotes(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].Args = largeNote{strings.Repeat("x", 20<<10)}
	}
	return items
}

func TestBulkOfTwoQueues(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, nil)
	other := checked(t, redistest.Start(t).Client())
	items := many(30)
	for i := range items {
		if i%3 == 0 {
			items[i].Options = []Option{Queue(other.Name()), Header("k", "v")}
		}
	}
	if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	for queue, n := range map[*store.Queue]int{q: 20, other: 10} {
		sends, creates := spansOf(spans, "enqueue "+queue.Name()), spansOf(spans, "create "+queue.Name())
		if len(sends) != 1 || len(creates) != n {
			t.Fatalf("%d sends, %d creates, want 1 and %d", len(sends), len(creates), n)
		}
		same(t, "the count", attributes(sends[0])["messaging.batch.message_count"], fmt.Sprint(n))
		same(t, "the links", len(sends[0].Links()), n)
		for _, j := range claimAll(t, queue) {
			if j.Headers[modeHeader] != "link" || (queue == other) != (j.Headers["k"] == "v") {
				t.Errorf("headers %v", j.Headers)
			}
		}
	}
}

func TestBulkFailures(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, nil)
	items := append(many(2), Item{Args: unencodableArgs{strings.Repeat("x", 1<<20)}}, Item{Args: nil})
	if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); !errors.Is(err, signalbox.ErrInvalid) {
		t.Fatal(err)
	}
	creates, sends := spansOf(spans, "create "+q.Name()), spansOf(spans, "enqueue "+q.Name())
	if len(creates) != 3 || len(sends) != 1 {
		t.Fatalf("%d creates, %d sends", len(creates), len(sends))
	}
	same(t, "the status of the large one", creates[2].Status().Code, codes.Error)
	same(t, "its error.type", attributes(creates[2])["error.type"], "invalid")
	same(t, "the status of the sending", sends[0].Status().Code, codes.Unset)
	same(t, "its count", attributes(sends[0])["messaging.batch.message_count"], "2")
	same(t, "its links", len(sends[0].Links()), 2)

	spans.Reset()
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.EnqueueMany(cancelled, many(3), Queue(q.Name())); err == nil {
		t.Fatal("no error")
	}
	send := spansOf(spans, "enqueue "+q.Name())[0]
	same(t, "the status", send.Status().Code, codes.Error)
	same(t, "error.type", attributes(send)["error.type"], "cancelled")
	same(t, "the count", attributes(send)["messaging.batch.message_count"], "0")

	spans.Reset()
	if _, err := s.EnqueueMany(ctx, nil); err != nil || len(spans.Ended()) != 0 {
		t.Errorf("an empty bulk: %v, %d spans", err, len(spans.Ended()))
	}
}

func TestModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[signalbox.TraceMode]struct{ single, bulk string }{
		signalbox.TraceAuto:   {"", "link"},
		signalbox.TraceParent: {"parent", "link"},
		signalbox.TraceLink:   {"link", "link"},
		signalbox.TraceNone:   {"none", "none"},
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			ctx, s, q, _ := tracedSetup(t, nil)
			opts := []Option{Queue(q.Name()), TraceMode(mode)}
			_, err1 := s.Enqueue(ctx, note{}, opts...)
			_, err2 := s.EnqueueMany(ctx, many(1), opts...)
			_, err3 := s.EnqueueMany(ctx, []Item{{Args: note{}, Options: []Option{TraceMode(mode)}}}, Queue(q.Name()), TraceMode(signalbox.TraceNone))
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			for i, j := range claimAll(t, q) {
				expect := want.bulk
				if i == 0 {
					expect = want.single
				}
				got, there := j.Headers[modeHeader]
				if got != expect || there != (expect != "") || j.Headers["traceparent"] == "" {
					t.Errorf("job %d: headers %v, want mode %q", i, j.Headers, expect)
				}
			}
		})
	}
}

// A mode says something of a trace context; without one it is not there.
func TestNoModeWithoutATrace(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"no provider":   func(c *Config) { c.TracerProvider = nil },
		"no-op":         func(c *Config) { c.TracerProvider = noop.NewTracerProvider() },
		"no propagator": func(c *Config) { c.Propagator = nil },
		"baggage alone": func(c *Config) { c.Propagator = propagation.Baggage{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, q, spans := tracedSetup(t, change)
			opts := []Option{Queue(q.Name()), TraceMode(signalbox.TraceLink)}
			if _, err := s.Enqueue(ctx, note{}, opts...); err != nil {
				t.Fatal(err)
			}
			if _, err := s.EnqueueMany(ctx, many(3), opts...); err != nil {
				t.Fatal(err)
			}
			for _, j := range claimAll(t, q) {
				if len(j.Headers) != 0 {
					t.Errorf("headers %v", j.Headers)
				}
			}
			if name == "no provider" || name == "no-op" {
				same(t, "spans", len(spans.Started()), 0)
			}
		})
	}
}

// Who doesn't trace himself hands on the trace of the caller.
func TestCallersTrace(t *testing.T) {
	t.Parallel()
	caller, _ := traced(t)
	ctx, span := caller.TracerProvider.Tracer("caller").Start(context.Background(), "GET /")
	defer span.End()
	_, s, q, _ := tracedSetup(t, func(c *Config) { c.TracerProvider = nil })
	items := many(3)
	items[1].Options = []Option{Header("k", "v")}
	items[2].Options = []Option{TraceMode(signalbox.TraceNone)}
	if _, err := s.Enqueue(ctx, note{}, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EnqueueMany(ctx, items, Queue(q.Name())); err != nil {
		t.Fatal(err)
	}
	parent := traceparent(span.SpanContext())
	jobs := claimAll(t, q)
	same(t, "jobs", len(jobs), 4)
	for i, want := range []map[string]string{
		{"traceparent": parent},
		{"traceparent": parent, modeHeader: "link"},
		{"traceparent": parent, modeHeader: "link", "k": "v"},
		{"traceparent": parent, modeHeader: "none"},
	} {
		sameMap(t, fmt.Sprintf("job %d", i), jobs[i].Headers, want)
	}
}

func withBaggage(t *testing.T, ctx context.Context, members map[string]string) context.Context {
	t.Helper()
	var b baggage.Baggage
	for name, value := range members {
		m, err := baggage.NewMemberRaw(name, value)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = b.SetMember(m); err != nil {
			t.Fatal(err)
		}
	}
	return baggage.ContextWithBaggage(ctx, b)
}

func TestBaggage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		allowed []string
		want    string
	}{
		"none":      {nil, ""},
		"one":       {[]string{"tenant"}, "tenant=acme"},
		"one large": {[]string{"large", "tenant"}, "tenant=acme"},
		"not there": {[]string{"nobody"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, s, q, _ := tracedSetup(t, func(c *Config) { c.Baggage = tc.allowed })
			ctx = withBaggage(t, ctx, map[string]string{"tenant": "acme", "user": "ann", "large": strings.Repeat("x", 64<<10)})
			if _, err := s.Enqueue(ctx, note{}, Queue(q.Name())); err != nil {
				t.Fatal(err)
			}
			if _, err := s.EnqueueMany(ctx, many(2), Queue(q.Name())); err != nil {
				t.Fatal(err)
			}
			for _, j := range claimAll(t, q) {
				if got, there := j.Headers["baggage"]; got != tc.want || there != (tc.want != "") || j.Headers["traceparent"] == "" {
					t.Errorf("baggage %q, want %q", got, tc.want)
				}
			}
		})
	}
}

func TestWrongBaggage(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	for _, name := range []string{"", "a b", "a=b", "\xff"} {
		if _, err := New(rdb, Config{Baggage: []string{"tenant", name}}); !errors.Is(err, signalbox.ErrInvalid) || !strings.Contains(err.Error(), "Baggage") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// upper is a propagator of the user's own.
type upper struct{ propagation.TraceContext }

func (upper) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	c.Set("x-span", trace.SpanContextFromContext(ctx).SpanID().String())
	c.Set("x-baggage", strings.ToUpper(baggage.FromContext(ctx).String()))
}

func TestOwnPropagator(t *testing.T) {
	t.Parallel()
	ctx, s, q, spans := tracedSetup(t, func(c *Config) { c.Propagator, c.Baggage = upper{}, []string{"tenant"} })
	ctx = withBaggage(t, ctx, map[string]string{"tenant": "acme", "user": "ann"})
	if _, err := s.Enqueue(ctx, note{}, Queue(q.Name()), TraceMode(signalbox.TraceParent)); err != nil {
		t.Fatal(err)
	}
	sameMap(t, "headers", claimAll(t, q)[0].Headers, map[string]string{
		"x-span": spans.Ended()[0].SpanContext().SpanID().String(), "x-baggage": "TENANT=ACME", modeHeader: "parent",
	})
}

func TestTickSpans(t *testing.T) {
	t.Parallel()
	config, spans := traced(t)
	srv := redistest.Start(t)
	q := checked(t, srv.Client())
	var stops []func()
	var s *Scheduler
	for range 2 {
		var err error
		if s, err = New(srv.Client(), config); err != nil {
			t.Fatal(err)
		}
		if err := s.Cron("e", "@every 1s", note{}, Queue(q.Name()), TraceMode(signalbox.TraceLink)); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, run(t, s))
	}
	redistest.Eventually(t, func() bool { return len(spans.Ended()) >= 4 }, "two ticks are traced")
	for _, stop := range stops {
		stop()
	}
	jobs := make(map[string]*signalbox.Job)
	for _, j := range claimAll(t, q) {
		same(t, "the mode", j.Headers[modeHeader], "link")
		jobs[j.Headers["traceparent"]] = j
	}
	ended := spans.Ended()
	if len(ended) != 2*len(jobs) {
		t.Errorf("%d spans for %d ticks", len(ended), len(jobs))
	}
	for i := 0; i+1 < len(ended); i += 2 {
		enqueue, tick := ended[i], ended[i+1]
		same(t, "the tick's name", tick.Name(), "tick e")
		same(t, "its kind", tick.SpanKind(), trace.SpanKindInternal)
		same(t, "its parent", tick.Parent().IsValid(), false)
		same(t, "the parent of the enqueueing", enqueue.Parent().SpanID(), tick.SpanContext().SpanID())
		same(t, "its kind", enqueue.SpanKind(), trace.SpanKindProducer)
		job := jobs[traceparent(enqueue.SpanContext())]
		if job == nil {
			t.Fatalf("no job is of the span %v", enqueue.SpanContext())
		}
		sameMap(t, "attributes of the enqueueing", attributes(enqueue), expectedJob(s, q.Name(), "enqueue", "send", job.ID))
		got := attributes(tick)
		if got["signalbox.schedule.late_ms"] == "" {
			t.Error("no lateness")
		}
		delete(got, "signalbox.schedule.late_ms")
		sameMap(t, "attributes of the tick", got, map[string]string{
			"messaging.system": "signalbox", "signalbox.schedule.missed": "0",
			"signalbox.schedule.tick": job.ScheduledAt.UTC().Format("2006-01-02T15:04:05Z"),
		})
	}
}

// TestMissedTicks: the first tick after an outage tells how many were skipped, and so does the
// metric, in one process only.
func TestMissedTicks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		config, spans := traced(t)
		reader := measured(t, &config)
		f := newFakeServer()
		var processes []*process
		for range 2 {
			p := startFakeWith(t, ctx, map[string]*fakeServer{"q": f}, time.Now, config)
			p.cron(t, "e", "@every 1s", "q")
			processes = append(processes, p)
		}
		time.Sleep(10*time.Second + time.Second/2)
		f.set(func() { f.err = errors.New("connection refused") })
		time.Sleep(time.Minute)
		f.set(func() { f.err = nil })
		time.Sleep(10*time.Second - time.Second/2)
		synctest.Wait() // the log is written
		ticks := f.ticks()
		gap := int64(0)
		for i := 1; i < len(ticks); i++ {
			gap += int64(ticks[i].Sub(ticks[i-1])/time.Second) - 1
		}
		told, traced := int64(0), spansOf(spans, "tick e")
		for _, span := range traced {
			for _, kv := range span.Attributes() {
				if kv.Key == "signalbox.schedule.missed" && kv.Value.AsInt64() != 0 {
					told += kv.Value.AsInt64()
					same(t, "the missed in one span", kv.Value.AsInt64(), gap)
				}
			}
		}
		if gap < 50 || told != gap || len(traced) != len(ticks) {
			t.Errorf("%d ticks, %d spans; %d missed, %d told of", len(ticks), len(traced), gap, told)
		}
		got := reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome")
		if got["fired"] != int64(len(ticks)) || got["missed"] != gap || got["skipped"] == 0 {
			t.Errorf("counted %v", got)
		}
		for _, p := range processes {
			for line := range strings.Lines(p.log.String()) {
				ofTick := strings.Contains(line, "tick enqueued") || strings.Contains(line, "tick failed")
				if ofTick != strings.Contains(line, " trace_id=") || ofTick != strings.Contains(line, " span_id=") {
					t.Errorf("log: %s", line)
				}
			}
		}
		if first := traced[0].SpanContext().TraceID().String(); !strings.Contains(processes[0].log.String()+processes[1].log.String(), "trace_id="+first) {
			t.Error("the first tick's trace is not in a log")
		}
	})
}

// With no provider a job of a bulk costs what its encoding does.
func TestOffCost(t *testing.T) {
	s := offline(t)
	b := &bulk{s: s, ctx: context.Background(), traced: !s.trace.off(), measured: !s.metrics.Off()}
	q := &bulkQueue{name: "q"}
	job := defaults.job(store.NewID(), "note", []byte(`{"N":1}`))
	encoding := testing.AllocsPerRun(100, func() {
		if _, err := store.NewItem(&job, store.When{}); err != nil {
			t.Fatal(err)
		}
	})
	all := testing.AllocsPerRun(100, func() {
		if _, err := b.create(q, &job, &defaults); err != nil {
			t.Fatal(err)
		}
	})
	if all != encoding || b.traced || b.measured || job.Headers != nil {
		t.Errorf("%v allocations, want %v; traced %v, measured %v, headers %v", all, encoding, b.traced, b.measured, job.Headers)
	}
}
