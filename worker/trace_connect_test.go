package worker_test

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/worker"
)

// How deliveries are connected with the span that created the job.
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

// Jobs enqueue other jobs, one after the other. They share a trace while its first job is young. Then a new trace begins. So no trace
// grows without end.
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
			r.addOne(signalbox.Job{Headers: telemetry.Inject(ctx, propagation.TraceContext{}, nil, "auto", nil)})
		case <-over:
		}
		return nil
	})
	headers, creator := r.headers()
	r.addOne(signalbox.Job{Headers: headers})
	chain := r.start(w)
	var (
		since time.Time // when the trace's first job was enqueued, or claimed if the job is the root of the trace
		last  trace.TraceID
	)
	for seen := 0; seen < traces; {
		job := get(t, runs, "the next job runs")
		if job.trace != last {
			seen++
			if job.trace == creator.TraceID() {
				since = job.EnqueuedAt
			} else if seen == 1 { // starting the worker took longer than a trace may last
				since = job.ClaimedAt
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
	chain.stop()
}

// The baggage in Run's context doesn't reach any job.
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
