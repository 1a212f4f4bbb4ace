package telemetry

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// A call in an Asks continues the span of the call before it only if that found the lock held. A locker
// may make its calls in any order. Each of them ends once.
func TestAsks(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, c := range map[string]struct {
		calls func(ctx context.Context, asks *Asks, m *LockMetrics)
		want  []string
	}{
		"none": {func(_ context.Context, asks *Asks, _ *LockMetrics) { asks.End(true) }, nil},
		"held, and granted": {func(ctx context.Context, asks *Asks, m *LockMetrics) {
			_, try := StartAcquire(ctx, m)
			try.End(LockHeld, 0, nil)
			_, wait := StartAcquire(ctx, m)
			wait.End(LockAcquired, 7, nil)
			asks.End(false)
		}, []string{"acquired"}},
		"failed, which is held as a whole": {func(ctx context.Context, asks *Asks, m *LockMetrics) {
			_, wait := StartAcquire(ctx, m)
			wait.End(LockFailed, 0, down)
			asks.End(true)
		}, []string{"held"}},
		"another after a failure": {func(ctx context.Context, asks *Asks, m *LockMetrics) {
			_, first := StartAcquire(ctx, m)
			first.End(LockFailed, 0, down)
			_, second := StartAcquire(ctx, m)
			second.End(LockHeld, 0, nil)
			asks.End(true)
		}, []string{"error", "held"}},
		"two at a time": {func(ctx context.Context, asks *Asks, m *LockMetrics) {
			_, one := StartAcquire(ctx, m)
			_, two := StartAcquire(ctx, m)
			one.End(LockHeld, 0, nil)
			two.End(LockHeld, 0, nil)
			asks.End(true)
		}, []string{"held", "held"}},
		"after the end": {func(ctx context.Context, asks *Asks, m *LockMetrics) {
			_, one := StartAcquire(ctx, m)
			one.End(LockHeld, 0, nil)
			asks.End(true)
			_, two := StartAcquire(ctx, m)
			two.End(LockHeld, 0, nil)
		}, []string{"held", "held"}},
	} {
		exporter := tracetest.NewInMemoryExporter()
		ctx, parent := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)).Tracer("").Start(t.Context(), "parent")
		ctx, asks := JoinAsks(ctx)
		c.calls(ctx, asks, NewLockMetrics(nil))
		var got []string
		for _, s := range exporter.GetSpans() {
			set := attribute.NewSet(s.Attributes...)
			v, _ := set.Value(LockOutcome)
			got = append(got, v.AsString())
			if s.Parent.SpanID() != parent.SpanContext().SpanID() {
				t.Errorf("%s: a span is under %v", name, s.Parent.SpanID())
			}
		}
		parent.End()
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: spans %v, want %v", name, got, c.want)
		}
	}
}
