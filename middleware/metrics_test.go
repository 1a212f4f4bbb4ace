package middleware

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/signalbox-go/signalbox"
	"github.com/signalbox-go/signalbox/internal/telemetry"
	"github.com/signalbox-go/signalbox/lock"
)

// meters returns a provider, and a function that returns its metrics as text.
func meters() (*sdkmetric.MeterProvider, func(t *testing.T) []string) {
	reader := sdkmetric.NewManualReader()
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), func(t *testing.T) []string {
		t.Helper()
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		var lines []string
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				lines = append(lines, points(t, m)...)
			}
		}
		slices.Sort(lines)
		return lines
	}
}

// points returns the values of a metric, or counts and sums, with the attributes that tell them
// apart.
func points(t *testing.T, m metricdata.Metrics) (lines []string) {
	t.Helper()
	line := func(value string, set attribute.Set) {
		want := map[attribute.Key]string{"messaging.system": "signalbox", "messaging.destination.name": "mail"}
		if !strings.HasPrefix(m.Name, "messaging.client.operation") {
			want["signalbox.job.kind"] = "welcome"
		}
		if strings.HasPrefix(m.Name, "messaging.") {
			want["server.address"] = "redis.test"
			want["server.port"] = "6379"
		}
		var rest []string
		for _, kv := range set.ToSlice() {
			if w, known := want[kv.Key]; known && kv.Value.String() == w {
				delete(want, kv.Key)
				continue
			}
			rest = append(rest, kv.Value.String())
		}
		if len(want) > 0 {
			t.Errorf("%s has no %v", m.Name, slices.Sorted(maps.Keys(want)))
		}
		lines = append(lines, strings.Join(append([]string{m.Name, value}, rest...), " "))
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			line(fmt.Sprint(p.Value), p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			line(fmt.Sprintf("%d of %.3fs", p.Count, p.Sum), p.Attributes)
		}
	default:
		t.Errorf("%s is a %T", m.Name, data)
	}
	return lines
}

func measuredJob() *signalbox.Job {
	due := time.UnixMilli(1_000_000)
	return &signalbox.Job{
		ID: "secret", Kind: "welcome", Queue: "mail", Attempt: 2, Payload: []byte("secret"),
		ScheduledAt: due, ClaimedAt: due.Add(1500 * time.Millisecond),
	}
}

func wantPoints(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: measured\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// A worker settles the delivery some time after the handler has returned.
func TestMetricsOfADelivery(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		asked   signalbox.Outcome
		outcome signalbox.Outcome
		want    []string
	}{
		{"success", nil, signalbox.OutcomeCompleted, signalbox.OutcomeCompleted, []string{
			"messaging.process.duration 1 of 3.000s process process",
			"messaging.client.operation.duration 1 of 1.000s ack settle",
			"signalbox.jobs.settled 1 completed",
		}},
		{"snooze", signalbox.Snooze(time.Hour), signalbox.OutcomeSnoozed, signalbox.OutcomeSnoozed, []string{
			"messaging.process.duration 1 of 3.000s process process",
			"messaging.client.operation.duration 1 of 1.000s snooze settle",
			"signalbox.jobs.settled 1 snoozed",
		}},
		{"failure", &time.ParseError{}, signalbox.OutcomeRetried, signalbox.OutcomeRetried, []string{
			"messaging.process.duration 1 of 3.000s *time.ParseError process process",
			"messaging.client.operation.duration 1 of 1.000s retry settle",
			"signalbox.jobs.settled 1 retried",
		}},
		{"superseded", lock.ErrLost, signalbox.OutcomeReturned, signalbox.OutcomeSuperseded, []string{
			"messaging.process.duration 1 of 3.000s signalbox.lease_lost process process",
			"messaging.client.operation.duration 1 of 1.000s signalbox.lease_lost snooze settle",
			"signalbox.fence.rejected 1",
		}},
		{"unknown", nil, signalbox.OutcomeCompleted, signalbox.OutcomeUnknown, []string{
			"messaging.process.duration 1 of 3.000s process process",
			"messaging.client.operation.duration 1 of 1.000s signalbox.unsettled ack settle",
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			mp, read := meters()
			ctx, end := delivered(t.Context())
			before := []string{
				"messaging.client.consumed.messages 1 process process",
				"signalbox.job.wait.duration 1 of 1.500s",
			}
			// The outer middleware measures. The inner one passes calls through.
			mw := signalbox.Chain(Recover(), Metrics(WithMeterProvider(mp), onServer), Metrics(WithMeterProvider(mp)))
			err := run(ctx, measuredJob(), mw, func(context.Context, *signalbox.Job) error {
				wantPoints(t, c.name+", while it runs", read(t), append(before, "signalbox.worker.active 1")...)
				time.Sleep(2 * time.Second)
				return c.err
			})
			if err != c.err {
				t.Errorf("%s: %v became %v", c.name, c.err, err)
			}
			before = append(before, "signalbox.worker.active 0")
			wantPoints(t, c.name+", before it is settled", read(t), before...)
			returned := time.Now()
			time.Sleep(time.Second)
			settle(t, end, signalbox.Settled{Asked: c.asked, Outcome: c.outcome, Returned: returned, Ended: time.Now()})
			wantPoints(t, c.name, read(t), append(before, c.want...)...)
		})
	}
}

