package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/examples/more/tracing/internal/jaeger"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/scheduler"
	"github.com/signalbox-go/signalbox/worker"
)

// A rig has a scheduler and its workers in the test's process, on their own queue. They can be
// configured in more ways than a probe. They use the rig's provider, whose service has the
// queue's name.
type rig struct {
	*checker
	jaeger *jaeger.Server
	queue  string
	jobs   *scheduler.Scheduler
	spans  *sdktrace.TracerProvider

	ctx  context.Context // for the workers
	stop context.CancelFunc
	runs sync.WaitGroup
	end  func() // waits for the workers and sends the last spans
}

func newRig(c *checker, j *jaeger.Server, r *testRedis) *rig {
	c.Helper()
	g := &rig{checker: c, jaeger: j, queue: redistest.Name(c)}
	exporter, err := otlptracehttp.New(c.Context(), otlptracehttp.WithEndpointURL(j.OTLP+"/v1/traces"),
		otlptracehttp.WithHTTPClient(&http.Client{ // the exporter's own client leaves connections open
			Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second,
		}))
	if err != nil {
		c.Fatal(err)
	}
	g.spans = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), // in any environment
		sdktrace.WithBatcher(exporter, sdktrace.WithBatchTimeout(20*time.Millisecond)),
		sdktrace.WithResource(resource.NewWithAttributes(semconv.SchemaURL, semconv.ServiceName(g.queue))))
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.end = sync.OnceFunc(func() {
		g.stop()
		g.runs.Wait()
		if err := g.spans.Shutdown(context.Background()); err != nil {
			c.Errorf("spans were lost: %v", err)
		}
	})
	c.Cleanup(g.end)
	g.jobs, err = scheduler.New(r.rdb, scheduler.Config{TracerProvider: g.spans, Propagator: propagation.TraceContext{}})
	if err != nil {
		c.Fatal(err)
	}
	return g
}

// A plain job may have any kind. Its payload must not appear in any span.
type plain struct {
	kind   string
	Secret string
}

func (p plain) Kind() string { return p.kind }

// enqueue enqueues one job, in a trace of its own.
func (g *rig) enqueue(kind, id string, opts ...scheduler.EnqueueOption) {
	g.Helper()
	g.request(func(ctx context.Context) error {
		_, err := g.jobs.Enqueue(ctx, plain{kind, canary}, append(opts, scheduler.Queue(g.queue), scheduler.ID(id))...)
		return err
	})
}

// request makes a request of a service.
func (g *rig) request(do func(ctx context.Context) error) {
	g.Helper()
	ctx, span := g.spans.Tracer("shop").Start(g.Context(), "request", trace.WithSpanKind(trace.SpanKindServer))
	defer span.End()
	if err := do(ctx); err != nil {
		g.Fatal(err)
	}
}

// work runs a worker with this configuration. handlers registers its handlers.
func (g *rig) work(rdb redis.UniversalClient, cfg worker.Config, handlers func(w *worker.Worker)) {
	g.Helper()
	cfg.Queues = worker.Queues{g.queue: {Concurrency: 20}}
	cfg.TracerProvider, cfg.Propagator = g.spans, propagation.TraceContext{}
	cfg.Logger, cfg.DrainTimeout = slog.New(slog.DiscardHandler), 5*time.Second
	w, err := worker.New(rdb, cfg)
	if err != nil {
		g.Fatal(err)
	}
	handlers(w)
	g.runs.Go(func() {
		if err := w.Run(g.ctx); err != nil {
			g.Errorf("Run: %v", err)
		}
	})
}

// traces waits until Jaeger has this many process spans, which are the last of their jobs. Then
// it ends everything and returns the spans that Jaeger has.
func (g *rig) traces(processes int) rigTraces {
	g.Helper()
	redistest.Eventually(g, func() bool {
		spans, _, err := g.jaeger.Search(g.Context(), g.queue, 20_000)
		if err != nil {
			g.Fatal(err)
		}
		n := 0
		for _, sp := range spans {
			if sp.Name == "process "+g.queue {
				n++
			}
		}
		return n >= processes
	}, "Jaeger has %d process spans", processes)
	g.end()
	return rigTraces{g.checker, found(g.checker, g.jaeger, g.queue)}
}

// rigTraces are the spans of a rig, by trace.
type rigTraces struct {
	*checker
	byTrace map[string][]*jaeger.Span
}

// of returns the spans of an operation on a job, by start time.
func (t rigTraces) of(op, job string) []*jaeger.Span {
	var all []*jaeger.Span
	for _, spans := range t.byTrace {
		for _, sp := range spans {
			if strings.HasPrefix(sp.Name, op+" ") && sp.Attributes[attrMessageID] == job {
				all = append(all, sp)
			}
		}
	}
	slices.SortFunc(all, func(a, b *jaeger.Span) int { return a.Start.Compare(b.Start) })
	return all
}

// one returns the only such span.
func (t rigTraces) one(op, job string) *jaeger.Span {
	t.Helper()
	all := t.of(op, job)
	if len(all) != 1 {
		t.Fatalf("job %s has %d spans %q, want one", job, len(all), op)
	}
	return all[0]
}

// through returns a client of the same Redis that uses the proxy.
func (r *testRedis) through(c *checker, p *redistest.Proxy) redis.UniversalClient {
	c.Helper()
	opt, err := parseURL(r.urlThrough(p))
	if err != nil {
		c.Fatal(err)
	}
	rdb := redis.NewClient(opt)
	c.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func (r *testRedis) proxy(c *checker) *redistest.Proxy {
	c.Helper()
	return redistest.NewProxy(c, net.JoinHostPort(r.host, r.port))
}

func (r *testRedis) urlThrough(p *redistest.Proxy) string {
	return strings.Replace(r.url, net.JoinHostPort(r.host, r.port), p.Addr(), 1)
}
