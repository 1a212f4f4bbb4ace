package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/signalbox-go/signalbox/health"
	"github.com/signalbox-go/signalbox/internal/store/layout"
)

// A replyError is an error reply of Redis.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

const outOfMemory = replyError("OOM command not allowed when used memory > 'maxmemory'.")

// failing is a process whose ticks are to fail, and the spans, metrics and log about them.
type failing struct {
	*process
	server *fakeServer
	spans  *tracetest.SpanRecorder
	reader meterReader
	stop   context.CancelFunc
}

func startFailing(t *testing.T, ctx context.Context) failing {
	t.Helper()
	config, spans := traced(t)
	f := failing{server: newFakeServer(), spans: spans, reader: measured(t, &config)}
	ctx, f.stop = context.WithCancel(ctx)
	f.process = startFakeWith(t, ctx, map[string]*fakeServer{"q": f.server}, time.Now, config)
	return f
}

// end ends the process. It returns the failed "tick e" spans by their tick. Each tick has one span, with a failed
// "enqueue q" below it. Each failure is counted once.
func (f failing) end(t *testing.T, errorType string) map[string]sdktrace.ReadOnlySpan {
	t.Helper()
	f.stop()
	synctest.Wait()
	children := make(map[trace.SpanID]sdktrace.ReadOnlySpan)
	for _, span := range spansOf(f.spans, "enqueue q") {
		children[span.Parent().SpanID()] = span
	}
	failed, fired := make(map[string]sdktrace.ReadOnlySpan), int64(0)
	for _, tick := range spansOf(f.spans, "tick e") {
		at, enqueue := attributes(tick)["signalbox.schedule.tick"], children[tick.SpanContext().SpanID()]
		if enqueue == nil {
			t.Fatalf("the tick %s has no span of the enqueueing", at)
		}
		same(t, "the status of the enqueueing", enqueue.Status(), tick.Status())
		if tick.Status().Code == codes.Unset {
			fired++
			continue
		}
		if failed[at] != nil {
			t.Errorf("the tick %s has two spans", at)
		}
		failed[at] = tick
		if late, there := attributes(tick)["signalbox.schedule.late_ms"]; there {
			t.Errorf("a tick that failed was enqueued after %s ms", late)
		}
		for _, span := range []sdktrace.ReadOnlySpan{tick, enqueue} {
			same(t, "error.type of "+span.Name(), attributes(span)["error.type"], errorType)
			if span.Status().Description == "" || len(span.Events()) != 1 || span.Events()[0].Name != "exception" {
				t.Errorf("%s doesn't tell of its failure: %+v, %v", span.Name(), span.Status(), span.Events())
			}
		}
	}
	want := make(map[string]int64)
	if fired > 0 {
		want[""] = fired
	}
	if len(failed) > 0 {
		want[errorType] = int64(len(failed))
	}
	if got := f.reader.counts(t, "messaging.client.sent.messages", "error.type"); !maps.Equal(got, want) {
		t.Errorf("sent by error: %v, want %v", got, want)
	}
	for id := range f.reader.traces(t) {
		if !f.exports(id) {
			t.Errorf("an exemplar is from a trace that nobody gets to see: %v", id)
		}
	}
	return failed
}

func (f failing) exports(id trace.TraceID) bool {
	for _, span := range f.spans.Ended() {
		if span.SpanContext().TraceID() == id {
			return true
		}
	}
	return false
}

// TestTicksFail: a tick that can't be enqueued is recorded once, when it is given up, after any number of tries.
func TestTicksFail(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := startFailing(t, ctx)
		f.cron(t, "e", "@every 1s", "q")
		time.Sleep(5*time.Second + time.Second/2)
		f.server.set(func() { f.server.refuse = outOfMemory })
		time.Sleep(time.Minute)
		f.server.set(func() { f.server.refuse = nil })
		time.Sleep(10 * time.Second)
		ticks := f.server.ticks()
		gap := int64(0)
		for i := 1; i < len(ticks); i++ {
			gap += int64(ticks[i].Sub(ticks[i-1])/time.Second) - 1
		}
		failed := f.end(t, "OOM")
		same(t, "ticks that failed", int64(len(failed)), gap)
		if gap < 50 || gap > 60 || f.server.calls < 3*len(failed) {
			t.Errorf("%d ticks failed; %d calls for ticks", gap, f.server.calls)
		}
		for at, span := range failed {
			if !strings.Contains(span.Status().Description, "maxmemory; jobs can be put in again") {
				t.Errorf("the tick %s: %s", at, span.Status().Description)
			}
		}
		same(t, "spans without an end", len(f.spans.Started())-len(f.spans.Ended()), 0)
		got := f.reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome")
		if want := map[string]int64{"fired": int64(len(ticks)), "missed": gap}; !maps.Equal(got, want) {
			t.Errorf("ticks: %v, want %v", got, want)
		}
	})
}

