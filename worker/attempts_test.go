package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// explode panics: its name is in the stack.
func explode() { panic("boom") }

// A job keeps what its failed attempts were: which, when, for how long, where, why, and in which span. One that was cancelled by its handler,
// or put back, is no failed attempt.
func TestFailedAttemptsAreKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.addOne(signalbox.Job{MaxAttempts: 10})
	cfg := r.config(1)
	cfg.TracerProvider = sdktrace.NewTracerProvider()
	w := r.workerWith(cfg)
	var spans []trace.SpanContext // of the calls
	worker.Handle(w, func(ctx context.Context, _ *signalbox.Job, _ task) error {
		spans = append(spans, trace.SpanContextFromContext(ctx))
		switch len(spans) {
		case 1:
			return errors.New(strings.Repeat("x", 600))
		case 2:
			return signalbox.Snooze(0)
		case 3:
			explode()
		}
		return signalbox.Cancel(errors.New("enough"))
	}, worker.Retry(func(int, error) time.Duration { return 0 }))
	run := r.start(w)
	r.until("it is cancelled", func(c looks.Counts) bool { return c.Cancelled == 1 })
	run.stop()
	view, _, found, err := r.queue.Looks().Show(t.Context(), id)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	got := view.Attempts
	if len(got) != 2 {
		t.Fatalf("it keeps %+v", got)
	}
	for i, want := range []string{strings.Repeat("x", 512), "handler panicked: boom"} {
		a := got[i]
		if a.Number != i+1 || a.Error != want || a.Worker != w.ID() || a.At.Before(view.Job.EnqueuedAt) || a.Ran <= 0 || a.Ran > time.Minute {
			t.Errorf("attempt %d: %+v", i+1, a)
		}
	}
	if stack := got[1].Stack; got[0].Stack != "" || !strings.HasPrefix(stack, "github.com/signalbox-go/signalbox/worker_test.explode(") {
		t.Errorf("the stacks are %q and\n%s", got[0].Stack, stack)
	}
	for i, call := range []int{0, 2} {
		if a := got[i]; a.TraceID != spans[call].TraceID().String() || a.SpanID == "" {
			t.Errorf("attempt %d is of trace %q, span %q; its handler had %s", i+1, a.TraceID, a.SpanID, spans[call].TraceID())
		}
	}
}

// A job without a failed attempt has none to keep, and an untraced attempt no span.
func TestUntracedAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.addOne(signalbox.Job{MaxAttempts: 1})
	if view, _, _, err := r.queue.Looks().Show(t.Context(), id); err != nil || len(view.Attempts) != 0 {
		t.Errorf("a new job: %+v, %v", view.Attempts, err)
	}
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return errBoom })
	run := r.start(w)
	r.until("it is dead", func(c looks.Counts) bool { return c.Dead == 1 })
	run.stop()
	view, _, _, err := r.queue.Looks().Show(t.Context(), id)
	if err != nil || len(view.Attempts) != 1 {
		t.Fatalf("%+v, %v", view.Attempts, err)
	}
	if a := view.Attempts[0]; a.Number != 1 || a.Error != errBoom.Error() || a.TraceID != "" || a.SpanID != "" || a.Stack != "" {
		t.Errorf("%+v", a)
	}
}
