package worker_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/worker"
)

// An outage of the renewals is one event, however many tries there are. It isn't a failure.
func TestTraceOfFailedRenewals(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	cfg := r.config(1)
	cfg.SessionTTL = 15 * time.Second // on a busy machine an outage of three tries lasts four seconds, and must end before the lease
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
		// One renewal may come before the rule, one more succeeds, and the next one shows the outage to the worker.
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

// slowSpans are spans that need a long time for each event.
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

// A span is the user's code. The lease is renewed even if an event takes long.
func TestSlowEvents(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr())
	free, end := r.gate()
	cfg := r.config(1)
	cfg.SessionTTL, cfg.TracerProvider = shortTTL, slowSpans{r.tp, free}
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
	redistest.Eventually(t, func() bool { return proxy.Count(r.isRenew()) >= before+3 }, "the lease is renewed on and on")
	close(release)
	end()
	if names := r.n("process", 1)[0].Events; len(names) != 1 || names[0].Name != telemetry.EventRenewFailed {
		t.Errorf("the events are %v", names)
	}
	r.completed(1)
}
