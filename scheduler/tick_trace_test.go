package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/redistest"
)

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

// TestMissedTicks: the first tick after an outage has the number of ticks that were skipped.
// So has the metric, in one process only.
func TestMissedTicks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		config, spans := traced(t)
		reader := measured(t, &config)
		f := newFakeServer()
		for range 2 {
			startFakeWith(t, ctx, map[string]*fakeServer{"q": f}, time.Now, config).cron(t, "e", "@every 1s", "q")
		}
		time.Sleep(10*time.Second + time.Second/2)
		f.set(func() { f.err = errors.New("connection refused") })
		time.Sleep(time.Minute)
		f.set(func() { f.err = nil })
		time.Sleep(10*time.Second - time.Second/2)
		synctest.Wait() // so that the last tick is measured
		ticks := f.ticks()
		gap := int64(0)
		for i := 1; i < len(ticks); i++ {
			gap += int64(ticks[i].Sub(ticks[i-1])/time.Second) - 1
		}
		told, traced := int64(0), slices.DeleteFunc(spansOf(spans, "tick e"), func(span sdktrace.ReadOnlySpan) bool {
			return span.Status().Code == codes.Error // the span of a tick whose tries failed
		})
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
	})
}

// TestTickLogs: the log names only spans that are exported: it names none before the tick is
// enqueued, and none that is not sampled. The same is true of the exemplars of metrics.
func TestTickLogs(t *testing.T) {
	for name, sampler := range map[string]sdktrace.Sampler{"sampled": sdktrace.AlwaysSample(), "not sampled": sdktrace.NeverSample()} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				spans := tracetest.NewSpanRecorder()
				config := Config{
					Logger:         slog.New(slog.DiscardHandler),
					TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSampler(sampler)),
				}
				reader := measured(t, &config)
				f := newFakeServer()
				var processes []*process
				for range 2 {
					p := startFakeWith(t, ctx, map[string]*fakeServer{"q": f}, time.Now, config)
					p.cron(t, "e", "@every 1s", "q")
					processes = append(processes, p)
				}
				time.Sleep(10*time.Second + time.Second/2)
				f.set(func() { f.err = errors.New("connection refused") }) // in both processes a tick fails,
				time.Sleep(2 * time.Second)
				f.set(func() { f.err = nil }) // and one of them then enqueues it
				time.Sleep(10 * time.Second)
				synctest.Wait() // the log is written
				ended, exported := make(map[string]bool), make(map[trace.TraceID]bool)
				for _, span := range spansOf(spans, "tick e") {
					ended[fmt.Sprintf("trace_id=%v span_id=%v", span.SpanContext().TraceID(), span.SpanContext().SpanID())] = true
					exported[span.SpanContext().TraceID()] = true
				}
				same(t, "ended spans", len(ended) > 0, name == "sampled")
				exemplars := reader.traces(t)
				same(t, "exemplars", len(exemplars) > 0, name == "sampled")
				for id := range exemplars {
					if !exported[id] {
						t.Errorf("an exemplar is from a trace that nobody gets to see: %v", id)
					}
				}
				enqueued, failed := 0, 0
				for _, p := range processes {
					failed += strings.Count(p.log.String(), "call for ticks failed")
					for line := range strings.Lines(p.log.String()) {
						want := false
						if strings.Contains(line, "tick enqueued") {
							enqueued++
							want = name == "sampled"
						}
						named := strings.Contains(line, "trace_id=") || strings.Contains(line, "span_id=")
						if named != want || named && !ended[spanInLog.FindString(line)] {
							t.Errorf("a span is in the log: %v, want %v: %s", named, want, line)
						}
					}
				}
				if enqueued != len(f.ticks()) || failed < 2 {
					t.Errorf("of %d ticks the log tells %d; %d failures", len(f.ticks()), enqueued, failed)
				}
			})
		})
	}
}

var spanInLog = regexp.MustCompile("trace_id=[0-9a-f]{32} span_id=[0-9a-f]{16}")