// TestTicksOfAnOutdatedScheduler: a queue whose layout this release doesn't know refuses each tick once, since another try would end alike. The log says so once,
// and says when it is over. Health says it as long as it is so.
func TestTicksOfAnOutdatedScheduler(t *testing.T) {
	for name, tc := range map[string]struct {
		of         int
		begin, end string // in the log
		detail     string // of the problem
	}{
		"newer": {layout.Protocol + 1, "this scheduler is too old for the queue", "this scheduler is no longer too old for the queue", "update this program"},
		"older": {layout.Number - 1, "the queue has another layout than this release knows", "the queue has a layout of this release now", "end its jobs with that program"},
	} {
		refusal := fmt.Errorf("%w: %w", &layout.Error{Layout: tc.of}, replyError("LAYOUT 0 is another"))
		outdated := func(t *testing.T, f failing, since time.Time) {
			t.Helper()
			all := f.Health().Problems
			if len(all) != 1 || all[0].Code != health.Outdated || all[0].Severity != health.Unready || !strings.Contains(all[0].Detail, tc.detail) || all[0].Since.Sub(since).Abs() > time.Second {
				t.Errorf("health: %+v, want one problem since %v", all, since)
			}
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := startFailing(t, ctx)
				f.cron(t, "e", "@every 1m", "q")
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(90 * time.Second)))
				before := len(f.server.ticks())
				f.server.set(func() { f.server.refuse, f.server.noted, f.server.calls = refusal, refusal, 0 })
				time.Sleep(5*time.Minute + 20*time.Second) // 50 s after the last tick
				outdated(t, f, time.Now().Add(-5*time.Minute+10*time.Second))
				f.server.set(func() { same(t, "calls for ticks while they are refused", f.server.calls, 5) })
				want(t, f.process, "level=WARN", 0)
				want(t, f.process, `level=ERROR msg="scheduler: cron: `+tc.begin, 1)
				want(t, f.process, "queue=q error=", 1)
				want(t, f.process, tc.end, 0)
				f.server.set(func() { f.server.refuse, f.server.noted = nil, nil })
				time.Sleep(2 * time.Minute)
				same(t, "ticks that were enqueued", len(f.server.ticks())-before, 2)
				same(t, "problems", len(f.Health().Problems), 0)
				want(t, f.process, `level=INFO msg="scheduler: cron: `+tc.end+`" queue=q`, 1)
				want(t, f.process, "level=", 2+before+2) // and a debug line for each tick that was enqueued
				same(t, "ticks that failed", len(f.end(t, "LAYOUT")), 5)
				got := f.reader.counts(t, "signalbox.schedule.ticks", "signalbox.schedule.outcome")
				if want := map[string]int64{"fired": int64(before) + 2, "missed": 5}; !maps.Equal(got, want) {
					t.Errorf("ticks: %v, want %v", got, want)
				}
			})
		})
		t.Run(name+", from the beginning", func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := startFailing(t, ctx)
				f.server.refuse, f.server.noted = refusal, refusal
				f.cron(t, "e", "0 0 1 1 *", "q") // no tick of it is due
				time.Sleep(time.Second)
				outdated(t, f, time.Now().Add(-time.Second))
				want(t, f.process, `level=ERROR msg="scheduler: cron: `+tc.begin, 1)
				f.server.set(func() { f.server.refuse, f.server.noted = nil, nil })
				time.Sleep(noticeAgain)
				same(t, "problems", len(f.Health().Problems), 0)
				want(t, f.process, `level=INFO msg="scheduler: cron: `+tc.end+`" queue=q`, 1)
				want(t, f.process, "level=", 2)
			})
		})
	}
}

