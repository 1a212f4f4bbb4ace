package worker_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/propagation"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
	"github.com/signalbox-go/signalbox/worker"
)

// says waits for an entry with a message, and expects it to have attributes that match.
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

// Deliveries that get to no handler are told of as the others are, as far as it is known.
func TestLogOfWhatHasNoHandler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	newer := r.addOne(signalbox.Job{})
	r.put(newer, "\x02"+r.record(newer)[1:]+"what only a newer release can read")
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

// A settlement that is refused is told of as other ends are, whether anybody watches or not.
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
				*job = signalbox.Job{Kind: "nobody's", Attempt: 77} // changes reach nobody
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