// onServer is what a worker says of its Redis.
func onServer(c *telemetry.MetricsConfig) { c.Who = telemetry.Who{Address: "redis.test", Port: 6379} }

// Without a worker a delivery ends when its handler ends, in whatever way.
func TestMetricsWithoutAWorker(t *testing.T) {
	for name, c := range map[string]struct {
		h         signalbox.HandlerFunc
		errorType string
	}{
		"success": {func(context.Context, *signalbox.Job) error { return nil }, ""},
		"cancel":  {func(context.Context, *signalbox.Job) error { return signalbox.Cancel(errMine) }, ""},
		"timeout": {func(context.Context, *signalbox.Job) error { return signalbox.ErrTimeout }, "timeout "},
		"panic":   {thePanickingHandler, "panic "},
		"failure": {func(context.Context, *signalbox.Job) error { return errMine }, "*errors.errorString "},
		"held":    {func(context.Context, *signalbox.Job) error { return lock.ErrHeld }, "signalbox.lock_held "},
		"stopped": {func(context.Context, *signalbox.Job) error { return signalbox.ErrShutdown }, "*errors.errorString "},
	} {
		mp, read := meters()
		mw := signalbox.Chain(Recover(), Metrics(WithMeterProvider(mp), onServer))
		synctest.Test(t, func(t *testing.T) { _ = run(t.Context(), measuredJob(), mw, c.h) })
		wantPoints(t, name, read(t),
			"messaging.client.consumed.messages 1 process process",
			"messaging.process.duration 1 of 0.000s "+c.errorType+"process process",
			"signalbox.job.wait.duration 1 of 1.500s",
			"signalbox.worker.active 0",
		)
	}
}

// Without a provider the middleware adds nothing. A middleware of the user's with a provider
// measures.
func TestMetricsOff(t *testing.T) {
	ctx, _ := delivered(t.Context())
	mp, read := meters()
	job := measuredJob()
	h := Metrics()(signalbox.HandlerFunc(func(context.Context, *signalbox.Job) error { return nil }))
	if n := testing.AllocsPerRun(100, func() { _ = h.Handle(ctx, job) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	mw := signalbox.Chain(Metrics(), Metrics(WithMeterProvider(mp), onServer))
	_ = run(ctx, job, mw, func(context.Context, *signalbox.Job) error { return nil })
	if got := read(t); len(got) != 3 {
		t.Errorf("the inner one, the only one with a provider, measured %v", got)
	}
}
