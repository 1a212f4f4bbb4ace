package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/internal/store/looks"
	"github.com/signalbox-go/signalbox/worker"
)

// The log and the record have the beginning of an error's text, however long the text is.
func TestErrorsAreCutInLogAndRecord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(4)
	long := strings.Repeat("x", 1<<20)
	worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
		switch job.ID {
		case "panics":
			panic(long)
		case "cancels":
			return signalbox.Cancel(errors.New(long))
		}
		return errors.New(long)
	}, worker.Retry(func(int, error) time.Duration { return time.Hour }))
	r.start(w)
	r.add(signalbox.Job{ID: "fails"}, signalbox.Job{ID: "dies", MaxAttempts: 1}, signalbox.Job{ID: "cancels"}, signalbox.Job{ID: "panics"})
	r.until("all have ended", func(c looks.Counts) bool { return c.Due == 2 && c.Dead == 1 && c.Cancelled == 1 })
	for _, id := range []string{"fails", "dies", "cancels", "panics"} {
		if n := len(r.job(id).LastError); n < 2000 || n > 2100 {
			t.Errorf("%s: the record keeps %d bytes of the error", id, n)
		}
		if r.log.count("job="+id, "bytes)") == 0 {
			t.Errorf("%s: the log doesn't say how long the error was", id)
		}
	}
	for _, e := range r.log.all() {
		if len(e) > 16<<10 {
			t.Errorf("a log record of %d bytes: %.200s", len(e), e)
		}
	}
}

// all returns the entries.
func (l *logbook) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.entries...)
}

// A handler panics again and again. Its stack is logged once a minute, and each record of a panic says so.
func TestStacksOfAKindAreLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w := r.worker(1)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { panic("boom") },
		worker.Retry(func(int, error) time.Duration { return time.Hour }))
	w.HandleKind("other", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { panic("bang") }),
		worker.Retry(func(int, error) time.Duration { return time.Hour }))
	r.start(w)
	r.add(make([]signalbox.Job, 5)...)
	r.until("all have panicked", func(c looks.Counts) bool { return c.Due == 5 })
	if stacks, without := r.log.count("stack=goroutine"), r.log.count("stack=left out"); stacks != 1 || without != 4 {
		t.Errorf("%d stacks, %d records without; want 1 and 4", stacks, without)
	}
	r.addOne(signalbox.Job{Kind: "other"})
	r.until("the other kind has panicked", func(c looks.Counts) bool { return c.Due == 6 })
	if r.log.count("kind=other", "stack=goroutine") != 1 {
		t.Error("the stack of the other kind is left out")
	}
}

// A job reaches a worker that has no handler for it. Soon it reaches a worker that has one.
func TestUnknownKindComesBackSoon(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := r.worker(1)
	other.HandleKind("other", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }))
	run := r.start(other)
	r.addOne(signalbox.Job{})
	r.log.says(t, "no handler is registered for a kind", "kind=task", `kinds=\[other\]`, `next_try=[\d.]+m?s`)
	r.until("it waits", func(c looks.Counts) bool { return c.Due == 1 })
	run.stop()
	w := r.worker(1)
	ran := r.reporter(w)
	r.start(w)
	get(t, ran, "the job runs") // if it waits as long as before, this takes half a minute or more
	r.completed(1)
}

// A job whose kind no handler has says so itself, and has used no attempt. An error that it has stays.
func TestUnknownKindIsSaidByItsJob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.addOne(signalbox.Job{Kind: "tsak", Payload: []byte(`"SECRET"`)})
	failed := r.addFailed(2, signalbox.Job{Kind: "tsak"})
	w := r.worker(2)
	w.HandleKind("other", signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }))
	r.start(w)
	r.until("both were put back", func(c looks.Counts) bool { return c.Total.Delayed > 1 && c.Due == 2 })
	job := r.job(id)
	want := fmt.Sprintf("put back: worker %s has no handler for kind \"tsak\"", w.ID())
	if job.LastError != want || job.Attempt != 1 || string(job.Payload) != `"SECRET"` {
		t.Errorf("attempt %d, payload %s, %q; want 1 and %q", job.Attempt, job.Payload, job.LastError, want)
	}
	if job := r.job(failed); job.LastError != "of another reason" || job.Attempt != 3 {
		t.Errorf("attempt %d, %q; want 3, and the error that it had", job.Attempt, job.LastError)
	}
}

// A process that works no queue reports depths as well.
func TestReportDepths(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(make([]signalbox.Job, 3)...)
	reader := sdkmetric.NewManualReader()
	stop, err := worker.ReportDepths(context.Background(), r.rdb, worker.ReportConfig{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}, r.name())
	if err != nil {
		t.Fatal(err)
	}
	depth := func() (n int64) {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			t.Error(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "signalbox.queue.depth" {
					for _, p := range sum.DataPoints {
						n += p.Value
					}
				}
				if gauge, ok := m.Data.(metricdata.Gauge[int64]); ok && m.Name == "signalbox.queue.depth" {
					for _, p := range gauge.DataPoints {
						n += p.Value
					}
				}
			}
		}
		return n
	}
	redistest.Eventually(t, func() bool { // a busy machine may need longer than a collection may take
		n := depth()
		if n != 0 && n != 3 {
			t.Fatalf("the depth is %d, want 3", n)
		}
		return n == 3
	}, "the depth is there")
	stop()
	if n := depth(); n != 0 {
		t.Errorf("the depth is %d after the end", n)
	}
	for name, queues := range map[string][]string{"no queue": nil, "a wrong name": {"a b"}} {
		if _, err := worker.ReportDepths(context.Background(), r.rdb, worker.ReportConfig{}, queues...); !errors.Is(err, signalbox.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := worker.ReportDepths(context.Background(), nil, worker.ReportConfig{}, redistest.Name(t)); !errors.Is(err, signalbox.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}