// TestTickFailsInOutage: after an outage of Redis, the tick that was tried is recorded. It may have been enqueued.
func TestTickFailsInOutage(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := startFailing(t, ctx)
		f.cron(t, "e", "@every 1s", "q")
		time.Sleep(5*time.Second + time.Second/2)
		f.server.set(func() { f.server.err = errors.New("EOF") })
		time.Sleep(time.Hour)
		f.server.set(func() { f.server.err = nil })
		time.Sleep(10 * time.Second)
		for _, span := range f.end(t, "uncertain") {
			if !strings.Contains(span.Status().Description, ErrUncertain.Error()) {
				t.Errorf("the status is %q", span.Status().Description)
			}
		}
		same(t, "ticks that failed", len(spansOf(f.spans, "tick e"))-len(f.server.ticks()), 1)
		same(t, "spans without an end", len(f.spans.Started())-len(f.spans.Ended()), 0)
	})
}

// TestTickFailsAtTheEnd: when Run ends, the current tick is given up.
func TestTickFailsAtTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := startFailing(t, ctx)
		f.server.refuse = outOfMemory
		f.cron(t, "e", "@every 1s", "q")
		time.Sleep(3 * time.Second)
		same(t, "spans that ended while the tick is tried", len(f.spans.Ended()), 0)
		same(t, "failed ticks", len(f.end(t, "OOM")), 1)
	})
}

// TestTickFiresAtLast: a tick that succeeds in the end has not failed. Nor has one that another process enqueued.
func TestTickFiresAtLast(t *testing.T) {
	for name, taken := range map[string]bool{"here": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ctx context.Context) {
				f := startFailing(t, ctx)
				f.server.refuse = outOfMemory
				f.cron(t, "e", "@every 1h", "q")
				next := time.Now().UTC().Truncate(time.Hour).Add(time.Hour)
				time.Sleep(time.Until(next) + 2*time.Second)
				f.server.set(func() {
					f.server.refuse = nil
					if taken {
						f.server.last["e"] = next
					}
				})
				time.Sleep(time.Minute)
				same(t, "failed ticks", len(f.end(t, "OOM")), 0)
				want := 2
				if taken {
					want = 0
				}
				same(t, "spans", len(f.spans.Ended()), want)
			})
		})
	}
}

// TestTicksOfALaneThatWasOvertaken: another client has made a later call of a lane, as one with a copy of this process' memory. Its calls are refused from
// then on, so the ticks go over another lane, and none is late.
func TestTicksOfALaneThatWasOvertaken(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		startFake(t, ctx, map[string]*fakeServer{"q": f}).cron(t, "e", "@every 1s", "q")
		time.Sleep(2*time.Second + time.Second/2)
		f.set(func() { f.overtake = true })
		time.Sleep(5 * time.Second)
		ticks := f.ticks()
		for i := 1; i < len(ticks); i++ {
			same(t, "time between two ticks", ticks[i].Sub(ticks[i-1]), time.Second)
		}
		if len(ticks) < 6 {
			t.Errorf("%d ticks are in", len(ticks))
		}
	})
}

// TestTickWithoutAJob: a tick whose job can't be made is recorded.
func TestTickWithoutAJob(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := startFailing(t, ctx)
		e, err := f.newEntry("e", "@every 1s", note{}, []CronOption{Queue("q")})
		if err != nil {
			t.Fatal(err)
		}
		e.job.Payload = make([]byte, 2<<20)
		if err := f.Scheduler.cron.add(e, func() {}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second + time.Second/2)
		same(t, "failed ticks", len(f.end(t, "invalid")), 10)
		same(t, "calls", f.server.calls, 0)
	})
}

// TestEarlyTicks: a tick that Redis refuses as early is tried again soon, even if earlier ticks were early many times.
func TestEarlyTicks(t *testing.T) {
	bubble(t, func(t *testing.T, ctx context.Context) {
		f := newFakeServer()
		startFake(t, ctx, map[string]*fakeServer{"q": f}).cron(t, "e", "@every 10s", "q")
		time.Sleep(5 * time.Second)
		for n := range 5 {
			f.set(func() { f.early = 3 })
			time.Sleep(5*time.Second + 200*time.Millisecond)
			if ticks := f.ticks(); len(ticks) != n+1 {
				t.Errorf("after its time and 200 ms tick %d is not in: %v", n+1, ticks)
			}
			time.Sleep(5*time.Second - 200*time.Millisecond)
		}
	})
}
