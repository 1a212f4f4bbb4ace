package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/internal/telemetry"
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

// headers returns the headers of a job that this span created.
func (r *tracedRig) headers() (map[string]string, trace.SpanContext) {
	ctx, span := r.tp.Tracer("test").Start(r.Context(), "creator")
	defer span.End()
	return telemetry.Inject(ctx, propagation.TraceContext{}, nil, "auto", nil), span.SpanContext()
}

// named returns the spans of this name, in the order of their starts.
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

// n waits for n spans of an operation on the queue.
func (r *tracedRig) n(op string, n int) tracetest.SpanStubs {
	r.Helper()
	name := op + " " + r.name()
	r.until(name, func(looks.Counts) bool { return len(r.named(name)) >= n })
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

// One job is one trace: the spans creator, process, handle and ack, each inside the one before.
func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	headers, creator := r.headers()
	w := r.workerWith(r.config(1))
	inner := make(chan trace.SpanContext, 1)
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		inner <- trace.SpanContextFromContext(ctx)
		return nil
	}, worker.With(middleware.Trace(middleware.WithTracerProvider(r.tp)))) // a second time, which has no effect
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
			"signalbox.job.kind": "task", "signalbox.job.attempt": "1", "signalbox.job.max_attempts": "25",
		} {
			if got := value(s, key); got.String() != want {
				t.Errorf("%s: %s is %q, want %q", s.Name, key, got.String(), want)
			}
		}
		if value(s, "messaging.client.id").AsString() == "" || value(s, "server.address").AsString() == "" || s.Status.Code != codes.Unset {
			t.Errorf("%s: %v %v", s.Name, s.Attributes, s.Status)
		}
	}
	if value(process, "signalbox.lock.fencing_token").AsInt64() == 0 || value(ack, "signalbox.job.outcome").AsString() != "completed" {
		t.Errorf("%v, %v", process.Attributes, ack.Attributes)
	}
	if process.SpanKind != trace.SpanKindConsumer || ack.SpanKind != trace.SpanKindClient || handle[0].SpanKind != trace.SpanKindInternal {
		t.Error("kinds")
	}
}

// Each outcome except success: how the job is settled. The next attempt links to the span of this one.
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
		next, err := time.Parse(time.RFC3339Nano, value(settle, "signalbox.job.next_run").AsString())
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
	if dead := r.n("dead_letter", 1)[0]; value(dead, "signalbox.job.outcome").AsString() != "dead" {
		t.Errorf("%v", dead.Attributes)
	}
}

// A worker loses its lease. The worker that takes the job over knows the span of the lost delivery.
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
	r.until("the note", func(looks.Counts) bool { return r.rdb.HLen(t.Context(), r.key("notes")).Val() == 1 })
	// Has the same effect as a worker that stood still for too long.
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
	if !slices.Contains(names, telemetry.EventRejected) { // it completed too late
		t.Errorf("events %v", names)
	}
}
