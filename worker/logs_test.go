package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/middleware"
	"github.com/signalbox-go/signalbox/worker"
)

// says waits for an entry with a message, and checks that its attributes match.
func (l *logbook) says(t *testing.T, msg string, attrs ...string) {
	t.Helper()
	redistest.Eventually(t, func() bool { return l.count(msg) > 0 }, "the log says %q", msg)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if !strings.Contains(e, msg) {
			continue
		}
		for _, attr := range attrs {
			if !regexp.MustCompile(`(^|\s)` + attr + `(\s|$)`).MatchString(e) {
				t.Errorf("no %s in: %s", attr, e)
			}
		}
		return
	}
}

// Deliveries that reach no handler are logged like the others, with what is known about them.
func TestLogOfWhatHasNoHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	newer := r.addOne(signalbox.Job{})
	r.put(newer, "\x03"+r.record(newer)[1:]+"what only a newer release can read")
	corrupt := r.addOne(signalbox.Job{})
	r.put(corrupt, r.record(corrupt)+"\xff")
	unknown := r.addOne(signalbox.Job{Kind: "unknown"})
	w := r.worker(3)
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	r.log.says(t, "newer release", "job="+newer, `token=[1-9]\d*`)
	r.log.says(t, "can't be read", "job="+corrupt, `token=[1-9]\d*`)
	r.log.says(t, "no handler is registered", "job="+unknown, "kind=unknown", "attempt=1", `token=[1-9]\d*`)
	for _, id := range []string{newer, corrupt} {
		if r.log.count("job="+id, "kind=")+r.log.count("job="+id, "attempt=") != 0 {
			t.Error("the log tells what nobody can read")
		}
	}
	run.stop()
}

// A refused settlement is logged like other ends, with or without telemetry.
func TestLogOfARefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		traced  bool
		attempt int
	}{
		"plain":         {false, 1},
		"traced":        {true, 1},
		"plain, later":  {false, 3},
		"traced, later": {true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			r := newTracedRig(t)
			r.rig = newRigOn(t, server.Client())
			cfg := r.rig.config(1)
			want := []string{"job=mine", "kind=task", fmt.Sprintf("attempt=%d", c.attempt), `token=[1-9]\d*`, "outcome=completed"}
			if c.traced {
				cfg.TracerProvider, cfg.Propagator = r.tp, propagation.TraceContext{}
				want = append(want, "trace_id=[0-9a-f]{32}", "span_id=[0-9a-f]{16}")
			}
			w := r.workerWith(cfg)
			began := make(chan struct{})
			release, end := r.gate()
			worker.Handle(w, func(_ context.Context, job *signalbox.Job, _ task) error {
				if job.Attempt < c.attempt {
					return errBoom
				}
				close(began)
				<-release
				*job = signalbox.Job{Kind: "nobody's", Attempt: 77} // changes don't reach other code
				return nil
			}, worker.Retry(soon))
			r.addOne(signalbox.Job{ID: "mine"})
			r.start(w)
			get(t, began, "the job runs")
			if err := r.rdb.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			end()
			r.log.says(t, "a superseded delivery was refused", want...)
		})
	}
}

// Log records about the end of a delivery have the IDs of the delivery's process span. The record of middleware.Log has them as well.
func TestLogOfATracedDelivery(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		msg         string
		maxAttempts int
		attempt     int // of the delivery that ends like this; earlier ones fail
		err         error
	}{
		"failed":        {"an attempt failed", 2, 1, errBoom},
		"failed, later": {"an attempt failed", 3, 2, errBoom},
		"dead":          {"a job is dead: its attempts are used up", 2, 2, errBoom},
		"cancelled":     {"a job is cancelled", 3, 2, signalbox.Cancel(errBoom)},
		"given back":    {"a job is given back", 3, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTracedRig(t)
			cfg := r.config(1)
			cfg.DrainTimeout = -1
			w := r.workerWith(cfg)
			w.Use(middleware.Log(slog.New(r.log)))
			began := make(chan struct{})
			worker.Handle(w, func(ctx context.Context, job *signalbox.Job, _ task) error {
				switch {
				case job.Attempt < c.attempt:
					return errBoom
				case job.Attempt > c.attempt:
					return nil
				}
				close(began)
				if c.err == nil {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.err
			}, worker.Retry(soon))
			id := r.addOne(signalbox.Job{MaxAttempts: c.maxAttempts})
			run := r.start(w)
			get(t, began, "the delivery")
			if c.err == nil {
				run.stop()
			}
			last := c.attempt
			if name == "failed" || name == "failed, later" {
				last++ // this one succeeds
			}
			process := r.n("process", last)[c.attempt-1]
			about := []string{
				" job=" + id + " ", " kind=task ", fmt.Sprintf(" attempt=%d ", c.attempt),
				fmt.Sprintf(" token=%d ", value(process, "signalbox.lock.fencing_token").AsInt64()),
				" trace_id=" + process.SpanContext.TraceID().String(), " span_id=" + process.SpanContext.SpanID().String(),
			}
			for _, msg := range []string{"signalbox: " + c.msg, " job job="} {
				if n := r.log.count(append(about, msg)...); n != 1 {
					t.Errorf("%d records %q with all of %q", n, msg, about)
				}
			}
		})
	}
}

// A job that has no handler here has no span, so its log record has no span IDs.
func TestLogOfAnUntracedDelivery(t *testing.T) {
	t.Parallel()
	r := newTracedRig(t)
	headers, _ := r.headers()
	id := r.addOne(signalbox.Job{Kind: "unknown", Headers: headers})
	w := r.workerWith(r.config(1))
	worker.Handle(w, func(context.Context, *signalbox.Job, task) error { return nil })
	run := r.start(w)
	r.log.says(t, "no handler is registered", "job="+id, "kind=unknown", "attempt=1", `token=[1-9]\d*`)
	run.stop()
	if r.log.count("trace_id=")+r.log.count("span_id=")+len(r.named("process "+r.name())) != 0 {
		t.Errorf("it was traced: %v", r.spans.GetSpans())
	}
}
